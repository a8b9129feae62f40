"""What computing takes at least: never more than the best of all strategies on any mesh, and not much less at best."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from fake_search import FakeSolver, ask, by_axes
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from meshwright.dsl.machine import parse_topology
from meshwright.planner.compute.speed import speed_of
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.program import Known
from meshwright.planner.search.task import Found, Task
from meshwright.planner.topology import physical
from small_graphs import exact_of, program_of, promised_s, size_of, steps, strategies

MESHES: dict[str, tuple[dict[str, int], ...]] = {
    "v5e:1x2": ({"x": 2},),
    "v5e:2x2": ({"x": 4}, {"x": 2, "y": 2}),
    "v3:1x2": ({"x": 4}, {"x": 2, "y": 2}),
    "v6e:1x2": ({"x": 2},),
}
LARGEST = 150
SOME = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
BYTES = 2**30


def least_s(graph: Graph, topology: str) -> float:
    machine = physical(parse_topology(topology))
    return Known().least_seconds(graph, speed_of(machine.chip), machine.num_devices)


@SOME
@given(steps(), st.sampled_from(sorted(MESHES)))
def test_no_strategy_on_any_mesh_computes_in_less(step: tuple[Graph, dict[str, str]], topology: str) -> None:
    graph, returned = step
    computes_s = []
    for mesh in MESHES[topology]:
        program = program_of(graph, topology, mesh, returned=returned)
        assume(size_of(program) <= LARGEST)
        possible = (each for each in strategies(program) if math.isfinite(promised_s(program, each)))
        computes_s += [exact_of(program, each).estimate.compute_s for each in possible]
    assert least_s(graph, topology) <= min(computes_s)


@pytest.mark.parametrize("topology", ["v3:2x2", "v5e:2x2", "cpu:4"])
def test_a_large_sum_takes_its_bytes_on_all_devices(topology: str) -> None:
    value = Value((BYTES // 2**14, 2**12), "f32")
    op = Op(kind="add", operands=(0, 1), results=(2,))
    graph = Graph(values=(value,) * 3, ops=(op,), arguments=(0, 1), results=(2,), names=("a", "b"))
    machine = physical(parse_topology(topology))
    speed = speed_of(machine.chip)
    moved_s = 3 * BYTES * speed.coefficients.byte_cycles / speed.clock_hz / machine.num_devices
    assert least_s(graph, topology) == pytest.approx(moved_s)


def test_meshes_that_nobody_solved_are_bounded_by_it() -> None:
    class Solver(FakeSolver):
        """Several at once are bounded by nothing."""

        least_s = 0.0

        def __call__(self, task: Task, stop: object) -> Found:
            found = replace(super().__call__(task, lambda: False), least_s=self.least_s, credit_s=0.0)
            return replace(found, bound_s=0.0) if task.alike else found

    class Knowing(Solver):
        least_s = 1e-4

    plain, _, _ = ask(topology="v3:32x32", solver=Solver(by_axes))
    result, _, _ = ask(topology="v3:32x32", solver=Knowing(by_axes))
    assert plain.meshes.left_out > 0
    assert plain.bound_s is not None
    assert plain.bound_s < result.bound_s == 1e-4 < result.step_time_s


def test_a_plan_below_it_refutes_it() -> None:
    class Solver(FakeSolver):
        def __call__(self, task: Task, stop: object) -> Found:
            return replace(super().__call__(task, lambda: False), least_s=0.5)

    plain, _, _ = ask(topology="v3:32x32")
    result, _, _ = ask(topology="v3:32x32", solver=Solver(by_axes))
    assert result.bound_s == plain.bound_s
