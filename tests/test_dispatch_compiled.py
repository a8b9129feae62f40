"""Every way of dispatch compiles for TPUs, and the Pallas kernel where there is one."""

from __future__ import annotations

import importlib.util

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from jax.sharding import SingleDeviceSharding
from meshwright.backends.jax.models.moe import Capacity, MoeSettings, moe_layer
from meshwright.backends.jax.models.moe.dispatch.index import IndexDispatch
from meshwright.backends.jax.models.moe.dispatch.sorted import SortedDispatch
from meshwright.backends.jax.models.moe.experts import FeedForward

E, M, H = 4, 128, 128
LAYERS = {
    "index": MoeSettings(experts=E, groups=1, capacity=Capacity(slots=64), dispatch=IndexDispatch()),
    "ragged_dot": MoeSettings(experts=E, groups=1, capacity=Capacity(slots=128), dispatch=SortedDispatch()),
    "megablox": MoeSettings(
        experts=E,
        groups=1,
        capacity=Capacity(slots=128),
        dispatch=SortedDispatch(multiple=128),
        work=FeedForward(kernel="megablox"),
    ),
}


@pytest.mark.tpu_compiler
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")
def test_every_way_of_dispatch_compiles_for_tpus_with_its_gradient() -> None:
    """All three in one program; ``benchmarks/dispatch.py --compile`` asks for more chips and sizes."""

    def value(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        valid = jnp.ones(x.shape[:2], bool)
        outs = [moe_layer(params, x, valid, settings, key=None)[0] for settings in LAYERS.values()]
        return sum((out.astype(jnp.float32).sum() for out in outs), jnp.float32(0))

    here = SingleDeviceSharding(mw.topology("v5e:2x2").devices()[0])

    def array(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=here)

    params = {"wg": array(M, E), "wi": array(E, M, H), "wo": array(E, H, M)}
    x = array(1, 128, M, dtype="bfloat16")
    compiled = jax.jit(jax.grad(value)).lower(params, x).compile()
    assert "tpu_custom_call" in (compiled.as_text() or "")
