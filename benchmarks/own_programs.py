"""The planner's own programs as problems for the solver: what ``benchmarks/solver.py`` solves beside the contest's."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from meshwright.planner.solver.problem import Problem
from meshwright.planner.solver.rows_used import usage_of, used_by
from meshwright.planner.solver.solve import solve

STEPS = ("mlp", "moe-layer", "dense-lm", "moe-lm")
TOPOLOGY, MESH = "v3:4x4", {"x": 4, "y": 8}
TIGHT = 0.9  # of what the cheapest layouts without a limit use most


def own_programs(names: tuple[str, ...] = STEPS) -> Iterator[tuple[str, Problem]]:
    """Each step's program on one mesh, without a limit on memory and with one that binds."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from meshwright.backends.jax.step_drafts import StepDrafts
    from meshwright.dsl.machine import parse_topology
    from meshwright.dsl.plan import Axis, Mesh, Plan
    from meshwright.planner.program import build
    from meshwright.planner.program.solving.learnt import Learnt
    from meshwright.planner.topology import physical
    from searched_steps import SEARCHED

    mesh = Mesh(axes=tuple(Axis(name=name, size=size) for name, size in MESH.items()))
    machine = physical(parse_topology(TOPOLOGY))
    for name in names:
        step, args = SEARCHED[name]()
        program = build(StepDrafts().unlaid(Plan(mesh=mesh), step, args), mesh, machine)
        learnt = Learnt(leader=program.leader, guess_s=[np.zeros(len(node.costs)) for node in program.wiring.nodes])
        yield name, program.problem(None, learnt, guess=False)
        ample = program.problem(2**60, learnt, guess=False)
        free = solve(ample, time_limit_s=60.0)
        if free.choices is not None:
            limit = int(TIGHT * used_by(usage_of(ample), free.choices).max())
            yield f"{name}, {limit / 2**30:.2f} GiB", program.problem(limit, learnt, guess=False)
