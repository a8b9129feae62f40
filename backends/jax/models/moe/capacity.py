"""How many slots an expert's buffer has: the systems' formulas, and what is done where the need changes by the step.

Dims: G groups of S tokens, K choices a token, E experts, C slots of an expert for one group.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Literal, TypeVar

import jax
import jax.numpy as jnp

from .routing import Routing

T = TypeVar("T")

CapacityRule = Literal["gshard", "switch", "tutel", "flaxformer", "lingvo", "mtf", "fastmoe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """C, fixed or found anew each step.

    Shapes are static in a compiled program, so one that finds C anew has a branch for each of some sizes and takes, at
    run time, the smallest in which every choice that the gate kept has its slot. What the gate kept, and so every
    number, is what it would be at ``slots``; only the work differs. A branch is computed anew in the backward pass.
    """

    slots: int
    """C, at least 1, or the most that it may be. At a group's S tokens nothing is ever dropped for want of a slot."""
    smaller: tuple[int, ...] = ()
    """Smaller sizes to choose among, ascending; none where C is fixed."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """All sizes, ascending."""
        return (*self.smaller, self.slots)


def slots_of(rule: CapacityRule, factor: float, *, group_tokens: int, choices: int, experts: int) -> Fraction | int:
    """C by a system's formula, for ``group_tokens`` S, exactly. It may be a fraction by GShard's; the others round.

    GShard: K·f·S/E, 2N/(G·E) with f = 1 (section 2.2). Switch: f·S/E rounded down (equation 3). Tutel: k·int(f·⌈S/E⌉).
    Flaxformer: f·S/E rounded, at least 4: no factor K. Lingvo: f·S/E rounded down, then up to a multiple of 4, at least
    4. Mesh TensorFlow: f·S/E rounded down, at most S, at least 4. FastMoE: K·⌈f·S⌉/E rounded down.
    """
    share = Fraction(str(factor)) * group_tokens / experts
    match rule:
        case "gshard":
            return choices * share
        case "switch":
            return int(share)
        case "tutel":
            return choices * int(Fraction(str(factor)) * -(-group_tokens // experts))
        case "flaxformer":
            return max(round(share), 4)
        case "lingvo":
            return max(4, -(-int(share) // 4) * 4)
        case "mtf":
            return max(min(group_tokens, int(share)), 4)
        case "fastmoe":
            return choices * math.ceil(share * experts) // experts


def sizes_below(slots: int, least: int, *, step: float = 1.5) -> tuple[int, ...]:
    """Sizes from ``least`` up to but without ``slots``, each about ``step`` times the one before."""
    sizes, size = [], max(1, least)
    while size < slots:
        sizes.append(size)
        size = max(size + 1, math.ceil(size * step))
    return tuple(sizes)


def at_capacity(capacity: Capacity, routing: Routing, run: Callable[[int], T]) -> T:
    """``run(C)`` with the smallest size in which everything that ``routing`` keeps has its slot.

    ``routing`` was made for ``capacity.slots``.
    """
    if not capacity.smaller:
        return run(capacity.slots)
    needed = jnp.max(jnp.where(routing.kept, routing.slot, -1)) + 1
    index = jnp.searchsorted(jnp.array(capacity.sizes), needed)
    said: T = jax.lax.switch(index, [jax.checkpoint(partial(run, size)) for size in capacity.sizes])
    return said
