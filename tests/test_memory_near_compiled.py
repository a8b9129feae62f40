"""What lies in fast memory and takes nothing of the large one, beside the TPU compiler: steps that hold little else."""

from __future__ import annotations

import importlib.util
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import optax
import pytest
from small_steps import shape

pytestmark = [
    pytest.mark.tpu_compiler,
    pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu"),
]


def training(optimiser: optax.GradientTransformation, loss: Any, params: Any, batch: Any) -> Any:
    """A step that donates its state, and its arguments."""

    def step(params: Any, opt: Any, batch: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(params, batch)
        updates, opt = optimiser.update(gradient, opt, params)
        return optax.apply_updates(params, updates), opt, value

    return jax.jit(step, donate_argnums=(0, 1)), (params, jax.eval_shape(optimiser.init, params), batch)


def error(topology: str, tensors: str, step: Any, args: Any) -> float:
    """Bytes of a device predicted over compiled, less one, on 4 x 4 devices; the plan splits all axes together."""
    rules = f"{tensors}  opt/**: like params\n  out/2: replicate\n"
    plan = mw.loads(f"meshwright: 1\ntopology: {topology}\nmesh: {{x: 4, y: 4}}\ntensors:\n{rules}")
    said = mw.apply(plan, step, args).lower(*args).compile().memory_analysis()
    compiled = said.argument_size_in_bytes + said.output_size_in_bytes - said.alias_size_in_bytes
    compiled += said.temp_size_in_bytes + said.generated_code_size_in_bytes
    return float(mw.estimate(plan, step, args).peak_bytes / compiled - 1)


def test_a_scan_whose_products_go_round_rings_fills_fast_memory_as_any_other() -> None:
    """Three of the six stacks that it saves for the way back lie there."""

    def loss(params: dict[str, jax.Array], batch: jax.Array) -> jax.Array:
        def layer(x: jax.Array, weights: dict[str, jax.Array]) -> tuple[jax.Array, None]:
            wi, wo = (weights[name].astype(x.dtype) for name in ("wi", "wo"))
            return x + jax.nn.gelu(x @ wi) @ wo, None

        return jnp.mean(jax.lax.scan(layer, batch.astype(jnp.bfloat16), params)[0].astype(jnp.float32) ** 2)

    params = {"wi": shape(6, 1024, 4096), "wo": shape(6, 4096, 1024)}
    step, args = training(optax.sgd(1e-2, momentum=0.9), loss, params, shape(8192, 1024))
    rules = "  batch: B@x+y M\n  params/wi: L M H@x+y\n  params/wo: L H@x+y M\n"
    assert error("v5e:4x4", rules, step, args) == pytest.approx(0, abs=0.12)


def test_the_copies_of_a_single_update_lie_where_what_they_are_of_would() -> None:
    """Of wide weights in bfloat16 two of three copies do: only the third one takes large memory."""

    def loss(params: dict[str, jax.Array], batch: jax.Array) -> jax.Array:
        return jnp.mean((jax.nn.relu(batch @ params["wi"]) @ params["wo"]).astype(jnp.float32) ** 2)

    params = {"wi": shape(6144, 24576, dtype=jnp.bfloat16), "wo": shape(24576, 6144, dtype=jnp.bfloat16)}
    step, args = training(optax.adamw(1e-3), loss, params, shape(512, 6144, dtype=jnp.bfloat16))
    rules = "  batch: B@x+y M\n  params/wi: M H@x+y\n  params/wo: H@x+y M\n"
    assert error("v6e:4x4", rules, step, args) == pytest.approx(0, abs=0.05)
