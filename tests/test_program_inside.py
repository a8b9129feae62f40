"""What one kernel computes in passing and another leaves: a step laid out has it once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from meshwright.planner.program.solving.decode import laid_out_step
from meshwright.planner.solver.solve import solve
from small_graphs import exact_of, nothing, promised_s
from small_steps import Pair, program_of, shape, trained

BOTH = ("x", "y")
BOTH_DIMS = (("x",), ("y",))
WHOLE = (32, 1024, 768)


def with_positions() -> Pair:
    """Rows of a table and a row for each place, through a layer: their gradient is one value, summed and scattered."""

    def norm(x: jax.Array, scale: jax.Array) -> jax.Array:
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6) * scale

    def loss(params: Any, ids: jax.Array) -> jax.Array:
        x = params["table"][ids] + params["position"]
        x = x + jnp.tanh(norm(x, params["g"]) @ params["w"]) @ params["v"]
        return jnp.mean(norm(x, params["h"]) ** 2)

    own = {"table": shape(50304, 768), "position": shape(1024, 768), "w": shape(768, 768), "v": shape(768, 768)}
    return trained(loss, own | {"g": shape(768), "h": shape(768)}, shape(32, 1024, dtype=jnp.int32), momentum=True)


def test_what_one_sums_as_it_computes_it_is_brought_elsewhere_once_for_the_other() -> None:
    """It is computed by batch, summed so, and sent to be scattered into columns; it was sent there, and back."""
    columns = ((), BOTH)
    pins = {"params/table": columns, "mu/table": columns, "batch": (BOTH, ())}
    program = program_of(with_positions(), "v5e:4x8", "{x: 4, y: 8}", pins=pins)
    found = program.solve()
    graph = laid_out_step(program.wiring, found.choices, label=lambda _, own: own)
    makers = {value: op for op in graph.ops for value in op.results}
    (summed,) = [op for op in graph.ops if op.kind == "reduce" and graph.shape(op.results[0]) == WHOLE[1:]]
    gradient = makers[summed.operands[0]]
    assert gradient.kind == "add"
    assert graph.values[gradient.results[0]].sharding == (BOTH, (), ())
    reads = [op for op in graph.ops if gradient.results[0] in op.operands and op.kind == "reshard"]
    assert [graph.values[op.results[0]].sharding for op in reads] == [((), (), BOTH)]


def test_a_kernel_writes_what_it_computes_for_one_that_cuts_a_part_out_of_it() -> None:
    """Tokens go to experts by a mask: the first product has it for all experts, the second for some of them."""

    def step(gate: jax.Array, place: jax.Array, x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        mask = gate[:, :, None] * place[:, None, :]
        return jnp.einsum("sec,sm->ecm", mask, x), jnp.einsum("sec,ecm->esm", mask, w)

    args = shape(16384, 16), shape(16384, 160), shape(16384, 512), shape(16, 160, 512)
    by_token, by_expert = (("x",), ()), (("y",), ("x",), ())
    pins: dict[str, Any] = {"gate": by_token, "place": by_token, "x": BOTH_DIMS, "w": (("y",), (), ())}
    pins |= {"out/0": ((), (), ("y",)), "out/1": by_expert}
    program = program_of((step, args), "v5e:4x4", "{x: 4, y: 4}", pins=pins)
    found = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    choices = program.choices(found.choices)
    took = exact_of(program, choices).estimate
    assert sum(kernel.label == "multiply" for kernel in took.kernels) == 1
    assert promised_s(program, choices) == pytest.approx(took.step_time_s, rel=0.002)
