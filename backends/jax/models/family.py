"""GShard's model family (section 4.3, Table 1) and small models of the same kind, as workloads by name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import optax

from ..declared import Choices, choices
from ..workload import Workload
from .config import TransformerConfig, check
from .gradients import gradients_in
from .moe.candidates import choices_of
from .optimizer import Adafactor, OptState
from .parameters import Params, abstract_parameters, initial_parameters, parameter_table
from .settings import read_settings, unknown_member
from .transformer import Batch, Metrics, loss

Step = Callable[[Params, OptState, Batch], tuple[Params, OptState, Metrics]]

_SWITCH: dict[str, Any] = {
    "gate": "switch",
    "experts": 128,
    "head_dim": 64,
    "source_vocab": 32128,
    "target_vocab": 32128,
    "batch": 2048,
    "length": 512,
    "activations": "bfloat16",
    "init": "truncated",
    "init_scale": 0.1,
}

MEMBERS: dict[str, dict[str, Any]] = {
    "moe-2048e-36l": {"experts": 2048, "layers": 36},
    "moe-2048e-12l": {"experts": 2048, "layers": 12},
    "moe-512e-36l": {"experts": 512, "layers": 36},
    "moe-512e-12l": {"experts": 512, "layers": 12},
    "moe-128e-36l": {"experts": 128, "layers": 36},
    "moe-128e-12l": {"experts": 128, "layers": 12},
    "moe-2048e-60l": {"experts": 2048, "layers": 60, "activations": "bfloat16"},
    "switch-base": {**_SWITCH, "layers": 24, "model_dim": 768, "hidden_dim": 2048, "heads": 12},
    "switch-large": {**_SWITCH, "layers": 48, "model_dim": 1024, "hidden_dim": 2816, "heads": 16},
    "small": {
        "experts": 8,
        "layers": 8,
        "model_dim": 128,
        "hidden_dim": 512,
        "heads": 4,
        "head_dim": 32,
        "source_vocab": 4000,
        "target_vocab": 2000,
        "batch": 32,
        "length": 64,
        "factor_from": 32,
        "learning_rate": 1.0,
        "warmup_steps": 1000,
    },
    "tiny": {
        "experts": 8,
        "layers": 4,
        "model_dim": 64,
        "hidden_dim": 128,
        "heads": 4,
        "head_dim": 16,
        "source_vocab": 2000,
        "target_vocab": 1000,
        "batch": 16,
        "length": 64,
        "factor_from": 32,
        "learning_rate": 1.0,
        "warmup_steps": 400,
    },
}
"""Settings of each member. Those of Table 1 keep tokens per core as the scaling figures 7 and 8 do: one core an expert,
two rows of 1024 source tokens a core. Table 3's runs kept 1M or 4M tokens a batch instead: 8192 a core at 128 experts.
Those named switch have the dims of Switch's Table 9 and a million tokens a batch; its feed-forwards are gated ones of
three matrices, these have two.
"""


def choices_of_family(settings: Mapping[str, Any], mesh: Mapping[str, int] | None) -> Choices:
    """What the search may choose from where a plan leaves settings open."""
    others = {name: value for name, value in settings.items() if name != "member"}
    return choices_of(read(settings.get("member"), others), mesh)


@choices(choices_of_family)
def gshard(member: str | None = None, *, plan_mesh: Mapping[str, int] | None = None, **settings: Any) -> Workload:
    """The training step of an MoE Transformer: ``step(params, opt, batch) -> (params, opt, metrics)``.

    ``member`` names one of ``MEMBERS``; without it the sizes are appendix A.2's. ``settings`` are the fields of
    ``TransformerConfig``; ``plan_mesh`` has the sizes of the plan's mesh by axis, major first, which an exchange by
    hand is written for. Raises ``PlanError`` for settings that do not exist or do not go together.
    """
    config = configure(member, settings, plan_mesh)
    optimizer = optimizer_of(config)

    def init(seed: int) -> tuple[Params, OptState]:
        params = jax.jit(functools.partial(initial_parameters, optimizer.table))(jax.random.key(seed))
        return params, optimizer.init(params)

    def evaluate(params: Params, opt: OptState, batch: Batch) -> Metrics:
        return loss(config, params, batch)[1]

    return Workload(
        training_step(config),
        abstract_arguments(config),
        init=init,
        batches=functools.partial(_batches, config),
        evaluate=evaluate,
        translation=functools.partial(_translation, config),
    )


def configure(
    member: str | None, settings: dict[str, Any], plan_mesh: Mapping[str, int] | None = None
) -> TransformerConfig:
    """The checked settings of a member with ``settings`` laid over its own."""
    config = read(member, settings)
    config = config if plan_mesh is None else replace(config, plan_mesh=tuple(plan_mesh.items()))
    check(config)
    return config


def read(member: str | None, settings: Mapping[str, Any]) -> TransformerConfig:
    """The settings of a member with ``settings`` laid over its own, each legal, together perhaps not."""
    if member is not None and (not isinstance(member, str) or member not in MEMBERS):
        raise unknown_member(member, MEMBERS)
    defaults = MEMBERS[member] if member else {}
    return read_settings("gshard", TransformerConfig, defaults, settings, besides=["member"])


def training_step(config: TransformerConfig) -> Step:
    """One step of Adafactor on the loss. Dropout and random routing follow from the step count and ``config.seed``."""
    optimizer = optimizer_of(config)

    def step(params: Params, opt: OptState, batch: Batch) -> tuple[Params, OptState, Metrics]:
        key = jax.random.fold_in(jax.random.key(config.seed), opt["count"])
        uniform = opt["count"] < config.uniform_steps if config.uniform_steps else None
        gradients, metrics = gradients_in(config.dtype, lambda p: loss(config, p, batch, key, uniform=uniform), params)
        metrics["grad_norm"] = optax.tree.norm(optax.tree.cast(gradients, jnp.float32))
        params, opt = optimizer.update(gradients, opt, params)
        return params, opt, metrics

    return step


def optimizer_of(config: TransformerConfig) -> Adafactor:
    """Adafactor for this model's parameters."""
    return Adafactor(
        table=parameter_table(config),
        learning_rate=config.learning_rate,
        warmup_steps=config.warmup_steps,
        factor_from=config.factor_from,
    )


def abstract_arguments(config: TransformerConfig) -> tuple[Any, Any, Any]:
    """The step's arguments as shapes: (params, opt, batch). Allocates nothing."""
    optimizer = optimizer_of(config)
    params = abstract_parameters(optimizer.table)
    row = jax.ShapeDtypeStruct((config.rows, config.length), jnp.int32)
    batch = {f"{side}{part}": row for side in ("source", "target") for part in ("", "_segments", "_positions")}
    return params, jax.eval_shape(optimizer.init, params), batch


def _batches(config: TransformerConfig, seed: int, split: str) -> Iterator[Any]:
    from ..data.batches import translation_batches

    return translation_batches(
        batch=config.rows,
        length=config.length,
        source_vocab=config.source_vocab,
        target_vocab=config.target_vocab,
        seed=seed,
        split=split,
    )


def _translation(config: TransformerConfig) -> Any:
    from ..decoding.translation import transformer_translation

    return transformer_translation(config)
