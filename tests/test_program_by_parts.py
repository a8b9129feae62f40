"""Meshes of three axes, solved in parts: what parts may choose, that all choices have the last word, and who hears."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from extent import examples
from hypothesis import given, settings
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.plan import Axis, Mesh
from meshwright.planner.graph import Graph, Sharding
from meshwright.planner.program import Known, Program, build, by_parts
from meshwright.planner.program.pricing.choices import Bundled, Choice, Near, choices
from meshwright.planner.program.solving.found import Found
from meshwright.planner.program.solving.solutions import ENOUGH
from meshwright.planner.topology import physical
from small_graphs import Drawing, program_of, steps

SIZES = {"x": 2, "y": 2, "z": 2}
MESH = Mesh(axes=tuple(Axis(name=name, size=size) for name, size in SIZES.items()))
WHERE = ("v3:2x2", SIZES)
FEW = settings(max_examples=examples(2, 20), deadline=None)
Step = tuple[Graph, dict[str, str]]


def layers() -> Graph:
    """Two layers with a sum between, in sizes that every axis divides."""
    drawing = Drawing()
    hidden = drawing.dot(drawing.arg(256, 64), drawing.arg(64, 512))
    return drawing.graph(drawing.dot(drawing.each("exponential", hidden), drawing.arg(512, 64)))


def solve_by_parts(make: by_parts.Make, mesh: Mesh, *, time_limit_s: float, **options: Any) -> Found:
    return by_parts.Parts(make=make, deadline=time.monotonic() + time_limit_s, **options).solve(mesh)


def making(graph: Graph, made: list[tuple[by_parts.Asked, Program]], **options: Any) -> by_parts.Make:
    """Builds programs of a graph, which are noted with what was asked for."""
    known = Known()
    graph = replace(graph, mesh=SIZES)

    def make(among: by_parts.Asked, before: Program | None) -> Program:
        program = build(
            graph, MESH, physical(parse_topology(WHERE[0])), known=known, among=among, before=before, **options
        )
        made.append((among, program))
        return program

    return make


def num_choices(program: Program) -> int:
    return sum(len(node.costs) for node in program.wiring.nodes)


def every_choice(program: Program) -> Iterator[tuple[list[Choice], Any]]:
    """Of each kernel all of its choices, and its loop nest."""
    wiring = program.wiring
    for level in wiring.levels:
        for kernel in level.program.kernels:
            blueprint, _ = wiring.strategies.known.blueprint(level.graph, kernel)
            yield list(choices(blueprint.nest, SIZES)), blueprint.nest


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are looked at however few choices there are."""
    monkeypatch.setattr(by_parts, "FEW_CHOICES", 0)


def test_axes_in_a_bundle_split_alike() -> None:
    for every, nest in every_choice(program_of(layers(), *WHERE)):
        bundled = list(choices(nest, SIZES, Bundled(((0, 2), (1,)))))
        assert bundled == [choice for choice in every if choice.splits[0] == choice.splits[2]]
        assert 1 < len(bundled) < len(every)


def test_near_choices_differ_in_what_one_axis_splits() -> None:
    for every, nest in every_choice(program_of(layers(), *WHERE)):
        middle = every[-1]
        near = list(choices(nest, SIZES, Near((middle.splits,))))
        differ = {choice: sum(a != b for a, b in zip(choice.splits, middle.splits, strict=True)) for choice in every}
        assert sorted(near, key=repr) == sorted((choice for choice in every if differ[choice] < 2), key=repr)
        assert middle in near


def test_axes_are_bundled_as_one_then_in_every_way_into_two_neighbours_first() -> None:
    one, *bundles = by_parts._bundles(3)
    assert one == ((0, 1, 2),)
    assert [sorted(map(len, groups)) for groups in bundles] == [[1, 2]] * 3
    assert {frozenset(groups) for groups in bundles} == {
        frozenset({(0,), (1, 2)}),
        frozenset({(0, 1), (2,)}),
        frozenset({(0, 2), (1,)}),
    }
    assert set(bundles[-1]) == {(0, 2), (1,)}


@FEW
@given(steps(2))
def test_parts_find_what_all_choices_have_and_prove_no_more(step: Step) -> None:
    graph, returned = step
    whole = program_of(graph, *WHERE, returned=returned).solve()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_parts, "FEW_CHOICES", 0)
        found = solve_by_parts(making(graph, [], returned=returned), MESH, time_limit_s=120)
    bundled = [
        program_of(graph, *WHERE, returned=returned, among=Bundled(groups)).solve() for groups in by_parts._bundles(3)
    ]
    assert found.layouts is not None
    assert found.floor_s <= found.bound_s <= found.objective_s
    assert found.bound_s <= whole.objective_s * (1 + ENOUGH)
    assert whole.bound_s * (1 - ENOUGH) <= found.objective_s <= min(each.objective_s for each in bundled)


@pytest.mark.parametrize("returned", [{"out/0": "a0"}, {"out/1": "a0"}, {"out/0": "a1", "out/1": "a0"}])
def test_a_product_of_a_value_whose_next_one_it_makes_shares_it_with_others(
    always: None, returned: dict[str, str]
) -> None:
    """It does not read it as it lies, as an update does: it has what is gathered for the other product."""
    drawing = Drawing()
    first, second = drawing.arg(512, 512), drawing.arg(512, 512)
    graph = drawing.graph(drawing.dot(first, second, 0), drawing.dot(first, first))
    whole = program_of(graph, *WHERE, returned=returned).solve()
    found = solve_by_parts(making(graph, [], returned=returned), MESH, time_limit_s=120)
    assert whole.status == "optimal"
    assert found.objective_s == pytest.approx(whole.objective_s, rel=ENOUGH)
    assert found.bound_s <= whole.objective_s


def test_what_parts_find_by_looking_beside_is_no_proof(always: None) -> None:
    """The program says more of the best than it takes: others may take as much less."""
    made: list[tuple[by_parts.Asked, Program]] = []
    found = solve_by_parts(making(layers(), made), MESH, time_limit_s=120)
    whole = made[-1][1].solve()
    assert made[-1][0] is None
    assert found.objective_s == whole.objective_s
    assert found.bound_s <= whole.bound_s


def test_who_listens_hears_of_parts_that_are_better_and_better(always: None) -> None:
    heard: list[tuple[float, dict[str, Sharding]]] = []
    made: list[tuple[by_parts.Asked, Program]] = []
    found = solve_by_parts(
        making(layers(), made), MESH, time_limit_s=120, tell=lambda s, layouts: heard.append((s, dict(layouts)))
    )
    seconds = [each for each, _ in heard]
    assert seconds
    assert seconds == sorted(seconds, reverse=True)
    assert found.objective_s <= seconds[-1]
    asked = [each for each, _ in made]
    assert [type(each) for each in asked[:4]] == [Bundled] * 4
    assert isinstance(asked[4], dict)
    assert asked[-1] is None
    one, two, near, whole = (num_choices(made[place][1]) for place in (0, 1, 4, -1))
    assert one < two < whole
    assert near < whole


def test_a_part_that_was_found_is_the_answer_when_the_time_ends_and_proves_nothing(always: None) -> None:
    heard: list[float] = []
    made: list[tuple[by_parts.Asked, Program]] = []
    found = solve_by_parts(
        making(layers(), made),
        MESH,
        time_limit_s=120,
        stop=lambda: bool(heard),
        tell=lambda seconds, _: heard.append(seconds),
    )
    assert len(made) == 1
    assert found.layouts is not None
    assert found.objective_s <= heard[0]
    assert (found.status, found.bound_s, found.floor_s) == ("feasible", 0.0, 0.0)


def test_nothing_more_is_built_once_the_search_is_to_stop(always: None) -> None:
    made: list[tuple[by_parts.Asked, Program]] = []
    found = solve_by_parts(making(layers(), made), MESH, time_limit_s=120, stop=lambda: True)
    assert not made
    assert (found.status, found.layouts, found.bound_s) == ("unknown", None, 0.0)


def test_what_fits_nowhere_is_proven_of_all_choices_and_what_takes_least_is_kept(always: None) -> None:
    made: list[tuple[by_parts.Asked, Program]] = []
    found = solve_by_parts(making(layers(), made, limit_bytes=1000), MESH, time_limit_s=120)
    whole = made[-1][1].solve()
    assert (found.status, found.layouts) == (whole.status, None)
    assert found.status == "infeasible"
    assert found.least
    assert 1000 < found.peak_bytes <= whole.peak_bytes


def test_nothing_is_looked_at_above_a_cutoff(always: None) -> None:
    made: list[tuple[by_parts.Asked, Program]] = []
    least_s = program_of(layers(), *WHERE).solve().objective_s
    found = solve_by_parts(making(layers(), made), MESH, time_limit_s=120, cutoff_s=least_s / 2)
    assert found.layouts is None
    assert found.bound_s <= least_s


def test_few_choices_are_looked_at_at_once_after_one_part() -> None:
    made: list[tuple[by_parts.Asked, Program]] = []
    found = solve_by_parts(making(layers(), made), MESH, time_limit_s=120)
    assert [among for among, _ in made] == [Bundled(((0, 1, 2),)), None]
    assert found.objective_s < math.inf


@pytest.mark.parametrize("mesh", [{"x": 8}, {"x": 4, "y": 2}, {"x": 4, "y": 2, "z": 1}])
def test_meshes_of_two_axes_are_solved_as_they_are(mesh: dict[str, int]) -> None:
    asked: list[by_parts.Asked] = []

    def make(among: by_parts.Asked, before: Program | None) -> Program:
        asked.append(among)
        return program_of(layers(), "v3:2x2", mesh, among=among, before=before)

    axes = tuple(Axis(name=name, size=size) for name, size in mesh.items())
    assert solve_by_parts(make, Mesh(axes=axes), time_limit_s=120).layouts is not None
    assert asked == [None]


@pytest.mark.parametrize(("part", "is_enough"), [(1.0, True), (0.5, False)])
def test_many_choices_are_bounded_before_they_are_all_looked_at(always: None, part: float, is_enough: bool) -> None:
    made: list[tuple[by_parts.Asked, Program]] = []
    asked: list[tuple[float, float]] = []
    best_s = solve_by_parts(making(layers(), []), MESH, time_limit_s=120).objective_s

    def bound(cutoff_s: float, left_s: float) -> Found:
        asked.append((cutoff_s, left_s))
        return Found(status="unknown", objective_s=math.inf, bound_s=part * cutoff_s, floor_s=part * cutoff_s)

    found = solve_by_parts(making(layers(), made), MESH, time_limit_s=120, bound=bound)
    (cutoff_s, left_s), *others = asked
    assert not others
    assert best_s * (1 - ENOUGH) <= cutoff_s < math.inf
    assert 0 < left_s < 120
    assert (None in [among for among, _ in made]) is not is_enough
    assert found.status == "optimal" or not is_enough
    assert found.objective_s == pytest.approx(best_s, rel=ENOUGH)


def test_of_two_bounds_the_better_holds_within_what_was_found() -> None:
    whole = Found(status="feasible", objective_s=10.0, bound_s=4.0, floor_s=3.0, credit_s=1.0)
    known = Found(status="feasible", objective_s=12.0, bound_s=8.0, floor_s=8.0, credit_s=0.5)
    found = by_parts.bounded_by(whole, known)
    assert (found.status, found.objective_s, found.bound_s, found.floor_s, found.credit_s) == (
        "feasible",
        10.0,
        7.5,
        7.5,
        1.0,
    )
    above = replace(known, bound_s=12.0, floor_s=12.0)
    assert by_parts.bounded_by(whole, above).bound_s == 10.0
    assert by_parts.bounded_by(whole, above).status == "optimal"


def test_what_took_long_to_bound_is_not_looked_at_choice_by_choice_where_the_time_would_end(
    always: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[by_parts.Asked, Program]] = []
    gone = [0.0]
    monkeypatch.setattr(by_parts, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + gone[0]))

    def bound(cutoff_s: float, left_s: float) -> Found:
        gone[0] += left_s / 2
        return Found(status="unknown", objective_s=math.inf, bound_s=cutoff_s / 2, floor_s=cutoff_s / 2)

    found = solve_by_parts(making(layers(), made), MESH, time_limit_s=600, bound=bound)
    assert made
    assert None not in [among for among, _ in made]
    assert 0 < found.bound_s < found.objective_s
