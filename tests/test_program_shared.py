"""The program against whole prices where kernels share work: what it finds on steps of every kind is proven close."""

from __future__ import annotations

import meshwright as mw
import pytest
import small_steps
from meshwright.backends.jax.drafts import Drafts
from meshwright.planner.program import Program, build
from meshwright.planner.topology import physical

CLOSE = 0.01


def program_of(pair: small_steps.Pair, topology: str, mesh: str) -> Program:
    drafts = Drafts(*pair)
    plan = mw.loads(f"meshwright: 1\ntopology: {topology}\nmesh: {mesh}\n")
    returned = {tensor.path: tensor.returns for tensor in drafts.tensors if tensor.returns}
    return build(drafts.graph(plan), plan.mesh, physical(plan.topology), returned=returned)


@pytest.mark.parametrize(
    ("pair", "topology", "mesh"),
    [
        pytest.param(
            small_steps.mlp(tokens=4096, width=2048, hidden=8192, layers=1, momentum=True),
            "v3:4x4",
            "{a: 4, b: 8}",
            id="what products write beside their own",
        ),
        pytest.param(small_steps.experts(), "v5e:2x4", "{a: 2, b: 4}", id="masks that several products read"),
        pytest.param(small_steps.blocks(), "v5e:2x4", "{a: 2, b: 4}", id="weights that several gather"),
        pytest.param(
            small_steps.convolved(batch=32, size=256, channels=64, layers=3), "v3:4x4", "{a: 4, b: 8}", id="images"
        ),
    ],
)
def test_what_kernels_share_is_in_the_program(pair: small_steps.Pair, topology: str, mesh: str) -> None:
    found = program_of(pair, topology, mesh).solve()
    assert found.layouts is not None
    assert found.objective_s * (1 - CLOSE) <= found.bound_s <= found.objective_s * (1 + 1e-3)
