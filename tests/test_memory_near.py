"""What stays in fast memory and what does not; in which order kernels run; in whose place a buffer may lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from meshwright.planner.catalogue import catalogue
from meshwright.planner.graph import Op, Value
from meshwright.planner.kernels import Program
from meshwright.planner.kinds import ALL_GATHER, ALL_REDUCE, COLLECTIVE_PERMUTE
from meshwright.planner.memory import memory
from meshwright.planner.memory.fast.accessed import accessed_bytes
from meshwright.planner.memory.fast.ahead import ahead, brought
from meshwright.planner.memory.fast.copies import MOST_UNDER_WAY, Copies
from meshwright.planner.memory.fast.handed_on import handed_on
from meshwright.planner.memory.fast.near import Memory, Wanted, begins, near_from
from meshwright.planner.memory.fast.shelf import Shelf
from meshwright.planner.memory.fast.vmem import near_buffers, offloaded
from meshwright.planner.memory.flow.flow import Flow, flow
from meshwright.planner.memory.flow.liveness import lifetimes, live_bytes
from meshwright.planner.memory.order.combined import at_once
from meshwright.planner.memory.order.orders import list_order
from meshwright.planner.memory.tensors.temporaries import temporary_bytes
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
    return offloaded(made, buffers(made), catalogue()[kind_of_chip])


def begins_near(kinds: Sequence[str], kind_of_chip: str) -> int | None:
    """From which point on what one kernel of these operations makes is near; another one reads it after two more."""
    ops = (
        Op(kind="tanh", operands=(0,), results=(1,)),
        *(Op(kind=k, operands=(n,), results=(n + 1,), attributes={"axes": ("x",)}) for n, k in enumerate(kinds, 1)),
        Op(kind="tanh", operands=(1,), results=(10,)),
        Op(kind="tanh", operands=(10,), results=(11,)),
        Op(kind="add", operands=(11, len(kinds) + 1), results=(12,)),
    )
    alone, chip = of_ops((SMALL,) * 13, ops, (0,), (12,)), catalogue()[kind_of_chip]
    first, *fused = alone.kernels[: len(kinds) + 1]
    one = replace(fused[0], ops=tuple(range(1, len(kinds) + 1)), writes=fused[-1].writes)
    made = replace(alone, kernels=(first, one, *alone.kernels[len(kinds) + 1 :]))
    found = buffers(made)
    room = np.full(len(made.kernels), chip.buffer_vmem_bytes, np.int64)
    near = near_buffers(made, found, lifetimes(found, range(len(made.kernels))), chip, room)
    return begins(near).get(len(kinds) + 1)


def wanted(
    number: int, made: int, *uses: int, num_bytes: int = 100, saved_s: float = 1.0, used_bytes: Sequence[int] = ()
) -> Wanted:
    near = {"left_near": made >= 0, "saved_s": saved_s, "used_bytes": used_bytes}
    return Wanted(number=number, num_bytes=num_bytes, uses=uses, made=made, **near)


def placed(room_bytes: int, *buffers: Wanted, longest_s: float = 5.0, kernel_s: float = 1.0) -> dict[int, int]:
    """Where buffers lie in a program of kernels that take so long, a second, in a memory that is filled with a hundred
    bytes a second.
    """
    room = np.full(11, room_bytes, np.int64)
    memory = Memory(begins_s=np.arange(11.0) * kernel_s, room_bytes=room, bytes_per_s=100.0, longest_s=longest_s)
    return begins(near_from(buffers, memory))


def test_all_stays_of_a_buffer_are_known() -> None:
    """One that may not wait for its last use in fast memory, and is fetched again for it."""
    room = np.full(11, 100, np.int64)
    memory = Memory(begins_s=np.arange(11.0), room_bytes=room, bytes_per_s=100.0, longest_s=5.0)
    found = near_from([wanted(1, 0, 2, 10)], memory)
    assert [(stay.first, stay.last, stay.is_last) for stay in found[1]] == [(0, 2, False), (8, 10, True)]


def test_what_saves_most_for_the_root_of_its_bytes_comes_first() -> None:
    assert placed(100, wanted(1, 0, 4), wanted(2, 0, 4, saved_s=2.0)) == {2: 0}
    assert placed(400, wanted(1, 0, 4), wanted(2, 0, 4, num_bytes=400, saved_s=4.0)) == {2: 0}


def test_what_is_not_used_for_long_is_fetched_again() -> None:
    assert placed(100, wanted(1, 0, 2, 4)) == {1: 0}
    assert placed(100, wanted(1, 0, 2, 9)) == {1: 7}


def test_what_a_long_kernel_makes_waits_from_its_end() -> None:
    memory = Memory(
        begins_s=np.array([0.0, 10, 11, 12]), room_bytes=np.full(3, 100, np.int64), bytes_per_s=1.0, longest_s=2.0
    )
    assert begins(near_from([wanted(1, 0, 2)], memory)) == {1: 0}


def test_what_is_free_in_pieces_is_put_together() -> None:
    """At the third point 70 of 100 bytes are free, but on both sides of what came beside what was needed first."""
    first = wanted(1, 0, 1, num_bytes=30, saved_s=9.0)
    lasting = wanted(2, 1, 5, num_bytes=30, saved_s=5.0)
    assert placed(100, first, lasting, wanted(3, 2, 5, num_bytes=60)) == {1: 0, 2: 1, 3: 2}


def test_an_argument_takes_room_before_it_is_read() -> None:
    """It takes a second to fetch, for which two are taken where there is room."""
    assert placed(100, wanted(1, -1, 5, saved_s=2.0), wanted(2, 0, 3)) == {1: 3}
    assert placed(100, wanted(1, -1, 5, saved_s=2.0), wanted(2, 0, 2)) == {1: 3, 2: 0}


def test_an_argument_that_is_read_again_is_kept_in_between() -> None:
    assert placed(100, wanted(1, -1, 3, 6, saved_s=2.0), wanted(2, 4, 5)) == {1: 1}


def test_what_there_is_no_time_to_fetch_is_read_where_it_lies() -> None:
    assert placed(100, wanted(1, -1, 1, num_bytes=100), wanted(2, -1, 1, num_bytes=50, saved_s=0.1)) == {1: 0}
    assert placed(400, wanted(1, -1, 1, num_bytes=400)) == {}


def test_what_others_still_read_where_it_lies_is_fetched_meanwhile() -> None:
    """What is made in the large memory at 1 and read at 2 has no second but that kernel's before it is needed at 3."""
    far = replace(wanted(1, 1, 2, 3), left_near=False)
    assert placed(200, far) == {1: 3}
    assert placed(200, replace(far, num_bytes=101)) == {}


def test_a_copy_that_finds_no_time_as_it_would_begins_earlier() -> None:
    """Another copy of two seconds is under way from the second on at which it would begin, and at the next."""
    assert placed(900, wanted(1, -1, 7, num_bytes=200, saved_s=9.0), wanted(2, -1, 5)) == {1: 3, 2: 2}


@pytest.mark.parametrize(
    ("kind", "found"), [("dot_general", 2), ("add", 1)], ids=["read by products", "read as numbers"]
)
def test_a_weight_that_products_alone_read_lies_there_as_a_step_begins(kind: str, found: int) -> None:
    """Of equals the one that is read most often; where numbers are computed with it, it is none, and the last is."""
    product = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    ops = (
        Op(kind="dot_general", operands=(0, 1), results=(3,), attributes=product),
        Op(kind="dot_general", operands=(3, 2), results=(4,), attributes=product),
        Op(kind="dot_general", operands=(4, 2), results=(5,), attributes=product),
        Op(kind=kind, operands=(2, 5), results=(6,), attributes=product),
    )
    made = of_ops((SMALL,) * 7, ops, (0, 1, 2), (6,))
    step = replace(made, graph=replace(made.graph, names=("x", "y", "w")))
    given = [wanted(0, -1, 0), wanted(1, -1, 0), wanted(2, -1, 1, 2)]
    memory = Memory(begins_s=np.arange(5.0), room_bytes=np.full(4, 900, np.int64), bytes_per_s=100.0, longest_s=9.0)
    first = ahead(step, given, memory)
    assert first is not None
    assert first.number == found


def test_the_room_of_what_the_next_step_begins_with_is_lent_in_between() -> None:
    """What is read at 1 for the last time has its room again for the two seconds that fetching takes twice; where that
    is soon, nothing else is there.
    """

    def room(uses: Sequence[int], steps: int) -> list[int]:
        left = np.full(steps, 100, np.int64)
        memory = Memory(begins_s=np.arange(steps + 1.0), room_bytes=left, bytes_per_s=100.0, longest_s=9.0)
        brought(wanted(1, -1, *uses), memory, Shelf(left))
        return left.tolist()

    assert room((0, 1), 10) == [0, 0, *[100] * 6, 0, 0]
    assert room((0, 5), 10) == [0] * 10


def test_copies_are_made_one_after_the_other() -> None:
    """One of two seconds is needed after two; another of one second is not made beside it, but is when it is needed
    later, and so is one that begins early enough for both.
    """
    first = wanted(1, -1, 2, num_bytes=200, saved_s=9.0)
    assert placed(900, first, wanted(2, -1, 2)) == {1: 0}
    assert placed(900, first, wanted(2, -1, 3)) == {1: 0, 2: 1}
    assert placed(900, wanted(1, -1, 4, num_bytes=200, saved_s=9.0), wanted(2, -1, 3)) == {1: 0, 2: 1}


def test_so_many_copies_are_under_way_at_most() -> None:
    needed = [wanted(number, -1, 10, num_bytes=1) for number in range(MOST_UNDER_WAY + 2)]
    assert len(placed(900, *needed, longest_s=99.0)) == MOST_UNDER_WAY


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0.1, 3)), min_size=1, max_size=60))
def test_copies_under_way_are_those_that_begin_before_the_end_and_are_needed_after_the_begin(
    spans: list[tuple[float, float]],
) -> None:
    copies = Copies()
    for number, (begin_s, lasts_s) in enumerate(spans):
        before = [(other, other + lasts) for other, lasts in spans[:number]]
        overlap = [1 for other, end in before if other <= begin_s + lasts_s and end > begin_s]
        assert copies._under_way(begin_s, begin_s + lasts_s) == len(overlap)
        copies.add(begin_s, begin_s + lasts_s, 0.0)
        copies = copies.copy()


def test_nothing_is_copied_to_be_hardly_used() -> None:
    """Uses that read less than half of it, all together, read it where it lies; what is made there stays anyway."""
    assert placed(100, wanted(1, -1, 3, 4, used_bytes=(20, 20))) == {}
    assert placed(100, wanted(1, -1, 3, 4, used_bytes=(20, 40))) == {1: 1}
    assert placed(100, wanted(1, 0, 3, 4, used_bytes=(20, 20))) == {1: 0}


def test_a_copy_begins_before_a_kernel_that_takes_longer_than_it_should() -> None:
    """Two seconds are preferred, where the one kernel before the use takes five; of short ones as many as are nearest,
    or as leave the second that it takes.
    """
    assert placed(100, wanted(1, -1, 3), kernel_s=5.0, longest_s=25.0) == {1: 2}
    assert placed(100, wanted(1, -1, 4), kernel_s=0.6) == {1: 1}
    assert placed(100, wanted(1, -1, 4), wanted(2, 0, 1, saved_s=2.0), kernel_s=0.6) == {1: 2, 2: 0}


@pytest.mark.parametrize("scanned", [True, False])
def test_what_a_turn_changes_lies_where_the_loop_has_it(scanned: bool) -> None:
    """A turn puts a row into a stack, which takes no room of its own in it, and is changed by so much alone."""
    chip, row = catalogue()["v6e"], Value((1, 1024), "f32")
    ops = (
        *(Op(kind="tanh", operands=(n,), results=(n + 1,)) for n in (1, 2, 3)),
        Op(kind="slice", operands=(4,), results=(5,)),
        Op(kind="dynamic_update_slice", operands=(0, 5), results=(6,)),
    )
    body = of_ops((*(SMALL,) * 5, row, SMALL), ops, (0, 1), (6, 1))
    found = buffers(body)
    room = np.full(len(ops), chip.buffer_vmem_bytes, np.int64)
    near = near_buffers(body, found, lifetimes(found, range(len(ops))), chip, room, scanned=scanned)
    assert (0 in near) == (not scanned)
    moved = accessed_bytes(body.graph, body.kernels[-1], scanned=scanned)
    assert (moved[0], moved[6]) == ((row.num_bytes,) * 2 if scanned else (SMALL.num_bytes,) * 2)


def test_pieces_that_kernels_cut_are_what_they_read() -> None:
    """Where that is asked for: loops around products have what they read whole."""
    piece = Value((8, 1024), "f32")
    ops = (
        Op(kind="slice", operands=(0,), results=(1,)),
        Op(kind="tanh", operands=(1,), results=(2,)),
        Op(kind="add", operands=(2, 2), results=(3,)),
    )
    made = of_ops((SMALL, piece, piece, piece), ops, (0,), (3,))
    kernel = replace(made.kernels[0], ops=(0, 1, 2), reads=(0,), writes=(3,))
    assert accessed_bytes(made.graph, kernel, cut=True)[0] == piece.num_bytes
    assert accessed_bytes(made.graph, kernel)[0] == SMALL.num_bytes


def test_what_loops_hand_on_lies_in_one_place() -> None:
    """Two loops one after the other change a buffer in place: it is one, near from the first point to the last."""
    chip = catalogue()["v6e"]
    body = of_ops((SMALL,) * 2, (Op(kind="tanh", operands=(0,), results=(1,)),), (0,), (1,))
    ops = (
        Op(kind="tanh", operands=(0,), results=(1,)),
        *(Op(kind="while", operands=(n,), results=(n + 1,), bodies=(body.graph,), trips=8) for n in (1, 2)),
        Op(kind="tanh", operands=(3,), results=(4,)),
    )
    made = of_ops((SMALL,) * 5, ops, (0,), (4,))
    loops = [replace(kernel, bodies=(body,)) if n in (1, 2) else kernel for n, kernel in enumerate(made.kernels)]
    made = replace(made, kernels=tuple(loops))
    found = buffers(made)
    lives = lifetimes(found, range(4))
    assert handed_on(made, found, lives) == {2: 1, 3: 1}
    room = np.full(4, SMALL.num_bytes, np.int64)
    near = near_buffers(made, found, {buffer: lives[buffer] for buffer in (1, 2, 3)}, chip, room)
    assert {buffer: (stay.first, stay.last) for buffer in (1, 2, 3) for stay in near[buffer]} == {
        1: (0, 1),
        2: (1, 2),
        3: (2, 3),
    }


def test_only_what_a_chip_offloads_is_sent_from_its_large_memory() -> None:
    """v5e's reduce-scatter of 64 MiB reads fast memory, and its gather of 64 MiB writes there."""
    assert sent(ALL_GATHER, LARGE, "v5e") == set()
    assert sent(ALL_GATHER, SMALL, "tpu7x") == {1, 2}


@pytest.mark.parametrize("kind", [ALL_GATHER, COLLECTIVE_PERMUTE, "dot_general", "copy"])
def test_v5p_leaves_nothing_near_but_what_is_fused_and_fetches_all_else(kind: str) -> None:
    assert begins_near([kind], "v5e") == 1
    assert begins_near([kind], "v5p") == 3
    assert begins_near(["exponential", "negate"], "v5p") == 1


@pytest.mark.parametrize("joint", [False, True])
def test_nothing_is_saved_where_one_of_several_sums_is_near(*, joint: bool) -> None:
    """There is room for one: what a sum alone made, or else an argument that is read with it, fetched meanwhile (v4,
    v5e and v6e have such gradients in the large memory).
    """
    ops = (
        Op(kind="tanh", operands=(0,), results=(2,)),
        Op(kind=ALL_REDUCE, operands=(2,), results=(3,), attributes={"axes": ("x",)}),
        Op(kind=ALL_REDUCE, operands=(0,), results=(4,), attributes={"axes": ("x",)}),
        Op(kind="tanh", operands=(4,), results=(5,)),
        Op(kind="tanh", operands=(5,), results=(6,)),
        Op(kind="add", operands=(3, 1), results=(7,)),
    )
    made, chip = of_ops((SMALL,) * 8, ops, (0, 1), (6, 7)), catalogue()["v6e"]
    found = at_once(buffers(made), ((1, 2),) if joint else ())
    room = np.full(len(ops), SMALL.num_bytes, np.int64)
    lives = {buffer: span for buffer, span in lifetimes(found, range(len(ops))).items() if buffer == 3}
    near = begins(near_buffers(made, found, lives, chip, room))
    assert (3 in near, 1 in near) == (not joint, joint)


def near_of(values: Sequence[Value], ops: Sequence[Op], results: Sequence[int], kind_of_chip: str) -> dict[int, int]:
    """From which point on each buffer lies in fast memory to its end, of those that do."""
    made, chip = of_ops(tuple(values), tuple(ops), (0,), tuple(results)), catalogue()[kind_of_chip]
    found = buffers(made)
    room = np.full(len(made.kernels), chip.buffer_vmem_bytes, np.int64)
    lives = lifetimes(found, range(len(made.kernels)))
    return {b: first for b, first in begins(near_buffers(made, found, lives, chip, room)).items() if b in lives}


def test_what_is_written_into_another_takes_no_room_of_its_own() -> None:
    """v5e has 101 MiB: one update of 64 MiB fits, but not two buffers of it."""
    whole, part = Value((16, 1024, 1024), "f32"), Value((1, 1024, 1024), "f32")
    ops = (
        Op(kind="tanh", operands=(0,), results=(1,)),
        Op(kind="dynamic_update_slice", operands=(1, 2, 3), results=(4,)),
        Op(kind="tanh", operands=(4,), results=(5,)),
    )
    values = (whole, whole, part, Value((), "s32"), whole, part)
    assert near_of(values, ops, (5,), "v5e").items() >= {1: 0, 4: 1}.items()


@pytest.mark.parametrize(
    ("kind_of_chip", "rows", "found"), [("v6e", 2048, 3), ("v6e", 1024, 0), ("v5e", 2048, 0), ("v5p", 2048, 3)]
)
def test_what_a_sparsecore_looks_up_in_lies_far_until_it_has(kind_of_chip: str, rows: int, found: int) -> None:
    """As compiled for v6e and v5p: the operand of a lookup of 1025 numbers or more is fetched behind it."""
    table, numbers = Value((rows, 1024), "f32"), Value((rows, 1), "f32")
    slices = {"slice_sizes": (1, 1)}
    ops = (
        Op(kind="tanh", operands=(0,), results=(1,)),
        Op(kind="gather", operands=(1, 0), results=(2,), attributes=slices),
        Op(kind="tanh", operands=(0,), results=(3,)),
        Op(kind="tanh", operands=(3,), results=(4,)),
        Op(kind="add", operands=(1, 4), results=(5,)),
    )
    begin = near_of((table, table, numbers, table, table, table), ops, (2, 5), kind_of_chip)
    assert begin[1] >= found if found else begin[1] == 0


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


def test_what_is_near_around_a_loop_takes_no_room_in_its_turns() -> None:
    """Two stacks of 40 MiB that all turns read are one buffer each with what the loop is given, and 94 MiB are near."""
    stack, row = Value((5120, 2048), "f32"), Value((5120,), "f32")
    summed = {"dimensions": (1,), "reducer": "add"}
    turn = (
        Op(kind="reduce", operands=(1,), results=(3,), attributes=summed),
        Op(kind="reduce", operands=(2,), results=(4,), attributes=summed),
        Op(kind="add", operands=(3, 4), results=(5,)),
        Op(kind="add", operands=(0, 5), results=(6,)),
    )
    body = of_ops((row, stack, stack, *(row,) * 4), turn, (0, 1, 2), (6, 1, 2))
    ops = (
        Op(kind="tanh", operands=(0,), results=(2,)),
        Op(kind="exponential", operands=(0,), results=(3,)),
        Op(kind="while", operands=(1, 2, 3), results=(4, 5, 6), bodies=(body.graph,), trips=8),
    )
    made = of_ops((stack, row, stack, stack, row, stack, stack), ops, (0, 1), (4,))
    loop = replace(made.kernels[-1], bodies=(body,))
    made = replace(made, kernels=(*made.kernels[:-1], loop))
    assert memory(made, catalogue()["v6e"]).temp_bytes < stack.num_bytes


def test_what_a_forward_passs_softmax_is_computed_from_never_lies_in_the_large_memory_of_v6e() -> None:
    """16 MiB of temporaries compiled for v6e of 8 heads and 2048 places, 256 for v5e, and for heads that share keys."""

    def temp_bytes(topology: str, keys: int) -> int:
        def step(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            together, apart = ("btkgd,bskd->bkgts", "bkgts,bskd->btkgd")
            if keys == 8:
                together, apart = ("btkd,bskd->bkts", "bkts,bskd->btkd")
            else:
                q = q.reshape(*q.shape[:2], keys, 8 // keys, 128)
            scores = jnp.einsum(together, q, k).astype(jnp.float32) * 0.1
            return jnp.einsum(apart, jax.nn.softmax(scores).astype(v.dtype), v)

        def heads(count: int) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((8, 2048, count, 128), jnp.bfloat16)

        rules = "".join(f"  {name}: _@d ...\n" for name in ("q", "k", "v", "out"))
        plan = mw.loads(f"meshwright: 1\ntopology: {topology}\nmesh: {{d: 4}}\ntensors:\n{rules}")
        return mw.estimate(plan, step, (heads(8), heads(keys), heads(keys))).memory.temp_bytes

    assert temp_bytes("v6e:2x2", 8) < 32 << 20
    assert min(temp_bytes("v5e:2x2", 8), temp_bytes("v6e:2x2", 4)) > 240 << 20


def test_what_is_left_near_and_does_not_stay_is_copied_while_another_kernel_runs() -> None:
    """It is made at the first point, and may not wait for its last use; what comes first has the room after its first.

    Seen of programs for v4: what the next kernel alone reads near, where that fills the memory, is written far at once.
    """
    room = np.full(11, 100, np.int64)
    memory = Memory(begins_s=np.arange(11.0), room_bytes=room, bytes_per_s=100.0, longest_s=5.0)
    before_all = wanted(2, 2, 5, saved_s=9.0)
    assert 1 not in near_from([before_all, wanted(1, 0, 1, 10)], memory)
    after_it = wanted(2, 3, 5, saved_s=9.0)
    room[:] = 100
    assert near_from([after_it, wanted(1, 0, 1, 10)], memory)[1][0] == (0, 1, False)
