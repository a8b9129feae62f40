"""What the search may choose from where a plan leaves settings of MoE layers open."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from ...declared import Choices
from .exchange.choices import BY_HAND
from .published import PUBLISHED

if TYPE_CHECKING:
    from ..config import TransformerConfig

FACTORS = (1.0, 1.25, 1.5, 2.0, 4.0)
DEGREES = (1, 2, 4, 8)
"""Tutel's degrees of pipelining."""
GROUPS = tuple(Fraction(2) ** power for power in (0, -1, -2, 1, 2))
AT_RUN_TIME = ("dispatch", "exchange", "expert_shards", "exchange_chunks")
"""What may change between steps: the parameters are the same, and lie where the plan says (Tutel section 3.2)."""


def choices_of(config: TransformerConfig, mesh: Mapping[str, int] | None) -> Choices:
    """The values of each setting that may be ``auto`` beside the others; ``config`` has those that are decided."""
    if not config.experts:
        return Choices(values={})
    by_hand = config.exchange in BY_HAND
    hidden = [axis.strip() for axis in (config.hidden_axes or "").split("+") if axis.strip()]
    return Choices(
        values={
            "gate": tuple(PUBLISHED),
            "groups": _groups(config),
            "dispatch": ("einsum", "index", "sorted"),
            "exchange": ("annotated", *BY_HAND) if len(config.owner_axes) == 2 else ("annotated", "manual"),
            "expert_shards": _shards(hidden, mesh or {}) if by_hand else (None,),
            "exchange_chunks": DEGREES if config.dispatch != "sorted" and config.expert_shards != 0 else (1,),
            "capacity_factor": _factors(config),
        },
        at_run_time=AT_RUN_TIME,
        by="capacity_factor",
        axes=(*config.replica_axes, *config.owner_axes, *hidden) if by_hand else (),
    )


def _groups(config: TransformerConfig) -> tuple[int, ...]:
    """The default, and a few times fewer and more, where they divide the tokens."""
    near = [times * config.group_count for times in GROUPS]
    return tuple(int(count) for count in near if count.denominator == 1 and config.tokens % count == 0)


def _factors(config: TransformerConfig) -> tuple[float, ...]:
    """Those that give whole slots; all where no factor is asked for, so that this is what is refused."""
    if config.capacity is not None or config.capacity_mode == "automatic":
        return FACTORS
    every = [(factor, replace(config, capacity_factor=factor)) for factor in FACTORS]
    slots = [(factor, one.slots(config.experts, config.group_tokens)) for factor, one in every]
    return tuple(factor for factor, count in slots if count >= 1 and count == int(count))


def _shards(hidden: Sequence[str], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """r from 0 on: the products of minor hidden axes."""
    named = [sizes.get(axis, 1) for axis in hidden]
    return (0, *sorted({math.prod(named[first:]) for first in range(len(named) + 1)}))
