"""The settings of the MoE Transformer, and what follows from them (GShard appendix A.2 gives the defaults)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import jax.numpy as jnp

from ....dsl.errors import Problem, problem, raise_errors
from .moe.choices import MoeChoices, at_least, one_of
from .moe.settings import MoeSettings
from .moe_checks import formula_of, moe_problems
from .settings import nearest

PAD, BOS, EOS, UNK = 0, 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerConfig(MoeChoices):
    """Settings of the encoder-decoder Transformer; ``experts: 0`` is the dense one."""

    experts: int = at_least(128, 0)
    """E, experts of every MoE layer."""
    layers: int = at_least(12, 2)
    """Encoder and decoder layers together, half in each."""
    model_dim: int = at_least(1024, 2)
    """M."""
    hidden_dim: int = at_least(8192, 1)
    """H, of feed-forward layers and experts alike."""
    heads: int = at_least(16, 1)
    """N."""
    head_dim: int = at_least(128, 1)
    """D."""
    source_vocab: int = at_least(64000, 4)
    target_vocab: int = at_least(32000, 4)
    batch: int | None = at_least(None, 1)
    """B, rows of a batch. Default: two per expert (GShard's one core per expert); 256 without experts."""
    length: int = at_least(1024, 1)
    """T, tokens of a row, source and target alike."""
    groups: int | None = at_least(None, 1)
    """G, groups that tokens are dispatched in. Default: one per expert if that divides the tokens, else one per row."""
    dropout: float = at_least(0.1, 0, 1)  # A.2: input, residual and attention
    init: str = one_of("normal", "normal", "truncated")
    """How weights start: normal, or cut at two standard deviations (Switch, section 2.4)."""
    init_scale: float = at_least(1.0, 0)
    """s of a standard deviation sqrt(s/fan-in): 0.1 in Switch (section 2.4)."""
    activations: str = one_of("float32", "float32", "bfloat16")
    learning_rate: float = at_least(1.0, 0)
    warmup_steps: int = at_least(10000, 1)
    """The learning rate decays as 1/sqrt(step) from this step on and is constant before."""
    factor_from: int = at_least(128, 1)
    """The smallest dim for which Adafactor factors second moments."""
    seed: int = at_least(0, 0)
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
    def aux_multiplier(self) -> float:
        """k."""
        return self.loss_weights(self.experts)["balance"]

    @property
    def group_tokens(self) -> int:
        """S."""
        return self.tokens // self.group_count

    def moe_choices(self, stack: str) -> MoeChoices:
        """What is said of the MoE layers of ``encoder`` or ``decoder``."""
        if stack == "encoder" or self.decoder_gate is None:
            return self
        return replace(self, gate=self.decoder_gate, published="paper", decoder_gate=None, top_k=None, sets=None)

    def moe(self, stack: str) -> MoeSettings:
        """The MoE layers of ``encoder`` or ``decoder``."""
        return self.moe_choices(stack).settings(self.experts, self.group_count, self.group_tokens)

    @property
    def layers_per_block(self) -> int:
        """Layers in one turn of the scan: a dense one and an MoE one, or a single dense one."""
        return 2 if self.experts else 1

    @property
    def blocks(self) -> int:
        """L, turns of the scan in each of encoder and decoder."""
        return self.layers // (2 * self.layers_per_block)


def check(config: TransformerConfig) -> None:
    """Raises ``PlanError`` with whatever does not go together: layers (MW605), groups (MW606), capacity (MW607), and
    what ``moe_checks`` finds."""
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
    if found := moe_problems(config):
        return found
    told: dict[str, Any] = {
        "setting": "groups",
        "groups": config.group_count,
        "tokens": config.tokens,
        "nearest": _nearest_groups(config),
    }
    if config.tokens % config.group_count:
        return [problem("MW606", **told, batch=config.rows, length=config.length)]
    for stack in ("encoder", "decoder"):
        slots = config.moe_choices(stack).slots(config.experts, config.group_tokens)
        if not _whole(slots):
            told |= {"group_tokens": config.group_tokens, "experts": config.experts, "capacity": float(slots)}
            return [problem("MW607", **told, formula=formula_of(config.moe_choices(stack)))]
    return []


def _nearest_groups(config: TransformerConfig) -> str:
    """The groups nearest to the wanted ones that divide the tokens and give whole slots."""
    both = [config.moe_choices(stack) for stack in ("encoder", "decoder")]
    legal = (
        g for g in _divisors(config.tokens) if all(_whole(c.slots(config.experts, config.tokens // g)) for c in both)
    )
    return nearest(legal, config.group_count)


def _whole(slots: Fraction | int) -> bool:
    """Whether it is at least one slot, and no fraction of one."""
    return slots >= 1 and slots == int(slots)


def _divisors(number: int) -> set[int]:
    """The divisors that a million trials find, and their cofactors."""
    small = [d for d in range(1, min(math.isqrt(number), 10**6) + 1) if number % d == 0]
    return {*small, *(number // d for d in small)}
