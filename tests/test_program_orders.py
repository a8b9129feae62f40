"""The orders in which axes of one dim are named: which a plan may keep to, which are alike, what is proven of all."""

from __future__ import annotations

import math
from itertools import permutations
from types import SimpleNamespace
from typing import Any
from unittest import mock

import meshwright as mw
import pytest
from in_process import search
from meshwright.dsl.machine import parse_topology
from meshwright.planner.estimate.traffic import tariff
from meshwright.planner.program import in_orders
from meshwright.planner.program.in_orders import Orders, both, orders, told_apart
from meshwright.planner.program.pricing.choices import choices
from meshwright.planner.program.solving.found import Found
from meshwright.planner.topology import physical
from small_graphs import Drawing, mesh_of
from small_graphs import program_of as program_of_graph
from small_steps import mlp, program_of

STEP = mlp(2048, 512, 2048, layers=1)
TOPOLOGY, MESH = "v5e:2x4", {"a": 4, "b": 2}


def test_a_plan_names_axes_in_the_order_in_which_it_takes_least_and_no_order_takes_less_than_the_bound() -> None:
    found = search(*STEP, topology=TOPOLOGY, mesh=MESH, ask_compiler=False)
    in_mesh_order = program_of(STEP, TOPOLOGY, "{a: 4, b: 2}").solve()
    assert found.plan is not None
    assert found.step_time_s is not None
    assert found.step_time_s < in_mesh_order.bound_s
    assert found.bound_s is not None
    assert found.bound_s <= found.step_time_s
    text = mw.dumps(found.plan)
    assert "b+a" in text
    assert "a+b" not in text
    assert mw.estimate(found.plan, *STEP).step_time_s == pytest.approx(found.step_time_s)


def test_a_pinned_order_is_that_of_the_plan() -> None:
    plan = mw.loads(
        "meshwright: 1\ntopology: v5e:2x4\nmesh: {a: 4, b: 2}\ntensors:\n  batch: _@a+b _\n  '**': auto\n".replace(
            "batch", "x"
        )
    )
    step, args = STEP
    found = search(lambda x, params: step(params, x), (args[1], args[0]), plan=plan, ask_compiler=False)
    assert found.plan is not None
    assert "b+a" not in mw.dumps(found.plan)


@pytest.mark.parametrize(
    ("layouts", "expected"),
    [
        ([], list(permutations("abc"))),
        ([((), ("a",)), (("c",), ("b",))], list(permutations("abc"))),
        ([(("c", "b"), ())], [("a", "c", "b"), ("c", "a", "b"), ("c", "b", "a"), ("a", "b", "c")]),
        ([(("a", "b"), ()), (("b", "c"),)], [("a", "b", "c")]),
        ([(("a", "b"), ()), (("b", "a"),)], [("a", "b", "c")]),
        ([(("a", "part of b"),)], list(permutations("abc"))),
    ],
)
def test_orders_are_those_of_pins_and_the_mesh_s_in_which_others_are_put(
    layouts: list[tuple[tuple[str, ...], ...]], expected: list[tuple[str, ...]]
) -> None:
    assert list(orders(("a", "b", "c"), layouts)) == expected


@pytest.mark.parametrize(
    ("topology", "mesh", "expected"),
    [
        ("v5e:4x4", {"a": 4, "b": 4}, 0),
        ("v5e:4x4", {"a": 2, "b": 8}, 1),
        ("v3:2x2", {"a": 4, "b": 2}, 1),
        ("h100:8", {"a": 2, "b": 2, "c": 2}, 0),
        ("h100:8", {"a": 4, "b": 2}, 1),
    ],
)
def test_axes_along_which_all_takes_as_long_change_places_for_nothing(
    topology: str, mesh: dict[str, int], expected: int
) -> None:
    first, *others = permutations(mesh)
    prices = tariff(mesh_of(mesh), physical(parse_topology(topology)), {})
    assert len(list(told_apart(first, others, prices))) == expected


@pytest.mark.parametrize(("mesh", "expected"), [({"a": 4, "b": 4}, [100.0]), ({"a": 2, "b": 8}, [70.0, 100.0])])
def test_an_order_leaves_time_for_others_where_these_differ(
    monkeypatch: pytest.MonkeyPatch, mesh: dict[str, int], expected: list[float]
) -> None:
    deadlines = []

    def parts(deadline: float, **_: Any) -> Any:
        deadlines.append(deadline)
        return SimpleNamespace(solve=lambda mesh: _found(10.0, 10.0), program=None)

    monkeypatch.setattr(in_orders, "Parts", parts)
    monkeypatch.setattr(in_orders, "time", SimpleNamespace(monotonic=lambda: 0.0))
    Orders(
        make=mock.Mock(),
        graph=Drawing().graph(),
        mesh=mesh_of(mesh),
        machine=physical(parse_topology("v5e:4x4")),
        pins={},
        time_limit_s=100.0,
    ).solve()
    assert deadlines == expected


@pytest.mark.parametrize(
    ("of_first_s", "of_every_s", "expected"),
    [(10.0, 9.9, ("feasible", 9.9)), (10.0, 10.0, ("optimal", 10.0)), (9.5, 9.9, ("feasible", 9.9))],
)
def test_orders_that_there_is_no_time_for_are_bounded_by_what_is_known_of_every_order(
    monkeypatch: pytest.MonkeyPatch, of_first_s: float, of_every_s: float, expected: tuple[str, float]
) -> None:
    """All three of the orders' times are one clock's: the first takes most of what there is, the second the rest."""
    clock = SimpleNamespace(now=0.0, solved=0)

    def solve(mesh: Any) -> Found:
        clock.now, clock.solved = clock.now + 60.0, clock.solved + 1
        return _found(10.0, of_first_s) if clock.solved == 1 else _found(math.inf, 0.0)

    monkeypatch.setattr(in_orders, "Parts", lambda **_: SimpleNamespace(solve=solve, program=None))
    monkeypatch.setattr(in_orders, "time", SimpleNamespace(monotonic=lambda: clock.now))
    found = Orders(
        make=mock.Mock(),
        graph=Drawing().graph(),
        mesh=mesh_of({"a": 2, "b": 8}),
        machine=physical(parse_topology("v5e:4x4")),
        pins={},
        time_limit_s=100.0,
        bound=lambda cutoff_s, left_s: _found(math.inf, min(of_every_s, cutoff_s)),
    ).solve()
    assert (found.status, found.bound_s) == expected
    assert clock.solved == (1 if expected[0] == "optimal" else 2)


def test_choices_split_alike_in_every_order() -> None:
    drawing = Drawing()
    program = program_of_graph(drawing.graph(drawing.dot(drawing.arg(64, 64), drawing.arg(64, 64))), TOPOLOGY, MESH)
    level = program.wiring.levels[0]
    blueprint, _ = program.wiring.strategies.known.blueprint(level.graph, level.program.kernels[0])
    one, other = (list(choices(blueprint.nest, MESH, order=order)) for order in (None, ("b", "a")))
    assert [each.splits for each in one] == [each.splits for each in other]
    assert all(("b", "a") not in layout for each in one for layout in each.layouts)
    assert [tuple(tuple(axes[::-1] for axes in layout) for layout in each.layouts) for each in one] == [
        each.layouts for each in other
    ]


def _found(objective_s: float, bound_s: float, credit_s: float = 0.0) -> Found:
    layouts: dict[str, Any] = {} if objective_s < math.inf else None
    return Found(status="unknown", objective_s=objective_s, bound_s=bound_s, credit_s=credit_s, layouts=layouts)


def test_of_two_orders_the_better_is_the_answer_and_the_lower_bound_holds() -> None:
    found = both(_found(10.0, 10.0), _found(9.0, 8.5))
    assert (found.status, found.objective_s, found.bound_s) == ("feasible", 9.0, 8.5)
    assert [each.seconds for each in found.runners_up] == [10.0]
    found = both(_found(10.0, 9.0), _found(12.0, 12.0))
    assert (found.status, found.objective_s, found.bound_s) == ("feasible", 10.0, 9.0)


def test_what_takes_no_less_in_another_order_is_proven() -> None:
    found = both(_found(10.0, 10.0), _found(math.inf, 10.0))
    assert (found.status, found.objective_s, found.bound_s) == ("optimal", 10.0, 10.0)
    assert both(_found(math.inf, 5.0), _found(math.inf, 6.0)).status == "unknown"


def test_what_plans_of_one_order_took_less_than_they_cost_those_of_another_may_as_well() -> None:
    assert both(_found(10.0, 9.0, credit_s=1.0), _found(math.inf, 10.5)).bound_s == 9.0
    assert both(_found(10.0, 9.0, credit_s=1.0), _found(math.inf, 9.5)).bound_s == 8.5
