"""Foldings of machines into meshes: how many there are, which are the same, which a plan's own mesh leaves."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from fake_search import GRAPH, FakeSolver, ask, by_axes
from meshwright.dsl.errors import PlanError
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.plan import Axis, Mesh, OverDim, Plan, Rule
from meshwright.dsl.reader import loads
from meshwright.dsl.tensors import Tensor
from meshwright.planner.device_order import device_numbers, mesh_problems
from meshwright.planner.network import network
from meshwright.planner.search.candidates import meshes
from meshwright.planner.search.floor import least_result_bytes, most_ways
from meshwright.planner.search.meshes import Folding, coarser, factorizations, filled, foldings, uncovered
from meshwright.planner.search.pins import pinned, pins
from meshwright.planner.topology import Machine, physical

TOPOLOGIES = ("cpu:8", "v5e:4x4", "v3:4x4", "2*v5e:4x4", "h100:8x2", "v3:32x32", "v5p:16x20x28", "4*v5e:16x16")


def machine(name: str) -> Machine:
    return physical(parse_topology(name))


def tensor(path: str, *shape: int) -> Tensor:
    return Tensor(path=path, shape=shape, dtype="float32", role="argument")


TENSORS = (tensor("params/w", 1024, 4096), tensor("params/e", 32, 1024, 64), tensor("batch/x", 96, 1024))


def plan_of(text: str) -> Plan:
    return loads(f"meshwright: 1\n{text}")


@pytest.mark.parametrize(
    ("name", "distinct", "finest"),
    [
        ("cpu:8", 3, 1),
        ("v5e:4x4", 9, 4),
        ("v3:4x4", 23, 14),
        ("2*v5e:4x4", 23, 14),
        ("h100:8x2", 6, 2),
        ("v3:32x32", 503, 464),
        ("v5p:16x20x28", 3776, 3600),
        ("cpu:1", 1, 1),
    ],
)
def test_how_many_meshes_there_are(name: str, distinct: int, finest: int) -> None:
    found = foldings(machine(name))
    assert (len(found), len(uncovered(machine(name), found))) == (distinct, finest)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_folding_is_a_legal_mesh_of_all_devices(name: str) -> None:
    place = machine(name)
    for folding in foldings(place)[::37]:
        mesh = folding.mesh(place)
        assert not mesh_problems(mesh, place)
        numbers = device_numbers(mesh, place)
        assert numbers.shape == folding.sizes
        assert sorted(numbers.ravel()) == list(range(place.num_devices))


@pytest.mark.parametrize("name", ["cpu:8", "v5e:4x4", "v3:4x4", "2*v5e:2x2", "h100:8x2"])
def test_no_two_foldings_have_the_same_groups(name: str) -> None:
    place = machine(name)
    seen = [_groups(folding, place) for folding in foldings(place)]
    assert len(set(seen)) == len(seen)


def _groups(folding: Folding, place: Machine) -> frozenset[object]:
    """For each axis the devices that its groups join."""
    numbers = device_numbers(folding.mesh(place), place)
    groups = []
    for axis in range(numbers.ndim):
        rows = np.moveaxis(numbers, axis, -1).reshape(-1, numbers.shape[axis])
        groups.append(frozenset(frozenset(row.tolist()) for row in rows))
    return frozenset(groups)


def test_a_covered_folding_has_groups_that_the_finer_one_has_together() -> None:
    place = machine("v3:4x4")
    for folding in uncovered(place, foldings(place)):
        net = network(folding.mesh(place), place)
        for coarse in coarser(folding):
            numbers = device_numbers(coarse.mesh(place), place)
            for axis, size in enumerate(coarse.sizes):
                rows = np.moveaxis(numbers, axis, -1).reshape(-1, size)
                together = [n for n in net.mesh if math.prod([size]) % net.mesh[n] == 0]
                assert any(_same(rows, net.groups(chosen)) for chosen in _subsets(together))


def _subsets(names: list[str]) -> list[tuple[str, ...]]:
    return [tuple(n for i, n in enumerate(names) if bits >> i & 1) for bits in range(1, 2 ** len(names))]


def _same(rows: np.ndarray, groups: np.ndarray) -> bool:
    return {frozenset(row.tolist()) for row in rows} == {frozenset(row.tolist()) for row in np.asarray(groups)}


def test_numbers_are_written_as_products_in_order() -> None:
    assert set(factorizations(4, 2)) == {(4, 1), (2, 2), (1, 4)}
    assert len(factorizations(32, 3)) == 21


def test_several_slices_are_tried_first_with_the_slow_network_as_an_axis_of_its_own() -> None:
    listed = meshes(Plan(mesh=Mesh(axes=None)), machine("2*v5e:4x4"), TENSORS).listed
    two = next(mesh for mesh in listed if len(mesh.axes or ()) == 2)
    three = next(mesh for mesh in listed if len(mesh.axes or ()) == 3)
    assert [[part.name for part in axis.over or ()] for axis in two.axes or ()] == [["slice"], ["x", "y"]]
    assert [[part.name for part in axis.over or ()] for axis in three.axes or ()] == [["slice"], ["x"], ["y"]]


def slow_axes(mesh: Mesh) -> set[str]:
    return {axis.name for axis in mesh.axes or () if any(part.name in ("slice", "node") for part in axis.over or ())}


@pytest.mark.parametrize(
    ("pin", "inner"),
    [
        ("params/w: _ H@q", "q"),
        ("out/w: _ H@q", "q"),
        ("acts/h: B _@q", "q"),
        ("params/w: _@q _, batch/x: B@d _", "q"),
        ("batch/x: B@q _", ""),
        ("acts/h: B@q _", ""),
    ],
)
@pytest.mark.parametrize("name", ["2*v5e:4x4", "h100:8x2"])
def test_axes_that_split_state_cross_the_slow_network_last(name: str, pin: str, inner: str) -> None:
    """What splits weights joins something in every step; what splits the batch alone joins gradients, once."""
    result = Tensor(path="out/w", shape=(1024, 4096), dtype="float32", role="result", returns="params/w")
    tagged = Tensor(path="acts/h", shape=(96, 4096), dtype="float32", role="tagged")
    listed = meshes(plan_of(f"mesh: auto\ntensors: {{{pin}}}"), machine(name), (*TENSORS, result, tagged)).listed
    crosses = [inner in slow_axes(mesh) for mesh in listed]
    assert crosses == sorted(crosses)
    assert any(crosses) == bool(inner)
    counts = [(cross, len(mesh.sizes)) for cross, mesh in zip(crosses, listed, strict=True)]
    assert counts == sorted(counts)


def test_of_named_meshes_each_number_of_axes_is_tried() -> None:
    """Where there are more than can be tried, none of the kinds takes all places; one axis alone does not divide."""
    found = meshes(plan_of("mesh: auto\ntensors: {params/e: E@expert ...}"), machine("v5p:16x20x28"), TENSORS)
    assert found.left_out > 0
    assert {len(mesh.sizes) for mesh in found.listed} == {2, 3}


def test_whole_dims_come_first_and_what_is_left_out_is_counted() -> None:
    found = meshes(Plan(mesh=Mesh(axes=None)), machine("v3:32x32"), TENSORS)
    assert [mesh.sizes for mesh in found.listed[:2]] == [{"x": 2048}, {"x": 1024, "y": 2}]
    assert {"x": 32, "y": 32, "z": 2} in [mesh.sizes for mesh in found.listed]
    assert found.distinct == found.covered + found.left_out + len(found.listed)
    assert found.left_out > 0


def test_a_given_mesh_is_the_only_one() -> None:
    plan = plan_of("mesh: {a: 4, b: {size: 8, over: [y, core]}}\ntopology: v3:4x4")
    assert meshes(plan, machine("v3:4x4"), TENSORS).listed == (plan.mesh,)


def test_a_hole_is_filled_and_the_rest_stays() -> None:
    plan = plan_of("mesh: {a: auto, b: 8}\ntopology: v3:4x4")
    found = meshes(plan, machine("v3:4x4"), TENSORS).listed
    assert len(found) == 3
    assert all(mesh.sizes == {"a": 4, "b": 8} and (mesh.axes or ())[1].over is None for mesh in found)


def test_dims_that_an_axis_is_said_to_lie_on_stay() -> None:
    axes = (Axis(name="a", size=None, over=(OverDim(name="core"),)), Axis(name="b", size=None))
    found = filled(machine("v3:4x4"), axes)
    assert {mesh.sizes["a"] for mesh in found} == {2}
    assert all((mesh.axes or ())[0].over == axes[0].over for mesh in found)


def test_axes_that_pins_name_are_in_every_mesh_and_divide() -> None:
    plan = plan_of("mesh: auto\ntensors: {params/e: E@expert ...}")
    found = meshes(plan, machine("v3:32x32"), TENSORS)
    assert found.impossible > 0
    assert all(32 % (mesh.sizes["expert"] or 0) == 0 for mesh in found.listed)


def test_a_pin_that_no_mesh_satisfies_is_named() -> None:
    plan = plan_of("mesh: {a: auto, b: auto}\ntensors: {params/e: E@a+b ..., params/w: replicate}")
    with pytest.raises(PlanError) as error:
        meshes(plan, machine("v5p:4x4x4"), TENSORS)
    assert [(found.code, found.numbers["pin"]) for found in error.value.problems] == [("MW551", "params/e")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{a: auto, b: 3}", "a: auto, b: 3"),
        ("{a: {size: 4, over: [x]}, b: auto}", "a: 4 over [x], b: auto"),
        (
            "{a: {size: auto, over: [x, core]}, b: {size: auto, over: [core]}}",
            "a: auto over [x, core], b: auto over [core]",
        ),
    ],
)
def test_axes_that_no_mesh_has_are_named(text: str, said: str) -> None:
    with pytest.raises(PlanError) as error:
        meshes(plan_of(f"mesh: {text}\ntensors: {{params/w: replicate}}"), machine("v3:2x2"), TENSORS)
    (found,) = error.value.problems
    assert (found.code, found.numbers["axes"], found.numbers["count"]) == ("MW576", said, 8)


def test_more_axes_than_a_machine_has_are_counted() -> None:
    plan = plan_of("mesh: auto\ntensors: {params/w: _@a+b+c+d _, params/e: replicate}")
    with pytest.raises(PlanError) as error:
        meshes(plan, machine("v3:2x2"), TENSORS)
    (found,) = error.value.problems
    assert (found.code, found.numbers["count"], found.numbers["most"]) == ("MW557", 4, 3)


def test_pins_that_exclude_each_other_are_named_together() -> None:
    plan = plan_of("mesh: {a: auto, b: auto}\ntensors: {params/e: E@a ..., batch/x: B@b ...}")
    with pytest.raises(PlanError) as error:
        meshes(plan, machine("v5p:16x16x16"), TENSORS)
    assert [found.code for found in error.value.problems] == ["MW552"]


def test_a_pin_that_does_not_divide_on_the_given_mesh_is_its_own_problem() -> None:
    plan = plan_of("topology: cpu:8\nmesh: {a: 8}\ntensors: {params/e: L E@a M, batch/x: B X@zz}")
    with pytest.raises(PlanError) as error:
        meshes(plan, machine("cpu:8"), (*TENSORS, tensor("params/odd", 3)))
    assert {found.code for found in error.value.problems} >= {"MW106"}


@pytest.mark.parametrize(("mesh", "code"), [("{a: 3, b: 2}", "MW210"), ("{a: 3, b: auto}", "MW211")])
def test_a_wrong_mesh_and_wrong_pins_are_told_at_once(mesh: str, code: str) -> None:
    plan = plan_of(f"topology: cpu:8\nmesh: {mesh}\ntensors: {{params/zz: replicate, batch/x: B X@c}}")
    with pytest.raises(PlanError) as error:
        meshes(plan, machine("cpu:8"), TENSORS)
    assert {found.code for found in error.value.problems} == {code, "MW101", "MW106"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("params/zz: E@a ...", "MW101"),
        ("params/zz: replicate", "MW101"),
        ("'**': auto, params/e: replicate", "MW102"),
        ("params/e: A B", "MW104"),
        ("params/w: like params/e", "MW115"),
        ("params/w: {shard: {device_assignment: [[0, 1], [2, 3]]}}", "MW113"),
    ],
)
def test_a_wrong_rule_is_said_on_whatever_mesh(text: str, code: str) -> None:
    """Whether it names an axis or not, and whether what it speaks of is left open or not."""
    for mesh in ("auto", "{a: auto, b: auto}"):
        plan = plan_of(f"mesh: {mesh}\ntensors: {{{text}}}")
        with pytest.raises(PlanError) as error:
            meshes(plan, machine("v5e:4x4"), TENSORS)
        assert [found.code for found in error.value.problems] == [code]


def test_what_is_pinned() -> None:
    text = "mesh: {a: 8}\ntensors: {params/e: E@a ..., params/w: auto, batch/**: infer}\nremat: full"
    plan = plan_of(text)
    found = pinned(plan, TENSORS)
    assert found.shardings == {"params/e": (("a",), (), ())}
    assert not found.complete
    assert pins(plan) == ("mesh", "params/e", "batch/**", "remat")


def test_rules_of_every_kind_are_pins() -> None:
    plan = Plan(
        mesh=Mesh(axes=(Axis(name="a", size=None), Axis(name="b", size=4))),
        rules=(Rule(pattern="x", assignment=plan_of("mesh: auto\ntensors: {x: replicate}").rules[0].assignment),),
    )
    assert pins(plan) == ("mesh.b", "x")


def test_how_far_a_nest_of_loops_can_be_split() -> None:
    assert most_ways((12, 5), (4, 4, 2)) == 4
    assert most_ways((16, 4), (4, 4, 2)) == 32
    assert most_ways((3,), (2, 2)) == 1


def test_results_that_lie_where_nothing_was_take_memory_too() -> None:
    """Of a product of 64 by 64 a device of eight has an eighth at least, whole where that is pinned, and nothing of
    what lies in a donated argument.
    """
    graph, sizes = replace(GRAPH, result_names=("out",)), {"a": 8}
    assert least_result_bytes(graph, sizes, {}) == 64 * 64 * 4 // 8
    assert least_result_bytes(graph, sizes, {"out": ((), ())}) == 64 * 64 * 4
    assert least_result_bytes(replace(graph, aliases={0: 0}), sizes, {}) == 0
    assert least_result_bytes(replace(graph, results=(0,)), sizes, {}) == 0


def test_what_arguments_and_results_alone_exceed_is_proven_at_once() -> None:
    solver = FakeSolver(by_axes)
    result, _, _ = ask(text="mesh: {a: 32}\nlimits: {hbm: 1500 B}", solver=solver)
    assert result.status == "infeasible"
    asked = [task for task in solver.tasks if task.machine.num_devices == 32 and task.limit_bytes == 1500]
    assert not asked
