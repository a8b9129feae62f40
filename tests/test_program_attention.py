"""The program of attention's gradients: what needs a product's whole rows is not computed at its end."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from meshwright.backends.jax.drafts import Drafts
from meshwright.dsl.reader import loads
from meshwright.planner.program import build
from meshwright.planner.topology import physical

PLAN = "meshwright: 1\ntopology: v3:1x1\nmesh: {x: 2}\ntensors: {'**': replicate}\n"
CLOSE = 0.01


def attention(q: Any, k: Any, v: Any) -> Any:
    """The gradients of softmax attention."""

    def loss(q: Any, k: Any, v: Any) -> jax.Array:
        scores = jnp.einsum("btnd,bsnd->bnts", q, k) * q.shape[-1] ** -0.5
        return jnp.sum(jnp.einsum("bnts,bsnd->btnd", jax.nn.softmax(scores), v) ** 2)

    return jax.grad(loss, argnums=(0, 1, 2))(q, k, v)


def test_the_costs_of_attention_are_those_of_its_exact_price() -> None:
    plan, head = loads(PLAN), jax.ShapeDtypeStruct((16, 512, 4, 64), jnp.float32)
    graph = Drafts(attention, (head, head, head)).graph(plan)
    found = build(graph, plan.mesh, physical(plan.topology)).solve()
    assert found.layouts is not None
    assert found.floor_s >= found.objective_s * (1 - CLOSE)
