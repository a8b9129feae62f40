"""Sums over devices that become one: which are, and that the program's order puts them together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from meshwright.planner.catalogue import catalogue
from meshwright.planner.fusion import fuse
from meshwright.planner.fusion.joint import LIMIT_BYTES, joint_sums
from meshwright.planner.fusion.uses import read_uses
from meshwright.planner.graph import Graph
from meshwright.planner.kernels import Program
from meshwright.planner.memory import memory
from meshwright.planner.memory.flow.flow import flow, regrouped
from meshwright.planner.memory.order.combined import at_once, combined, in_order
from meshwright.planner.memory.order.orders import post_order
from meshwright.planner.memory.order.schedule import schedule
from programs import form_bytes, program
from test_fusion import Writer

MIB = 2**20


def with_axes(made: Program, axes: dict[int, tuple[str, ...]]) -> Program:
    """A program whose sums over devices are over axes by the value that they make."""
    graph = made.graph
    ops = tuple(
        replace(op, attributes={"axes": axes.get(op.results[0], ("x",)), "reducer": "add"})
        if op.kind == "all-reduce"
        else op
        for op in graph.ops
    )
    return replace(made, graph=replace(graph, ops=ops))


def gradients(number: int, rows: int) -> Program:
    """Products of two arguments, each summed over the devices and then used by an update."""
    shapes = [(1024, 1024)] * 2 + [(rows, 1024)] * (3 * number)
    kernels, results = [], []
    for first in range(2, 2 + 3 * number, 3):
        kernels.append(("dot_general", (0, 1), (first,)))
        kernels.append(("all-reduce", (first,), (first + 1,)))
        kernels.append(("exponential", (first + 1,), (first + 2,)))
        results.append(first + 2)
    return with_axes(program(shapes, kernels, (0, 1), tuple(results)), {})


def groups(made: Program) -> list[set[int]]:
    found = flow(made, form_bytes, lambda _: 0)
    return [{value for kernel in group for value in found.made[kernel]} for group in combined(made, found)]


def test_sums_of_one_kind_that_need_nothing_of_each_other_are_one_up_to_a_limit() -> None:
    assert groups(gradients(3, 1024)) == [{3, 6, 9}]
    many = groups(gradients(9, 4096))  # of 16 MiB each
    assert [len(group) for group in many] == [LIMIT_BYTES // (16 * MIB), 2]
    assert groups(with_axes(gradients(2, 1024), {3: ("y",)})) == []


def test_what_would_make_too_much_is_passed_over_for_what_does_not() -> None:
    sizes = (40, 90, 40, 10, 40, 30)
    shapes = [(1024, 1024)] * 2 + [(256 * size, 1024) for size in sizes for _ in range(3)]
    firsts = range(2, len(shapes), 3)
    kernels = [
        *(("dot_general", (0, 1), (v,)) for v in firsts),
        *(("all-reduce", (v,), (v + 1,)) for v in firsts),
        *(("exponential", (v + 1,), (v + 2,)) for v in firsts),
    ]
    made = with_axes(program(shapes, kernels, (0, 1), tuple(range(4, len(shapes), 3))), {})
    assert groups(made) == [{3 + 3 * n for n in (0, 2, 3, 5)}]


def test_a_sum_that_another_waits_for_stays_apart() -> None:
    shapes = [(1024, 1024)] * 5
    chain = [("all-reduce", (0,), (1,)), ("exponential", (1,), (2,)), ("all-reduce", (2,), (3,))]
    assert groups(with_axes(program(shapes, [*chain, ("exponential", (3,), (4,))], (0,), (4,)), {})) == []


def between(rounded: int = -1) -> Program:
    """Two products of one operand, summed, brought together for a product that is summed as well, and an update."""
    shapes = [(1024, 1024)] * 9
    kernels = [
        ("dot_general", (0, 1), (2,)),
        ("dot_general", (0, 1), (3,)),
        ("all-reduce", (2,), (4,)),
        ("all-reduce", (3,), (5,)),
        ("dot_general", (4, 5), (6,)),
        ("all-reduce", (6,), (7,)),
        ("exponential", (7,), (8,)),
    ]
    made = with_axes(program(shapes, kernels, (0, 1), (8,)), {})
    values = tuple(replace(v, dtype="bf16") if n == rounded else v for n, v in enumerate(made.graph.values))
    return replace(made, graph=replace(made.graph, values=values))


def test_sums_of_products_that_others_wait_for_are_one_if_of_one_dtype_before_they_are_rounded() -> None:
    """As compiled for v4: values are rounded, queries and keys that turn with their places are not, all in one."""
    assert groups(between()) == groups(between(rounded=5)) == [{4, 5}]
    assert groups(between(rounded=3)) == []


@pytest.mark.parametrize("offloads", [False, True])
def test_what_makes_them_keeps_sums_apart_on_other_cores_alone(*, offloads: bool) -> None:
    """As compiled of a product and of the squares that norm it, which the loss waits for: for v4 and v5e they are one,
    over some of the devices too.
    """
    made = between()
    ops = tuple(replace(op, kind="reduce") if op.results == (3,) else op for op in made.graph.ops)
    graph = replace(made.graph, ops=ops)
    assert joint_sums(graph, read_uses(graph).makers, {"x": 4, "y": 2}, offloads=offloads) == (
        () if offloads else ((4, 5),)
    )


@pytest.mark.parametrize("comes_first", [True, False])
def test_what_waits_for_nothing_is_one_with_the_last_of_a_chain(*, comes_first: bool) -> None:
    """As compiled for v5e:2x2, whichever of the two results comes first: of three sums, each of which needs the one
    before, and one that needs none, two are alone.
    """
    shapes = [(1024, 1024)] * 9
    chain = [("dot_general", (0, 1), (2,)), ("all-reduce", (2,), (3,)), ("dot_general", (3, 1), (4,))]
    chain += [("all-reduce", (4,), (5,)), ("dot_general", (5, 1), (6,)), ("all-reduce", (6,), (7,))]
    alone = [("exponential", (1,), (8,)), ("dot_general", (0, 8), (9,)), ("all-reduce", (9,), (10,))]
    ends = [("exponential", (7,), (11,)), ("exponential", (10,), (12,))]
    results = (12, 11) if comes_first else (11, 12)
    made = with_axes(program([*shapes, *[(1024, 1024)] * 4], [*chain, *alone, *ends], (0, 1), results), {})
    assert groups(made) == [{7, 10}]


@pytest.mark.parametrize(("mesh", "offloads"), [(4, False), (8, False), (8, True)])
def test_sums_of_reductions_and_of_rows_looked_up_are_one(*, mesh: int, offloads: bool) -> None:
    """As compiled of exponentials and the labels' scores, which both are added up over the vocabulary's parts: over all
    devices for v4 and v6e, over some of them for v3, v4, v5e, v5p and tpu7x.
    """
    shapes = [(512, 1024), (512,), (512,), (512,), (512,), (512,), (512,)]
    kernels = [
        ("reduce", (0,), (2,)),
        ("all-reduce", (2,), (3,)),
        ("gather", (0, 1), (4,)),
        ("all-reduce", (4,), (5,)),
        ("add", (3, 5), (6,)),
    ]
    last = [("all-reduce", (6,), (7,)), ("exponential", (7,), (8,))]
    made = with_axes(program([*shapes, (512,), (512,)], [*kernels, *last], (0, 1), (8,)), {})
    makers = read_uses(made.graph).makers
    assert joint_sums(made.graph, makers, {"x": 4, "y": mesh // 4}, offloads=offloads) == ((3, 5),)


def test_sums_that_others_wait_for_are_apart_from_the_last_ones() -> None:
    """As compiled for v5p (seed 80): the gradient of activations and that of a head's weights, over all devices."""
    shapes = [(1024, 1024)] * 10
    kernels = [
        *[("dot_general", (0, 1), (2,)), ("all-reduce", (2,), (3,)), ("dot_general", (3, 1), (4,))],
        *[("all-reduce", (4,), (5,)), ("dot_general", (1, 0), (6,)), ("all-reduce", (6,), (7,))],
        *[("exponential", (5,), (8,)), ("exponential", (7,), (9,))],
    ]
    made = with_axes(program(shapes, kernels, (0, 1), (8, 9)), {})
    assert joint_sums(made.graph, read_uses(made.graph).makers, {"x": 4}) == ((5, 7),)


def test_the_last_sum_is_one_with_what_a_sum_over_other_devices_waits_for() -> None:
    """As compiled for v5e and v6e."""
    kernels = [
        *[("dot_general", (0, 1), (2,)), ("all-reduce", (2,), (3,)), ("dot_general", (3, 1), (4,))],
        *[("all-reduce", (4,), (5,)), ("exponential", (1,), (6,)), ("dot_general", (0, 6), (7,))],
        *[("all-reduce", (7,), (8,)), ("exponential", (5,), (9,)), ("exponential", (8,), (10,))],
    ]
    made = with_axes(program([(1024, 1024)] * 11, kernels, (0, 1), (9, 10)), {5: ("y",)})
    assert groups(made) == [{3, 8}]


def test_what_is_too_much_alone_parts_no_others() -> None:
    """Sums of 4 and 40 MiB are one, though one of 200 MiB that needs the first is gone through before them."""
    shapes = [(1024, 1024)] * 4 + [(10240, 1024)] * 3 + [(51200, 1024)] * 3
    kernels = [
        *[("dot_general", (0, 1), (2,)), ("all-reduce", (2,), (3,)), ("dot_general", (1, 0), (4,))],
        *[("all-reduce", (4,), (5,)), ("exponential", (5,), (6,)), ("dot_general", (1, 3), (7,))],
        *[("all-reduce", (7,), (8,)), ("exponential", (8,), (9,)), ("exponential", (3,), (10,))],
    ]
    made = with_axes(program([*shapes, (1024, 1024)], kernels, (0, 1), (9, 6, 10)), {})
    assert groups(made) == [{3, 5}]


@pytest.mark.parametrize(
    ("needing", "expected"),
    [("1110", [{6, 9, 12}]), ("11100", [{6, 9, 12}, {15, 18}]), ("10", [{6, 9}])],
)
def test_what_was_too_much_for_one_is_none_with_what_that_needs(needing: str, expected: list[set[int]]) -> None:
    """As compiled for v5e: of sums of 40 MiB some need one of 4 MiB."""
    shapes = [(1024, 1024)] * 4 + [(10240, 1024)] * (3 * len(needing))
    kernels = [("dot_general", (0, 1), (2,)), ("all-reduce", (2,), (3,))]
    for place, needs in enumerate(needing):
        first = 5 + 3 * place
        kernels += [("dot_general", (1, 3 if needs == "1" else 0), (first,)), ("all-reduce", (first,), (first + 1,))]
        kernels.append(("exponential", (first + 1,), (first + 2,)))
    results = tuple(range(7, 5 + 3 * len(needing), 3))
    made = with_axes(program([*shapes, (1,), (1,), (1,)], kernels, (0, 1), results), {})
    assert groups(made) == expected


def test_kernels_that_wait_for_a_sum_wait_for_all_that_are_one_with_it() -> None:
    """Otherwise what makes the second would be merged with what reads the first: as compiled for v5e, where labels are
    looked up behind the product that theirs is one with.
    """
    g = Writer()
    table, rows, weights = g.arg(64, 32), g.arg(64), g.arg(32, 32)
    first = g.op("all-reduce", g.op("gather", rows, g.arg(64), shape=(64,)), axes=("x",), reducer="add")
    logged = g.op("log", rows)
    product = g.dot(g.op("multiply", table, g.spread(logged, 64, 32, dims=(0,))), weights)
    second = g.op("all-reduce", product, axes=("x",), reducer="add")
    loss = g.op("add", logged, first)
    graph = replace(g.graph(loss, g.op("exponential", second)), mesh={"x": 4})
    made = fuse(graph)
    assert made.joint == ((first, second),) or made.joint == ((second, first),)
    found = flow(made, form_bytes, lambda _: 0)
    members = in_order(found, combined(made, found))
    assert sorted(kernel for group in members for kernel in group) == list(range(len(made.kernels)))


def test_groups_do_not_wait_for_each_other() -> None:
    """Two chains of sums, one the other way round: what would close a circle stays apart."""
    shapes = [(1024, 1024)] * 13
    kernels = [
        *[("dot_general", (0, 1), (2,)), ("all-reduce", (2,), (3,)), ("dot_general", (3, 1), (4,))],
        *[("all-reduce", (4,), (5,)), ("dot_general", (1, 0), (6,)), ("all-reduce", (6,), (7,))],
        *[("dot_general", (7, 1), (8,)), ("all-reduce", (8,), (9,)), ("dot_general", (5, 9), (10,))],
        *[("all-reduce", (10,), (11,)), ("exponential", (11,), (12,))],
    ]
    made = with_axes(program(shapes, kernels, (0, 1), (12,)), {5: ("y",), 7: ("y",), 11: ("z",)})
    found = flow(made, form_bytes, lambda _: 0)
    assert len(groups(made)) == 1
    members = in_order(found, combined(made, found))
    assert sorted(kernel for group in members for kernel in group) == list(range(len(kernels)))


def test_what_is_combined_lives_until_the_last_of_it_is_summed() -> None:
    apart = with_axes(gradients(4, 4096), {3: ("y",), 6: ("z",), 9: ("w",)})
    results = 4 * 16 * MIB
    assert memory(gradients(4, 4096)).peak_bytes - memory(apart).peak_bytes <= results
    ordered = [kernel.writes[0] for kernel in schedule(gradients(4, 4096)).kernels]
    sums = [ordered.index(value) for value in (3, 6, 9, 12)]
    assert max(sums) - min(sums) == 3


def test_what_is_one_has_all_that_it_sums_in_fast_memory_at_once_or_in_the_large_one() -> None:
    """Six sums of 16 MiB each would be near one after the other, on v5e with 128 MiB; as one they find room for all
    that they read, which is made first, and for nothing that they make (as compiled: 97 MiB of temporaries).
    """
    chip, size = catalogue()["v5e"], 6 * 16 * MIB
    one, apart = (
        memory(with_axes(gradients(6, 4096), {3 * n + 3: (axis,) for n, axis in enumerate(axes)}), chip).temp_bytes
        for axes in ("xxxxxx", "abcdef")
    )
    assert one == pytest.approx(size, rel=0.02)  # and tuples of where these lie
    assert apart < MIB


def test_a_group_is_one_instruction_whichever_order_the_kernels_are_brought_into() -> None:
    found = flow(gradients(3, 1024), form_bytes, lambda _: 0)
    joint = at_once(found, ((1, 4, 7),))
    assert joint.reads[7] == (2, 5, 8)
    assert joint.writes[7] == (3, 6, 9)
    assert joint.places[7] == ((3, 2), (6, 5), (9, 8))
    assert not any((*joint.reads[k], *joint.writes[k]) for k in (1, 4))


@given(
    number=st.integers(2, 5), rows=st.sampled_from([8, 1024, 8192]), axes=st.lists(st.sampled_from("xy"), min_size=5)
)
@settings(max_examples=30, deadline=None)
def test_a_joined_flow_has_the_same_kernels_in_an_order_that_they_can_run_in(
    number: int, rows: int, axes: list[str]
) -> None:
    made = with_axes(gradients(number, rows), {3 * n + 3: (axis,) for n, axis in enumerate(axes)})
    found = flow(made, form_bytes, lambda _: 0)
    members = in_order(found, combined(made, found))
    joint = regrouped(found, members)
    assert sorted(kernel for group in members for kernel in group) == list(range(len(found.made)))
    for point, operands in enumerate(joint.operands):
        assert all(joint.maker[value] < point for value in operands)
    assert sorted(post_order(joint)) == list(range(len(members)))


def test_nothing_to_combine_leaves_the_graph() -> None:
    made = gradients(1, 1024)
    assert isinstance(made.graph, Graph)
    assert [k.writes for k in schedule(made).kernels] == [(2,), (3,), (4,)]


def test_sums_of_reductions_that_others_wait_for_are_one_with_those_of_products() -> None:
    """As compiled for v4 and v5e of ``exp(x @ w) * rsqrt(sum(x * x))``, whose mean waits for both."""
    kernels = [
        ("dot_general", (0, 1), (2,)),
        ("reduce", (0,), (3,)),
        ("reduce", (1,), (4,)),
        *(("all-reduce", (made,), (made + 3,)) for made in (2, 3, 4)),
        ("add", (5, 6, 7), (8,)),
        ("all-reduce", (8,), (9,)),
    ]
    made = with_axes(program([(1024, 1024)] * 10, kernels, (0, 1), (9,)), {})
    assert groups(made) == [{5, 6, 7}]
