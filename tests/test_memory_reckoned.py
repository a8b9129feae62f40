"""What XLA's schedulers reckon: next values of donated arguments, what rows are scattered into."""

from __future__ import annotations

from itertools import permutations

import pytest
from meshwright.planner.graph import Op, Value
from meshwright.planner.kernels import Program
from meshwright.planner.memory.flow.flow import Flow, flow
from meshwright.planner.memory.flow.liveness import scheduled_peak_bytes
from meshwright.planner.memory.order.filled import with_filled
from meshwright.planner.memory.order.orders import depth_first_order, list_order, post_order
from meshwright.planner.memory.order.replaced import after_readers
from meshwright.planner.memory.order.schedule import schedule
from programs import form_bytes, of_ops, program

SHAPE = (256, 1024)
MIB = 1 << 20


def reckoned(made: Program) -> Flow:
    return flow(made, form_bytes, lambda _: 0)


def updates(*, donated: bool) -> Program:
    """Two gradients that products make, each read by an update that makes three values of arguments of its size."""
    products = [("dot_general", (n, n), (n + 8,)) for n in (0, 1)]
    made = [("subtract", (n + 8, *range(2 + 3 * n, 5 + 3 * n)), tuple(range(10 + 3 * n, 13 + 3 * n))) for n in (0, 1)]
    aliases = {result: result + 2 for result in range(6)} if donated else {}
    results = tuple(range(10, 16))
    return program([(256, 8)] * 2 + [SHAPE] * 14, [*products, *made], tuple(range(8)), results, aliases=aliases)


def test_one_update_after_another_takes_less_where_results_lie_in_donated_arguments() -> None:
    """The list scheduler puts updates off, which make more than they free; results that stay add up either way."""
    order = [kernel.writes[0] for kernel in schedule(updates(donated=True)).kernels]
    assert order in ([8, 10, 9, 13], [9, 13, 8, 10])
    order = [kernel.writes[0] for kernel in schedule(updates(donated=False)).kernels]
    assert set(order[:2]) == {8, 9}


def simulated(made: Program, order: tuple[int, ...], donated: dict[int, int]) -> int:
    """What ``HeapSimulator`` finds of kernels that share nothing: all that a kernel makes is there before what is read
    for the last time is freed. Arguments that are donated are as well, others and results stay.
    """
    size = lambda value: form_bytes(made.graph, value)  # noqa: E731
    kernels = [made.kernels[number] for number in order]
    live = set(made.graph.arguments)
    most = 0
    for point, kernel in enumerate(kernels):
        live.update(kernel.writes)
        most = max(most, sum(map(size, live)))
        later = {value for each in kernels[point + 1 :] for value in each.reads}
        ends = {value for value in live if value not in later and value not in made.graph.results}
        live -= {value for value in ends if value not in made.graph.arguments or value in donated.values()}
    return most - sum(map(size, made.graph.arguments))


@pytest.mark.parametrize("read_late", [False, True])
def test_the_next_value_counts_beside_a_donated_argument_while_that_is_read(read_late: bool) -> None:
    """As libtpu's own log says of steps for v4, v5p and v6e: both where the one is made, none of it in between."""
    kernels = [
        ("dot_general", (0, 0), (3,)),
        ("dot_general", (3, 1 if read_late else 0), (4,)),
        ("dot_general", (3, 1), (5,)),
        ("dot_general", (3, 2), (6,)),
        ("dot_general", (5, 0), (7,)),
    ]
    made = program([SHAPE] * 8, kernels, (0, 1, 2), (4, 6, 7), aliases={1: 1, 2: 2})
    donated = {6: 1, 7: 2}
    found = reckoned(made)
    maker = {value: number for number, kernel in enumerate(made.kernels) for value in kernel.writes}
    for order in permutations(range(len(kernels))):
        at = {number: point for point, number in enumerate(order)}
        if all(at[maker[v]] < at[n] for n, k in enumerate(made.kernels) for v in k.reads if v in maker):
            assert scheduled_peak_bytes(found, order, donated) == simulated(made, order, donated)


def test_what_makes_a_donated_arguments_next_value_waits_for_other_readers() -> None:
    """As compiled for v4 and v6e: an expert's weights are updated after the gradient before them is made of these."""
    kernels = [("dot_general", (1, 1), (2,)), ("add", (0, 2), (3,)), ("dot_general", (2, 0), (4,))]
    made = program([SHAPE] * 5, kernels, (0, 1), (3, 4), aliases={0: 0})
    free, found = reckoned(made), after_readers(reckoned(made), {3: 0})
    assert post_order(free) == depth_first_order(free) == [0, 1, 2]
    for order in (post_order(found), depth_first_order(found), list_order(found)):
        assert order == [0, 2, 1]
    assert after_readers(reckoned(made), {3: 0}, grouped=(1,)) == free


def test_updates_that_read_each_others_arguments_do_not_wait_for_one_another() -> None:
    kernels = [("add", (0, 1), (2,)), ("subtract", (0, 1), (3,))]
    made = program([SHAPE] * 4, kernels, (0, 1), (2, 3), aliases={0: 0, 1: 1})
    found = after_readers(reckoned(made), {2: 0, 3: 1})
    assert sorted(list_order(found)) == sorted(post_order(found)) == [0, 1]


def scattered() -> Program:
    """Rows (5) that are added to zeros (4), and read besides by what makes a little (6)."""
    said = {"inserted_window_dims": (0,), "update_window_dims": (1,)}
    ops = (
        Op(kind="dot_general", operands=(0, 0), results=(3,)),
        Op(kind="broadcast_in_dim", operands=(2,), results=(4,)),
        Op(kind="dot_general", operands=(3, 3), results=(5,)),
        Op(kind="dot_general", operands=(5, 5), results=(6,)),
        Op(kind="scatter", operands=(4, 1, 5), results=(7,), attributes=said),
    )
    rows = [1024, 1, 0, 2560, 1024, 256, 512, 1024]
    values = [Value((n, 1024), "f32") for n in rows]
    values[1], values[2] = Value((256, 1), "s32"), Value((), "f32")
    return of_ops(tuple(values), ops, (0, 1, 2), (7, 6))


def test_rows_are_scattered_early_into_what_was_filled_before() -> None:
    """As libtpu's log has it of decoders for v3: zeros were there, so that the scatter frees them for its result."""
    made = scattered()
    found = reckoned(made)
    assert list_order(found)[-1] == 4
    filled = with_filled(made, found)
    order = list_order(filled)
    assert order.index(1) < order.index(4) < order.index(3)
    assert scheduled_peak_bytes(filled, order) == (4 + 10 + 1) * MIB
    assert scheduled_peak_bytes(found, order) == (10 + 1) * MIB
