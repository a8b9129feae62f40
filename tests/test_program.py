"""The program of a step against exhaustive search over its strategies: least cost, pins, limits, repeated blocks."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from extent import examples, some
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from meshwright.planner.graph import Graph, Op, Origin, Sharding, Value
from meshwright.planner.kernels import Kernel
from meshwright.planner.program import Known, Program, holds_inside
from meshwright.planner.program.rows.usage import Misfit, misfit_row
from meshwright.planner.program.solving import rounds
from meshwright.planner.program.solving.decode import laid_out, laid_out_step
from meshwright.planner.program.solving.named import named_layouts
from meshwright.planner.program.solving.solutions import PER_S
from meshwright.planner.program.step.blueprint import in_order_of_use, kernel_graph, name_of
from meshwright.planner.program.step.stems import stems
from meshwright.planner.program.wiring.ties import FEWEST
from meshwright.planner.solver.rows_used import usage_of, used_by
from meshwright.planner.solver.solve import solve
from small_graphs import (
    Drawing,
    exact_of,
    nothing,
    program_of,
    promised_s,
    shardings,
    size_of,
    steps,
    strategies,
)

MESHES = (
    ("v5e:1x2", {"x": 2}),
    ("v5e:2x2", {"x": 4}),
    ("v5e:2x2", {"x": 2, "y": 2}),
    ("v3:2x2", {"x": 8}),
    ("cpu:2", {"x": 2}),
)
LAYOUTS: list[Sharding] = [(("x",), ()), ((), ("x",)), ((), ())]
LARGEST, LARGEST_PRICED, SAMPLED = 4000, 150, 400
SOME = settings(max_examples=examples(8, 25), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
FEW = settings(max_examples=examples(4, 12), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
Step = tuple[Graph, dict[str, str]]


def small(step: Step, where: tuple[str, dict[str, int]], largest: int = LARGEST, **options: Any) -> Program:
    graph, returned = step
    program = program_of(graph, *where, returned=returned, **options)
    assume(size_of(program) <= largest)
    return program


def possible(program: Program) -> list[list[int]]:
    """Every strategy that nothing forbids."""
    return [choices for choices in strategies(program) if math.isfinite(promised_s(program, choices))]


def cheapest(program: Program) -> float:
    return min(promised_s(program, choices) for choices in strategies(program))


@SOME
@given(steps(), st.sampled_from(MESHES))
def test_the_program_is_solved_to_the_least_of_all_strategies(step: Step, where: tuple[str, dict[str, int]]) -> None:
    program = small(step, where)
    found = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert found.choices is not None
    assert found.status == "optimal"
    rounding_s = (len(program.wiring.nodes) + len(program.wiring.tables)) / PER_S
    assert found.bound == found.cost
    assert found.cost / PER_S == pytest.approx(cheapest(program), abs=rounding_s)
    assert promised_s(program, program.choices(found.choices)) == pytest.approx(found.cost / PER_S, abs=rounding_s)


@FEW
@given(steps(), st.sampled_from(MESHES))
def test_what_is_found_is_the_best_of_all_priced_exactly(step: Step, where: tuple[str, dict[str, int]]) -> None:
    program = small(step, where, LARGEST_PRICED)
    found = program.solve()
    prices = [exact_of(program, choices).estimate.step_time_s for choices in possible(program)]
    assert found.layouts is not None
    assert found.floor_s <= found.bound_s <= found.objective_s == min(prices)
    assert program.solve() == found


@FEW
@given(steps(), st.sampled_from(MESHES))
def test_without_pricing_all_nothing_better_than_the_best_is_said(
    step: Step, where: tuple[str, dict[str, int]]
) -> None:
    program = small(step, where, LARGEST_PRICED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "WAYS", 0)
        found = program.solve()
        again = program.solve()
    prices = [exact_of(program, choices).estimate.step_time_s for choices in possible(program)]
    assert found.layouts is not None
    assert min(prices) <= found.objective_s <= max(prices)
    assert found.floor_s <= found.bound_s <= found.objective_s
    assert again == found


@FEW
@given(steps(), st.sampled_from(MESHES), st.data())
def test_pins_hold_and_the_rest_is_best(step: Step, where: tuple[str, dict[str, int]], data: st.DataObject) -> None:
    graph, _ = step
    free = small(step, where)
    ops = {op.origin.value: op.results[0] for op in graph.ops if op.origin.value and graph.shape(op.results[0])}
    named = {**dict(zip(graph.names, graph.arguments, strict=True)), **ops}
    path = data.draw(st.sampled_from(sorted(named)))
    layout = data.draw(st.sampled_from(list(shardings(graph.shape(named[path]), where[1]))))
    program = small(step, where, pins={path: layout})
    found = program.solve()
    assert found.layouts is not None
    inside = {v for k in program.wiring.levels[0].program.kernels for v in (*k.reads, *k.writes)}
    if named[path] in inside:
        assert found.layouts[path] == layout
    if path in graph.names:  # what is computed may be made whole and cut to what is pinned: without a pin it is not
        assert cheapest(program) >= cheapest(free) - 1e-12


KINDS_OF_PIN: list[tuple[str, Sharding]] = [
    (path, layout) for path in ("a0", "a1", "out/0", "ops/dot_general.0") for layout in LAYOUTS
]


@pytest.mark.parametrize(("path", "layout"), some(KINDS_OF_PIN, of=3))
def test_each_kind_of_pin_is_kept(path: str, layout: Sharding) -> None:
    drawing = Drawing()
    a, b = drawing.arg(512, 4096), drawing.arg(4096, 1024)
    made = drawing.dot(a, b)
    graph = drawing.graph(drawing.dot(made, drawing.arg(1024, 512)))
    found = program_of(graph, "v5e:2x2", {"x": 4}, pins={path: layout}).solve()
    assert found.layouts is not None
    assert found.layouts[path] == layout


def test_two_pins_at_once_are_kept() -> None:
    drawing = Drawing()
    a, b = drawing.arg(512, 4096), drawing.arg(4096, 1024)
    graph = drawing.graph(drawing.each("tanh", drawing.dot(a, b)))
    pins: dict[str, Sharding] = {"a0": ((), ("x",)), "out/0": (("y",), ("x",))}
    found = program_of(graph, "v5e:2x2", {"x": 2, "y": 2}, pins=pins).solve()
    assert found.layouts is not None
    assert {path: found.layouts[path] for path in pins} == pins


@pytest.mark.parametrize("path", ["ops/dot_general.0", "ops/transpose.1"])
def test_loose_pins_are_of_what_kernels_leave_in_memory_alone(path: str) -> None:
    """The product is turned in its own kernel, which only leaves what it becomes."""
    drawing = Drawing()
    graph = drawing.graph(drawing.turn(drawing.dot(drawing.arg(512, 4096), drawing.arg(4096, 1024))))
    where = ("v5e:2x2", {"x": 4})
    free, whole = program_of(graph, *where), ((), ())
    held, loose = (program_of(graph, *where, pins={path: whole}, loose=each) for each in (False, True))
    costs = [cheapest(program) for program in (free, held, loose)]
    assert costs[0] < costs[1]
    assert costs[2] == (costs[0] if path == "ops/dot_general.0" else costs[1])
    assert holds_inside(graph, [path], free.machine, Known()) == (path == "ops/dot_general.0")


def test_what_leaves_nothing_lies_in_no_way() -> None:
    """As what a step prints of its values: a call back to the host, which gives nothing."""
    drawing = Drawing()
    made = drawing.each("tanh", drawing.arg(512, 4096))
    graph = drawing.graph(made)
    call = Op(kind="custom_call", operands=(made,), results=(), attributes={"call_target_name": "callback"})
    found = program_of(replace(graph, ops=(*graph.ops, call)), "cpu:2", {"x": 2}).solve()
    assert found.layouts is not None
    assert found.objective_s == found.bound_s


def updated() -> Graph:
    """A weight's next value: ``w + x.T @ x``."""
    drawing = Drawing()
    w, x = drawing.arg(1024, 1024), drawing.arg(8192, 1024)
    return drawing.graph(drawing.each("add", w, drawing.dot(x, x, 0, 0)))


@pytest.mark.parametrize("pins", [{}, {"a0": ((), ("x",))}, {"a1": (("x",), ())}])
def test_state_comes_back_as_it_went_in(pins: dict[str, Sharding]) -> None:
    graph = updated()
    found = program_of(graph, "v5e:2x2", {"x": 4}, returned={"out/0": "a0"}, pins=pins).solve()
    assert found.layouts is not None
    assert found.layouts["out/0"] == found.layouts["a0"]
    assert {path: found.layouts[path] for path in pins} == pins


def test_a_result_that_is_pinned_comes_back_as_the_pin_says() -> None:
    pins: dict[str, Sharding] = {"a0": ((), ("x",)), "out/0": (("x",), ())}
    found = program_of(updated(), "v5e:2x2", {"x": 4}, returned={"out/0": "a0"}, pins=pins).solve()
    assert found.layouts is not None
    assert {path: found.layouts[path] for path in pins} == pins


@FEW
@given(steps(), st.sampled_from(MESHES), st.floats(0, 1), st.booleans())
def test_under_a_limit_the_best_that_fits_is_found_or_it_is_proven_that_nothing_does(
    step: Step, where: tuple[str, dict[str, int]], share: float, all_priced: bool
) -> None:
    """Where not all are priced nothing may be found and nothing proven."""
    free = small(step, where, LARGEST_PRICED)
    prices = [exact_of(free, choices).estimate for choices in possible(free)]
    peaks = [price.peak_bytes for price in prices]
    limit = int(min(peaks) * 0.9 + share * (max(peaks) - min(peaks) * 0.9)) + 1
    with pytest.MonkeyPatch.context() as patch:
        if not all_priced:
            patch.setattr(rounds, "WAYS", 0)
        found = small(step, where, LARGEST_PRICED, limit_bytes=limit).solve()
    fitting = [price.step_time_s for price in prices if price.peak_bytes <= limit]
    assert found.status != "infeasible" or not fitting
    if found.layouts is not None:
        assert found.peak_bytes <= limit
        assert found.objective_s >= min(fitting)
        assert found.bound_s <= found.objective_s
    if all_priced:
        assert found.status == ("optimal" if fitting else "infeasible")
        assert found.objective_s == min(fitting, default=math.inf)


@FEW
@given(steps(6), st.sampled_from(MESHES))
def test_no_strategy_takes_less_memory_than_its_rows_say(step: Step, where: tuple[str, dict[str, int]]) -> None:
    check_rows(small(step, where, LARGEST_PRICED))


def test_what_a_result_is_the_transpose_of_may_lie_where_that_does() -> None:
    drawing = Drawing()
    given = drawing.arg(64, 512)
    made = drawing.dot(given, given, 0, 0)
    graph = drawing.graph(drawing.dot(made, made, 0, 0), drawing.turn(made))
    check_rows(program_of(graph, "v3:2x2", {"x": 8}))


def test_a_product_that_is_added_to_what_it_multiplies_takes_no_memory_of_its_own() -> None:
    """It is a kernel of its own in the program alone, which may lay it out otherwise than what follows."""
    drawing = Drawing()
    given = drawing.arg(64, 64)
    made = drawing.dot(given, given, 0, 0)
    graph = drawing.graph(drawing.each("add", drawing.each("tanh", drawing.each("negate", given)), made))
    check_rows(program_of(graph, "cpu:2", {"x": 2}))


def check_rows(program: Program) -> None:
    each = possible(program)
    for choices in random.Random(0).sample(each, min(len(each), SAMPLED)):
        peak = exact_of(program, choices).estimate.peak_bytes
        for sure in (False, True):
            rows = program.problem(peak, nothing(program), guess=False, sure=sure)
            assert (used_by(usage_of(rows), np.array(choices)[program.deciders]) <= rows.limits).all()


@FEW
@given(steps(), st.sampled_from(MESHES), st.data())
def test_a_row_of_what_did_not_fit_is_gone_beyond_by_that_alone_and_by_as_much(
    step: Step, where: tuple[str, dict[str, int]], data: st.DataObject
) -> None:
    program = small(step, where, LARGEST_PRICED)
    choices = data.draw(st.sampled_from(list(strategies(program))))
    took = exact_of(program, choices)
    peak, limit = took.estimate.peak_bytes, data.draw(st.integers(1, took.estimate.peak_bytes))
    misfit = Misfit(peak_bytes=peak, held_bytes=took.held_bytes)
    row, hopeful = (misfit_row(program.wiring, choices, misfit, limit, hopeful=h) for h in (False, True))
    for each in (row, hopeful):
        assert sum(int(own[choices[node]]) for node, own in each.usages) - each.limit_bytes == peak - limit
    for other in strategies(program):
        used, least = (sum(int(own[other[node]]) for node, own in each.usages) for each in (row, hopeful))
        assert used - row.limit_bytes >= least - hopeful.limit_bytes


def blocks(count: int, scale: int = 1) -> Graph:
    """Layers of two products each, alike but for the turn."""
    drawing = Drawing()
    x = drawing.arg(4096 * scale, 512 * scale)
    for turn in range(count):
        up, down = drawing.arg(512 * scale, 2048 * scale), drawing.arg(2048 * scale, 512 * scale)
        drawing.block(turn)
        x = drawing.dot(drawing.each("tanh", drawing.dot(x, up)), down)
    return drawing.graph(x)


def test_repeated_blocks_share_one_decision_and_are_all_counted() -> None:
    program = program_of(blocks(8), "v5e:2x2", {"x": 2, "y": 2})
    shared = [number for number in program.deciders if np.count_nonzero(program.leader == number) >= FEWEST]
    assert shared
    found = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert found.choices is not None
    choices = program.choices(found.choices)
    assert all(choices[number] == choices[leader] for number, leader in enumerate(program.leader))
    several = len(program.wiring.nodes) + len(program.wiring.tables)
    assert promised_s(program, choices) == pytest.approx(found.cost / PER_S, abs=several / PER_S)


def test_sharing_decisions_costs_next_to_nothing() -> None:
    """What is shared is at most as good as what is free, and with blocks alike no worse."""
    program = program_of(blocks(7), "v5e:2x2", {"x": 2, "y": 2})
    assert list(program.leader) != list(range(len(program.leader)))
    shared = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    program.leader = np.arange(len(program.leader))
    free = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert free.cost <= shared.cost <= free.cost * 1.01


def test_few_repetitions_are_decided_one_by_one() -> None:
    program = program_of(blocks(FEWEST - 1), "v5e:2x2", {"x": 4})
    assert list(program.leader) == list(range(len(program.leader)))


@pytest.mark.parametrize("seed", [0, 1])
def test_a_seed_gives_one_answer(seed: int) -> None:
    graph = blocks(4)
    one, other = (program_of(graph, "v5e:2x2", {"x": 2, "y": 2}).solve(seed=seed) for _ in range(2))
    assert one == other


def test_what_is_found_is_what_the_laid_out_step_costs() -> None:
    """Of values too large for near memory: what is kept there is known only of the whole step."""
    program = program_of(blocks(2, scale=8), "v5e:2x2", {"x": 2, "y": 2})
    found = program.solve(time_limit_s=60)
    promised, took = promised_s(program, found.choices), exact_of(program, found.choices).estimate.step_time_s
    assert took == found.objective_s
    assert promised == pytest.approx(took, rel=0.01)


def test_every_operation_of_the_laid_out_step_reads_what_it_asked_for() -> None:
    program = program_of(blocks(2), "v5e:2x2", {"x": 2, "y": 2})
    for choices in list(zip(strategies(program), range(20), strict=False)):
        laid = laid_out_step(program.wiring, choices[0], label=lambda node, _: Origin(source=str(node)))
        for op in laid.ops:
            assert all(laid.values[value].sharding is not None for value in (*op.operands, *op.results))


@pytest.mark.parametrize("cutoff", [0.5, 2.0])
def test_nothing_above_the_cutoff_is_worth_finding(cutoff: float) -> None:
    graph = blocks(2)
    best = program_of(graph, "v5e:2x2", {"x": 4}).solve()
    found = program_of(graph, "v5e:2x2", {"x": 4}).solve(cutoff_s=cutoff * best.objective_s)
    assert found.bound_s <= best.objective_s * (1 + 1e-9)
    assert cutoff < 1 or math.isclose(found.objective_s, best.objective_s)


def first_gradient() -> Graph:
    """``w - x.T @ g``, which differentiating writes: the gradient of what multiplies an argument of the step."""
    drawing = Drawing()
    w, x = drawing.arg(2048, 4096), drawing.arg(256, 2048)
    graph = drawing.graph(drawing.each("subtract", w, drawing.dot(x, drawing.arg(256, 4096), 0, 0)))
    ops = [replace(op, origin=replace(op.origin, scope="transpose(jvp())")) for op in graph.ops]
    return replace(graph, ops=tuple(ops))


def without_scopes(graph: Graph) -> Graph:
    return replace(graph, ops=tuple(replace(op, origin=replace(op.origin, scope=None)) for op in graph.ops))


@pytest.mark.parametrize(("topology", "is_copied"), [("v6e:2x2", True), ("v5e:2x2", False)])
def test_an_update_by_a_gradient_that_lies_transposed_takes_copies(topology: str, is_copied: bool) -> None:
    """Where matrix units are wide, and where it is a kernel of its own: the gradient lies otherwise than the weight."""
    graph = first_gradient()
    one, other = (program_of(each, topology, {"x": 4}).wiring for each in (graph, without_scopes(graph)))
    product, update = (number for number, node in enumerate(one.nodes) if node.stems is not None)
    known, plain = (wiring.tables[product, update] for wiring in (one, other))
    (made,) = set(one.nodes[product].layouts) & set(one.nodes[update].layouts)
    layouts = [one.nodes[number].layouts[made] for number in (product, update)]
    apart = np.array([[a != b for b in layouts[1]] for a in layouts[0]])
    assert apart.any()
    assert ((known > plain)[apart]).all() == is_copied
    assert (known == plain)[~apart].all()


def one_operation() -> Graph:
    drawing = Drawing()
    return drawing.graph(drawing.each("tanh", drawing.arg(4096, 4096)))


def two_products() -> Graph:
    drawing = Drawing()
    a, b = drawing.arg(512, 64), drawing.arg(512, 4096)
    return drawing.graph(drawing.dot(a, a, 0, 0), drawing.dot(a, b, 0, 0))


KNOWN = {
    "a slice comes free with a kernel of one operation": (one_operation, "v5e:2x2", {"x": 4}),
    "what one combination misses is learnt of others": (two_products, "v5e:1x2", {"x": 2}),
}


@pytest.mark.parametrize("name", KNOWN)
def test_no_strategy_is_below_the_bound(name: str) -> None:
    graph, *where = KNOWN[name]
    program = program_of(graph(), *where)
    each = list(strategies(program))
    some = random.Random(0).sample(each, min(len(each), LARGEST // 4))
    best = min(exact_of(program, choices).estimate.step_time_s for choices in some)
    assert program.solve().bound_s <= best * (1 + 1e-6)


def test_what_is_only_rounded_for_a_reader_lies_under_its_path_as_it_is_made() -> None:
    """The rounding has the path of what it rounds; a plan that names that lays out what is rounded."""
    drawing = Drawing()
    made = drawing.dot(drawing.arg(4, 4), drawing.arg(4, 4))
    drawing.dtype = "bf16"
    rounded = drawing.each("convert", made)
    drawing.ops[-1] = replace(drawing.ops[-1], origin=drawing.ops[-2].origin)
    graph = drawing.graph(drawing.turn(made), drawing.dot(rounded, drawing.arg(4, 4)))
    program = program_of(graph, "v3:1x1", {"x": 2})
    (level,), differ = program.wiring.levels, 0
    first, again = (value for op in level.graph.ops for value, path in op.named if path == "ops/dot_general.0")
    for choices in strategies(program):
        layouts = laid_out(program.wiring, level, choices).layouts
        assert named_layouts(program.wiring, choices)["ops/dot_general.0"] == layouts[first]
        differ += layouts[first] != layouts[again]
    assert differ


def test_what_blocks_share_a_path_for_is_named_as_most_of_them_have_it() -> None:
    """Blocks computed anew share their values' paths; one of several stands for more of them."""
    drawing = Drawing()
    x, often = drawing.arg(4, 4), (1, 3, 1)
    for repeats in often:
        x = drawing.dot(x, drawing.arg(4, 4))
        drawing.ops[-1] = replace(drawing.ops[-1], origin=Origin(value="ops/dot_general.0", repeats=repeats))
    program = program_of(drawing.graph(x), "v3:1x1", {"x": 2})
    (level,), drawn, read = program.wiring.levels, np.random.default_rng(0), set[bool]()
    for _ in range(50):
        choices = [int(drawn.integers(len(node.costs))) for node in program.wiring.nodes]
        solved, named = laid_out(program.wiring, level, choices), named_layouts(program.wiring, choices)
        most = next(number for number, op in enumerate(level.graph.ops) if op.origin.repeats == max(often))
        op = level.graph.ops[most]
        assert named["ops/dot_general.0"] == solved.layouts[op.results[0]]
        assert named.get("ops/dot_general.0.in0") == solved.wanted.get((most, op.operands[0]))
        read.add((most, op.operands[0]) in solved.wanted)
    assert len(read) > 1


def test_alike_kernels_are_worked_out_once_whichever_reads_first_what_is_filled() -> None:
    """The first of several kernels that read what is filled with a number may read something else before."""
    half, ops = Value((), "f32"), list[Op]()
    matrix = Value((64, 64), "f32")

    def say(kind: str, operands: tuple[int, ...], result: int, turn: str = "") -> None:
        ops.append(Op(kind=kind, operands=operands, results=(result,), origin=Origin(value=f"ops/{kind}.0{turn}")))

    say("multiply", (0, 0), 3, "/0")
    say("broadcast_in_dim", (2,), 4)
    say("add", (3, 4), 5, "/0")
    say("multiply", (1, 1), 6, "/1")
    say("add", (6, 4), 7, "/1")
    values = tuple(half if number == 2 else matrix for number in range(8))
    graph = Graph(values=values, ops=tuple(ops), arguments=(0, 1, 2), results=(5, 7))
    first = Kernel(ops=(0, 1, 2), reads=(0, 2), writes=(5,))
    other = Kernel(ops=(1, 3, 4), reads=(1, 2), writes=(7,))
    names = set()
    for kernel in (first, other):
        ordered = in_order_of_use(graph, kernel.ops)
        assert sorted(ordered) == sorted(kernel.ops)
        names.add(name_of(kernel_graph(graph, replace(kernel, ops=ordered))[0]))
    assert len(names) == 1
    assert stems(graph, first) == stems(graph, other)
