"""The settings of the MoE Transformer, and what follows from them (GShard appendix A.2 gives the defaults)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

from ....dsl.errors import Problem, problem, raise_errors
from .moe.capacity import Capacity
from .moe.gates.top_k import TopKGate
from .moe.routing import Rules
from .moe.settings import MoeSettings
from .settings import nearest

PAD, BOS, EOS, UNK = 0, 1, 2, 3


def _at_least(default: float | None, least: float, below: float | None = None) -> Any:
    """A field with a lower bound, and perhaps one that it stays below."""
    bounds = {"least": least} if below is None else {"least": least, "below": below}
    return field(default=default, metadata=bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerConfig:
    """Settings of the encoder-decoder Transformer; ``experts: 0`` is the dense one."""

    experts: int = _at_least(128, 0)
    """E, experts of every MoE layer."""
    layers: int = _at_least(12, 2)
    """Encoder and decoder layers together, half in each."""
    model_dim: int = _at_least(1024, 2)
    """M."""
    hidden_dim: int = _at_least(8192, 1)
    """H, of feed-forward layers and experts alike."""
    heads: int = _at_least(16, 1)
    """N."""
    head_dim: int = _at_least(128, 1)
    """D."""
    source_vocab: int = _at_least(64000, 4)
    target_vocab: int = _at_least(32000, 4)
    batch: int | None = _at_least(None, 1)
    """B, rows of a batch. Default: two per expert (GShard's one core per expert); 256 without experts."""
    length: int = _at_least(1024, 1)
    """T, tokens of a row, source and target alike."""
    groups: int | None = _at_least(None, 1)
    """G, groups that tokens are dispatched in. Default: one per expert if that divides the tokens, else one per row."""
    capacity: int | None = _at_least(None, 1)
    """C, slots of an expert for a group. Default: 2S/E (section 2.2)."""
    dropout: float = _at_least(0.1, 0, 1)  # A.2: input, residual and attention
    random_routing: bool = True
    aux_weight: float | None = _at_least(None, 0)
    """k of L = nll + k·aux (section 2.2). Default: 0.01·E², for the paper prints no k, and Lingvo weighs by 0.01 an
    auxiliary loss that is E² times the paper's, 1 where the experts' loads are equal."""
    activations: str = field(default="float32", metadata={"choices": ("float32", "bfloat16")})
    learning_rate: float = _at_least(1.0, 0)
    warmup_steps: int = _at_least(10000, 1)
    """The learning rate decays as 1/sqrt(step) from this step on and is constant before."""
    factor_from: int = _at_least(128, 1)
    """The smallest dim for which Adafactor factors second moments."""
    seed: int = _at_least(0, 0)
    """Of dropout and random routing; with the step count it fixes both."""

    @property
    def dtype(self) -> jnp.dtype:
        """Of the activations."""
        return jnp.dtype(self.activations)

    @property
    def rows(self) -> int:
        """B."""
        return self.batch or 2 * (self.experts or 128)

    @property
    def tokens(self) -> int:
        """B·T: source tokens of a batch, and as many target tokens."""
        return self.rows * self.length

    @property
    def group_count(self) -> int:
        """G."""
        default = self.experts if self.experts and self.tokens % self.experts == 0 else self.rows
        return self.groups or default

    @property
    def slots(self) -> int:
        """C."""
        return self.capacity or 2 * (self.tokens // self.group_count) // self.experts

    @property
    def aux_multiplier(self) -> float:
        """k."""
        return 0.01 * self.experts**2 if self.aux_weight is None else self.aux_weight

    @property
    def loss_weights(self) -> dict[str, float]:
        """The weight of each auxiliary loss by its name."""
        return {"balance": self.aux_multiplier}

    @property
    def moe(self) -> MoeSettings:
        """The MoE layers' settings; meaningless without experts."""
        rules = Rules(choices=2, threshold=0.5 if self.random_routing else None)
        return MoeSettings(
            experts=self.experts,
            groups=self.group_count,
            capacity=Capacity(slots=self.slots),
            gate=TopKGate(rules=rules),
        )

    @property
    def layers_per_block(self) -> int:
        """Layers in one turn of the scan: a dense one and an MoE one, or a single dense one."""
        return 2 if self.experts else 1

    @property
    def blocks(self) -> int:
        """L, turns of the scan in each of encoder and decoder."""
        return self.layers // (2 * self.layers_per_block)


def check(config: TransformerConfig) -> None:
    """Raises ``PlanError`` with whatever does not go together: layers (MW605), groups (MW606), capacity (MW607)."""
    raise_errors([*_layer_problems(config), *_group_problems(config)])


def _layer_problems(config: TransformerConfig) -> list[Problem]:
    multiple = 2 * config.layers_per_block
    if config.layers % multiple == 0:
        return []
    below = config.layers // multiple * multiple
    legal = nearest([n for n in (below, below + multiple) if n], config.layers)
    blocks = "pairs (a dense layer and an MoE layer)" if config.experts else "layers"
    return [problem("MW605", setting="layers", layers=config.layers, blocks=blocks, multiple=multiple, nearest=legal)]


def _group_problems(config: TransformerConfig) -> list[Problem]:
    if not config.experts:
        return []
    told: dict[str, Any] = {
        "setting": "groups",
        "groups": config.group_count,
        "tokens": config.tokens,
        "nearest": _nearest_groups(config),
    }
    if config.tokens % config.group_count:
        return [problem("MW606", **told, batch=config.rows, length=config.length)]
    group_tokens = config.tokens // config.group_count
    if config.capacity is None and (2 * group_tokens % config.experts):
        capacity = 2 * group_tokens / config.experts
        return [problem("MW607", **told, group_tokens=group_tokens, experts=config.experts, capacity=capacity)]
    return []


def _nearest_groups(config: TransformerConfig) -> str:
    """The groups nearest to the wanted ones that divide the tokens and, unless capacity is set, give a whole 2S/E."""
    tokens, per_group = config.tokens, 1 if config.capacity else config.experts
    legal = (g for g in _divisors(tokens) if 2 * (tokens // g) % per_group == 0)
    return nearest(legal, config.group_count)


def _divisors(number: int) -> set[int]:
    """The divisors that a million trials find, and their cofactors."""
    small = [d for d in range(1, min(math.isqrt(number), 10**6) + 1) if number % d == 0]
    return {*small, *(number // d for d in small)}
