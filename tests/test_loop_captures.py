"""What loops hand on unchanged stands outside of them, as XLA has it when it propagates layouts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from meshwright.backends.jax.lowered.step_graph import step_graph
from meshwright.planner.graph import Graph, Op
from small_steps import Pair, scanned, shape

SHARDED = """
  params/wi: L M H@x+y
  params/wo: L H@x+y M
  batch0: B@x+y M
  "**": infer
"""
"""A stack of layers, its weights split over all devices, as is the batch."""
ALL = ("x", "y")


def graph(pair: Pair, tensors: str) -> Graph:
    plan = mw.loads(f"meshwright: 1\ntopology: v5e:2x4\nmesh: {{x: 4, y: 2}}\ntensors:\n{tensors}")
    return step_graph(plan, *pair).graph


def loops(found: Graph) -> list[Op]:
    return [op for _, op, _ in found.walk() if op.kind == "while"]


def test_what_one_loop_saves_for_another_keeps_its_layout() -> None:
    """The compiler for v5e gathers nothing of it: a device holds what it computed of each layer."""
    found = graph(scanned(4096, 512, 1024, 3), SHARDED)
    forward, backward = loops(found)
    saved = [v for v in forward.results if len(found.shape(v)) == 3]
    assert len(saved) == 3
    assert set(saved) <= set(backward.operands)
    assert {found.values[v].sharding for v in saved} == {((), ALL, ())}


def test_weights_may_lie_otherwise_inside_of_a_loop() -> None:
    """A stated layout is opened for every loop that reads it."""
    found = graph(scanned(4096, 512, 1024, 3), SHARDED)
    makers = {value: op for op in found.ops for value in op.results}
    weights = set(found.arguments[:2])
    for loop in loops(found):
        read = [makers[v] for v in loop.operands if v in makers and makers[v].kind == "reshard"]
        assert {op.operands[0] for op in read} == weights
        assert weights.isdisjoint(loop.operands)


@pytest.mark.parametrize("turns", [2, 7])
def test_a_loop_keeps_only_what_its_turns_change(turns: int) -> None:
    def step(x: jax.Array, y: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        def turn(_: int, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            a, b, c = state
            return jnp.tanh(a @ w) + b, b, c

        return jax.lax.fori_loop(0, turns, turn, (x, y, y * 2))

    tensors = "  x: A B\n  y: A B\n  w: B B2\n  out/*: infer\n"
    found = graph((jax.jit(step), (shape(16, 8), shape(16, 8), shape(8, 8))), tensors)
    (loop,) = loops(found)
    (body,) = loop.bodies
    assert loop.trips == turns
    assert [found.shape(v) for v in loop.results if found.shape(v)] == [(16, 8)]
    assert len(body.arguments) == len(loop.operands) > len(loop.results)
    assert found.results[1] == found.arguments[1]  # handed on, it is what it was
