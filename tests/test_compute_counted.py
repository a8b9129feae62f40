"""The work of kernels, counted once for all that are alike."""

from __future__ import annotations

import meshwright.planner.compute.counted as counted_module
from meshwright.backends.jax.estimate import graph_of
from meshwright.dsl.reader import loads
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute.counted import Counted
from meshwright.planner.compute.cycles import cycles_of
from meshwright.planner.compute.speed import speed_of
from meshwright.planner.compute.work import work_of
from meshwright.planner.forms import Forms
from meshwright.planner.fusion import fuse
from meshwright.planner.kinds import KINDS
from meshwright.planner.memory import memory, put_in_order
from meshwright.planner.partition import partition
from small_steps import mlp

PLAN = "meshwright: 1\ntopology: v5e:2x4\nmesh: {{x: 2, y: 4}}\ntensors: {{params/**: {}, '**': infer}}\n"


def programs(step, args, forms=None):
    for lies in ("_ _@y", "_@x _@y", "_@y _"):
        yield fuse(partition(graph_of(loads(PLAN.format(lies)), step, args)), forms=forms)


def test_work_is_that_of_each_kernel_and_counted_once_for_layers_alike(monkeypatch) -> None:
    asked, worked_out = [], []

    def noting(graph, kernel):
        worked_out.append(kernel)
        return work_of(graph, kernel)

    monkeypatch.setattr(counted_module, "work_of", noting)
    counted = Counted()
    for program in programs(*mlp(layers=4, width=256, hidden=512, tokens=512)):
        for kernel in program.kernels:
            if program.graph.ops[kernel.ops[-1]].kind not in KINDS:
                assert counted(program.graph, kernel) == work_of(program.graph, kernel)
                asked.append(kernel)
    assert 3 * len(worked_out) < 2 * len(asked)


def test_cycles_of_counted_work_are_known_by_what_is_near() -> None:
    speed, counted = speed_of(catalogue()["v5e"]), Counted()
    (program, *_) = programs(*mlp(layers=1, width=256, hidden=512, tokens=512))
    for kernel in program.kernels:
        if program.graph.ops[kernel.ops[-1]].kind in KINDS:
            continue
        work = counted(program.graph, kernel)
        for is_near in (False, True, False):
            near, left = [is_near] * len(work.reads), [not is_near] * len(work.writes)
            asked = work, near, left, speed.edge, speed.coefficients
            assert counted.cycles(*asked) == cycles_of(*asked)
            assert counted.cycles(*asked) is counted.cycles(*asked)


def test_what_is_known_of_a_kernel_holds_for_all_of_its_form() -> None:
    step, args = mlp(layers=4, width=256, hidden=512, tokens=512)
    forms, chip = Forms(), catalogue()["v5e"]
    alone, together = list(programs(step, args)), list(programs(step, args, forms))
    kernels = [kernel for program in together for kernel in program.kernels]
    assert 3 * len({id(kernel.form) for kernel in kernels}) < 2 * len(kernels)
    for one, other in zip(alone, together, strict=True):
        assert one == other
        assert put_in_order(one, chip) == put_in_order(other, chip)
        assert memory(one, chip) == memory(other, chip)
