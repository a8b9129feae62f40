"""What stays in fast memory and what does not; in which order kernels run; in whose place a buffer may lie."""

from __future__ import annotations

import numpy as np
import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.graph import Op, Value
from meshwright.planner.kernels import Program
from meshwright.planner.kinds import ALL_GATHER, COLLECTIVE_PERMUTE
from meshwright.planner.memory.flow import Flow, flow
from meshwright.planner.memory.liveness import lifetimes, live_bytes
from meshwright.planner.memory.orders import list_order
from meshwright.planner.memory.temporaries import temporary_bytes
from meshwright.planner.memory.vmem import near_buffers, sent_from_hbm
from programs import of_ops

SMALL, LARGE = Value((1024, 1024), "f32"), Value((8192, 2048), "f32")


def buffers(program: Program) -> Flow:
    return flow(program, temporary_bytes(program), lambda body: 0)


def around(kind: str, size: Value) -> Program:
    """An operation of a kind whose operand is 1 and whose result is 2, which two others read one after the other."""
    ops = (
        Op(kind="tanh", operands=(0,), results=(1,)),
        Op(kind=kind, operands=(1,), results=(2,), attributes={"axes": ("x",)}),
        Op(kind="tanh", operands=(2,), results=(3,)),
        Op(kind="add", operands=(2, 3), results=(4,)),
    )
    return of_ops((size,) * 5, ops, (0,), (4,))


def sent(kind: str, size: Value, kind_of_chip: str) -> frozenset[int]:
    """Which of a collective's operand and result lie in the large memory."""
    made = around(kind, size)
    return sent_from_hbm(made, buffers(made), catalogue()[kind_of_chip])


def near_from(kind: str, kind_of_chip: str) -> int | None:
    """From which point on the operation's small result lies in the fast memory."""
    made, chip = around(kind, SMALL), catalogue()[kind_of_chip]
    found = buffers(made)
    room = np.full(len(made.kernels), chip.buffer_vmem_bytes, np.int64)
    return near_buffers(made, found, lifetimes(found, range(len(made.kernels))), chip, room).get(2)


def test_only_large_buffers_of_collectives_lie_in_the_large_memory() -> None:
    assert sent(ALL_GATHER, LARGE, "v5e") == {1, 2}
    assert sent(ALL_GATHER, SMALL, "v5e") == set()


@pytest.mark.parametrize("kind", [ALL_GATHER, "dot_general"])
def test_v5p_writes_what_it_gathers_and_multiplies_into_the_large_memory_and_fetches_it(kind: str) -> None:
    assert near_from(kind, "v5e") == 1
    assert near_from(kind, "v5p") == 2
    assert near_from(COLLECTIVE_PERMUTE, "v5p") == 1


@pytest.mark.parametrize(("again", "is_near"), [(0, False), (6, True)])
def test_an_argument_that_is_read_again_is_kept_in_between(again: int, is_near: bool) -> None:
    """MLPs on v5e: what lives longer has no room beside it. Of another argument nothing is kept before it is read."""
    ops = (
        Op(kind="tanh", operands=(0,), results=(1,)),
        Op(kind="tanh", operands=(1,), results=(2,)),
        Op(kind="add", operands=(1, 2), results=(3,)),
        Op(kind="add", operands=(3, again), results=(4,)),
        Op(kind="add", operands=(4, 1), results=(5,)),
    )
    made = of_ops((SMALL,) * 7, ops, (0, 6), (5,))
    found = buffers(made)
    room = SMALL.num_bytes * np.array([3, 3, 3, 9, 9], np.int64)
    near = near_buffers(made, found, lifetimes(found, range(len(made.kernels))), catalogue()["v5e"], room)
    assert (1 in near) == is_near


def test_a_number_alone_comes_before_what_frees_memory() -> None:
    number = Value((), "f32")
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind="dot_general", operands=(1, 0), results=(2,)),
        Op(kind="reduce", operands=(0,), results=(3,)),
    )
    made = of_ops((SMALL, LARGE, SMALL, number), ops, (0,), (2, 3))
    assert list_order(buffers(made))[0] == 2


def test_a_sum_lies_where_whichever_of_its_operands_ends_with_it() -> None:
    """The first operand is read again: the sum takes the place of the second."""
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind="sort", operands=(0,), results=(2,)),
        Op(kind="add", operands=(1, 2), results=(3,)),
        Op(kind="dot_general", operands=(1, 3), results=(4,)),
    )
    made = buffers(of_ops((SMALL,) * 5, ops, (0,), (4,)))
    assert live_bytes(made, range(4))[2] == 2 * SMALL.num_bytes
