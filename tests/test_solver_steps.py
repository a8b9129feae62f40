"""Steps that solve equations: products with what they are made of, numbers summed of vectors, carried by loops."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from in_process import search
from meshwright.backends.jax.drafts import Drafts
from meshwright.backends.jax.lowered.step_graph import step_graph
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.reader import loads
from meshwright.planner.program import build
from meshwright.planner.topology import physical
from small_steps import Pair, shape

HEAD = "meshwright: 1\ntopology: v5p:2x2x4\nmesh: {x: 4, y: 4}\n"


def conjugate_gradients(size: int = 4096, turns: int = 8) -> Pair:
    def step(a: jax.Array, b: jax.Array, d: jax.Array) -> jax.Array:
        def body(_: int, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            x, r, p, was = state
            q = a @ p
            alpha = was / (p @ q)
            x, r = x + alpha * p, r - alpha * q
            z = r / d
            now = r @ z
            return x, r, z + now / was * p, now

        z = b / d
        return jax.lax.fori_loop(0, turns, body, (jnp.zeros_like(b), b, z, b @ z))[0]

    return step, (shape(size, size), shape(size), shape(size))


def test_a_solver_is_written_as_it_is_promised() -> None:
    result = search(*conjugate_gradients(), topology="v5p:2x2x4", mesh={"x": 4, "y": 4}, time_limit_s=60)
    promised_s = min(row.objective_s for row in result.candidates if row.objective_s is not None)
    assert result.step_time_s == pytest.approx(promised_s, rel=1e-2)
    assert result.gap is not None
    assert result.gap < 0.02


def test_what_a_loop_carries_lies_as_a_plan_says_though_what_reads_it_lies_otherwise() -> None:
    """Also where nothing outside reads what it ends as."""
    rows = "tensors: {a: 'B@y A@x', ops/body/dot_general.0: B@y, CARRIED '**': infer}\n"
    found = {}
    for said in ("", "'ops/step/scan.0.[1-3]': replicate,"):
        pair = conjugate_gradients(1024, 4)
        graph = step_graph(mw.loads(HEAD + rows.replace("CARRIED", said)), *pair).graph
        (loop,) = (op for _, op, _ in graph.walk() if op.kind == "while")
        found[said] = {graph.values[value].sharding for value in loop.results if graph.shape(value)}
    assert found[""] != {((),)}
    assert found["'ops/step/scan.0.[1-3]': replicate,"] == {((),)}


def test_what_makes_one_number_has_named_operands() -> None:
    workload = Drafts(*conjugate_gradients(1024, 4))
    paths = {tensor.path for tensor in workload.tensors}
    assert {"ops/body/scalar/dot_general.0.in0", "ops/body/scalar/dot_general.1.in1"} <= paths
    assert "ops/body/scalar/dot_general.0" not in paths
    assert "ops/body/dot_general.0" in paths  # whose number is none of these


def test_a_product_is_split_though_what_reads_it_reads_its_operand_too() -> None:
    def step(a: jax.Array, p: jax.Array) -> jax.Array:
        return (p * (a @ p)).sum(0)

    plan = loads(HEAD)
    workload = Drafts(step, (shape(8192, 8192), shape(8192, 512)))
    wiring = build(workload.graph(plan), plan.mesh, physical(parse_topology("v5p:2x2x4"))).wiring
    top = wiring.levels[0]
    matrix = top.graph.arguments[0]
    (layouts,) = (node.layouts[matrix] for node in wiring.nodes if node.stems and matrix in node.layouts)
    assert (("x", "y"), ()) in layouts
    assert (("x",), ("y",)) in layouts
