"""One MoE layer's training step alone, with the settings of the whole family: to plan, price and compare layers by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from ....dsl.errors import Problem, problem, raise_errors
from ..declared import choices
from ..workload import Workload
from .config import TransformerConfig
from .family import choices_of_family, configure
from .gradients import gradients_in, resolve
from .moe import moe_layer
from .parameters import Params, parameter_table

_LAYER = "encoder/moe/"
_OF_STACKS = ("layers", "heads", "head_dim", "source_vocab", "target_vocab")
_OF_TRAINING = ("uniform_steps", "init", "init_scale", "warmup_steps", "factor_from")
_OF_CHANCE = ("dropout", "expert_dropout", "random_routing", "random_threshold", "jitter", "jitter_on", "seed")


@choices(choices_of_family)
def moe_step(member: str | None = None, *, plan_mesh: Mapping[str, int] | None = None, **settings: Any) -> Workload:
    """A step of gradient descent of one MoE layer: ``step(params, x) -> (params, metrics)``.

    ``x`` [B, T, M] are tokens in the activations' dtype; the loss is the mean square of what the layer says and its
    auxiliary losses. Nothing is drawn at random. Settings are those of ``gshard``, of which the layer's have a meaning.
    Raises ``PlanError`` as that does, and where one is asked for that has none here (MW612); a member's own are let be.
    """
    config = configure(member, settings, plan_mesh)
    raise_errors(_without_meaning(settings))

    def loss(params: Params, x: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        valid = jnp.ones(x.shape[:2], bool)
        said, report = moe_layer(resolve(params), x, valid, config.moe("encoder"), key=None)
        weights = config.loss_weights(config.experts)
        total = jnp.mean(said.astype(jnp.float32) ** 2)
        total += sum(weights[name] * auxiliary for name, auxiliary in report.losses.items())
        return total, {"loss": total, "dropped": report.dropped}

    def step(params: Params, x: jax.Array) -> tuple[Params, dict[str, jax.Array]]:
        gradients, metrics = gradients_in(config.dtype, lambda p: loss(p, x), params)
        return jax.tree.map(lambda w, g: w - config.learning_rate * g.astype(w.dtype), params, gradients), metrics

    return Workload(step, (_parameters(config), _tokens(config)))


def _without_meaning(settings: Mapping[str, Any]) -> list[Problem]:
    """What is asked for and has no meaning in one layer alone; null, zero and false ask for nothing."""
    whole = "model: meshwright.backends.jax.models:gshard"
    asked = [(name, whole) for name in (*_OF_STACKS, *_OF_TRAINING, *_OF_CHANCE) if settings.get(name)]
    asked += [("experts", "experts: 1 or more")] if settings.get("experts") == 0 else []
    return [
        problem("MW612", setting=name, value=settings[name], beside="one MoE layer alone", legal=legal)
        for name, legal in asked
    ]


def _parameters(config: TransformerConfig) -> Params:
    """The shapes of one layer's parameters, without the norm before it."""
    table = {path.removeprefix(_LAYER): p for path, p in parameter_table(config).items() if path.startswith(_LAYER)}
    return {name: jax.ShapeDtypeStruct(p.shape[1:], jnp.float32) for name, p in table.items() if "/" not in name}


def _tokens(config: TransformerConfig) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((config.rows, config.length, config.model_dim), config.dtype)
