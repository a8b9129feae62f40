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

CAPACITY = 32
"""Places of each expert for a group's tokens."""


def training(optimiser: optax.GradientTransformation, loss: Any, params: Any, batch: Any) -> Any:
    """A step that donates its state, and its arguments."""

    def step(params: Any, opt: Any, batch: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(params, batch)
        updates, opt = optimiser.update(gradient, opt, params)
        return optax.apply_updates(params, updates), opt, value

    return jax.jit(step, donate_argnums=(0, 1)), (params, jax.eval_shape(optimiser.init, params), batch)


def error(topology: str, tensors: str, step: Any, args: Any, mesh: str = "x: 4, y: 4") -> float:
    """Bytes of a device predicted over compiled, less one."""
    rules = f"{tensors}  opt/**: like params\n  out/2: replicate\n"
    plan = mw.loads(f"meshwright: 1\ntopology: {topology}\nmesh: {{{mesh}}}\ntensors:\n{rules}")
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


def test_what_leaves_fast_memory_again_lies_in_the_large_one_when_what_it_was_made_of_does_not() -> None:
    """Groups of tokens, gathered whole, of which a device's experts take their own: these need no room beside all."""

    def loss(params: dict[str, jax.Array], batch: jax.Array) -> jax.Array:
        wi, wu, wo = (params[name].astype(jnp.bfloat16) for name in ("wi", "wu", "wo"))
        x, experts = batch.astype(jnp.bfloat16), wi.shape[0]
        left = gates = jax.nn.softmax(batch @ params["wg"])
        combine, filled = jnp.zeros(()), jnp.zeros(())
        for _ in range(2):
            mask = jax.nn.one_hot(jnp.argmax(left, -1), experts)
            place = (jnp.cumsum(mask, 1) - 1 + filled) * mask
            left, mask = left * (1 - mask), mask * (place < CAPACITY)
            filled = filled + mask.sum(1, keepdims=True)
            slots = jax.nn.one_hot((place * mask).sum(-1).astype(jnp.int32), CAPACITY)
            combine = combine + (gates * mask)[..., None] * slots[:, :, None]
        combine = combine.astype(jnp.bfloat16)
        sent = jnp.einsum("gsec,gsm->egcm", (combine > 0).astype(jnp.bfloat16), x)
        hidden = jax.nn.silu(jnp.einsum("egcm,emh->egch", sent, wu)) * jnp.einsum("egcm,emh->egch", sent, wi)
        back = jnp.einsum("gsec,egcm->gsm", combine, jnp.einsum("egch,ehm->egcm", hidden, wo))
        return jnp.mean((x + back).astype(jnp.float32) ** 2)

    params = {"wg": shape(768, 64), "wo": shape(64, 3072, 768), "wi": shape(64, 768, 3072), "wu": shape(64, 768, 3072)}
    step, args = training(optax.adam(1e-3), loss, params, shape(32, 1024, 768))
    rules = "  batch: G@x+y S M\n  params/wg: M E\n  params/wo: E@x H@y M\n  params/w*: E@x M H@y\n"
    assert error("v4:2x2x4", rules, step, args, "x: 8, y: 4") == pytest.approx(0, abs=0.12)
