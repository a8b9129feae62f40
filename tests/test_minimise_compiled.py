"""Short and exact plans of searched layouts, compiled: the same collectives, and those that were priced."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from meshwright.backends.jax.drafts import Drafts
from meshwright.backends.jax.verify import verify
from meshwright.dsl.reader import loads
from meshwright.planner.minimise import Short, minimise
from meshwright.planner.program import build
from meshwright.planner.topology import physical
from test_minimise_steps import arguments, step


def bytes_by_kind(collectives: Iterable[Any]) -> Counter[str]:
    found: Counter[str] = Counter()
    for each in collectives:
        found[each.kind] += each.num_bytes * each.times
    return found


@pytest.mark.parametrize("topology", ["cpu:8", "v3:2x2"])
def test_short_and_exact_plans_compile_to_the_collectives_that_were_priced(topology: str) -> None:
    args = arguments()
    mesh = "{data: 2, model: 4}"
    plan = loads(f'meshwright: 1\ntopology: {topology}\nmesh: {mesh}\ntensors:\n  "**": auto\n')
    workload = Drafts(step, args)
    returned = {tensor.path: tensor.returns for tensor in workload.tensors if tensor.returns}
    assert plan.topology is not None
    program = build(workload.graph(plan), plan.mesh, physical(plan.topology), returned=returned)
    found = program.solve(time_limit_s=20)
    plans: list[Short] = [
        minimise(found.layouts, plan, workload, deadline=time.monotonic() + 60, exact=exact) for exact in (False, True)
    ]
    assert len(plans[0].plan.rules) <= 8
    reports = [verify(each.plan, step, args) for each in plans]
    short, exact = [bytes_by_kind(report.compiled.collectives) for report in reports]
    assert (
        short == exact == bytes_by_kind(plans[0].estimate.collectives) == bytes_by_kind(plans[1].estimate.collectives)
    )
    for each, report in zip(plans, reports, strict=True):
        assert report.predicted is not None
        assert report.predicted.step_time_s == each.estimate.step_time_s
        assert each.estimate.step_time_s <= found.objective_s * 1.01
