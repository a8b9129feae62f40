"""A layer of any gate, dispatch and exchange computes under a plan what it computes on one device, gradients too."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
import pytest
from layouts import assert_close
from meshwright.backends.jax.models.config import TransformerConfig
from meshwright.backends.jax.models.family import configure
from meshwright.backends.jax.models.moe import moe_layer
from meshwright.backends.jax.models.parameters import parameter_table

LAYER = {"experts": 8, "layers": 4, "model_dim": 8, "hidden_dim": 16, "heads": 1, "head_dim": 8, "groups": 8}
SIZES: dict[str, Any] = {**LAYER, "source_vocab": 16, "target_vocab": 16, "batch": 8, "length": 4}
LAID = """
meshwright: 1
topology: cpu:8
mesh: {{expert: 4, model: 2}}
tensors:
  params/w[io]: {weights}
  params/**: replicate
  x: B@expert+model T M
  valid: B@expert+model T
  out/**: infer
"""
OVER_ONE, OVER_BOTH = "E@expert ...", "E@expert+model ..."
BY_HAND = {"exchange": "manual"}
QUICKLY = {"xla_backend_optimization_level": "0"}


def step_of(config: TransformerConfig) -> Any:
    """The layer's loss with its auxiliary ones, what it says, its report, and the gradients."""
    settings = config.moe("encoder")

    def loss(params: Any, x: jax.Array, valid: jax.Array) -> Any:
        said, report = moe_layer(params, x, valid, settings, key=jax.random.key(3))
        return (said**2).sum() + sum(each.sum() for each in report.losses.values()), (said, report)

    return jax.value_and_grad(loss, (0, 1), has_aux=True)


@pytest.mark.parametrize(
    ("parts", "exchange", "weights"),
    [
        ({"gate": "top_k", "published": "megablocks", "dispatch": "index", "capacity_mode": "automatic"}, {}, OVER_ONE),
        ({"gate": "noisy_top_k", "dispatch": "sorted", "capacity_mode": "automatic"}, BY_HAND, OVER_ONE),
        ({"gate": "hierarchical"}, {"exchange": "hierarchical", "exchange_axes": "expert+model"}, OVER_BOTH),
        ({"gate": "expert_choice", "decoder_gate": "gshard", "dispatch": "index"}, {"exchange_chunks": 2}, OVER_BOTH),
    ],
)
def test_a_planned_layer_says_what_it_says_on_one_device(parts: Any, exchange: Any, weights: str) -> None:
    random = np.random.default_rng(0)
    config = configure(None, {**SIZES, **parts, **exchange}, {"expert": 4, "model": 2})
    table = {path.split("/")[-1]: p.shape[1:] for path, p in parameter_table(config).items() if "encoder/moe/" in path}
    params = {name: jnp.float32(random.normal(0, 0.5, shape)) for name, shape in table.items()}
    args = params, jnp.float32(random.normal(size=(8, 4, 8))), jnp.array(random.random((8, 4)) < 0.85)
    alone = jax.jit(step_of(configure(None, {**SIZES, **parts}))).lower(*args).compile(QUICKLY)
    plan, step = mw.loads(LAID.format(weights=weights)), step_of(config)
    placed = mw.place(plan, args, step, args)
    assert_close(mw.apply(plan, step, args).lower(*args).compile(QUICKLY)(*placed), alone(*args))
