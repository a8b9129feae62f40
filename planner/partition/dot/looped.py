"""Products whose collective is spread over a loop of permutes: XLA's windowed einsum, and when it pays."""

from __future__ import annotations

from ..layout import ways
from .problem import Ask, Choice, Loops, Reduction, Split, Windowed, axes_of, joined

MOST = 32
"""XLA's own limit of turns."""


def windowed(loops: Loops, ask: Ask, parts: int) -> Choice | None:
    """The product in a loop, or None where XLA makes none."""
    if loops.window_flops_per_byte is None or not loops.fewest_parts <= parts <= MOST:
        return None
    if ask.gathered:
        return _summed(loops, ask, parts) if ask.may_sum else None
    return _gathered(loops, ask, parts, 1) or _gathered(loops, ask, parts, 0) or _summed(loops, ask, parts)


def _gathered(loops: Loops, ask: Ask, parts: int, moving: int) -> Choice | None:
    """One operand stays and is laid out as the result; the parts of the other, split somewhere, go round."""
    own, other = (ask.right, ask.left) if moving == 1 else (ask.left, ask.right)
    free = loops.left_free if moving == 1 else loops.right_free
    stays = {f: ask.result[f] for f in free if ask.result.get(f)}
    if loops.parts(ask.result, free) != parts or any(other.get(f) != axes for f, axes in stays.items()):
        return None
    if loops.parts(own, own) != parts or loops.shared[moving]:
        return None
    if not _pays(loops, ask, parts, stays, loops.num_bytes(ask.outer, moving)):
        return None
    left, right = (stays, own) if moving == 1 else (own, stays)
    looped = Windowed(moving, axes_of(own), _widest(loops, own))
    return Choice(left=left, right=right, raw=stays, made=stays, windowed=looped)


def _summed(loops: Loops, ask: Ask, parts: int) -> Choice | None:
    """Both operands are split along the sum, the result along free dims of one: its partial sums go round."""
    contracted = loops.contracted
    if any(loops.parts(s, contracted) != parts for s in (ask.left, ask.right)):
        return None
    if not any(loops.parts(ask.result, free) == parts for free in (loops.left_free, loops.right_free)):
        return None
    split = ask.right if loops.num_bytes(ask.outer, 0) < loops.num_bytes(ask.outer, 1) else ask.left
    kept = {f: split[f] for f in contracted if split.get(f)}
    if not _pays(loops, ask, parts, kept, loops.num_bytes(ask.outer, 2)):
        return None
    looped = Windowed(None, axes_of(kept), _widest(loops, ask.result))
    reduction = Reduction(axes_of(kept), ask.result)
    return Choice(left=kept, right=kept, raw={}, made=ask.result, reductions=(reduction,), windowed=looped)


def _pays(loops: Loops, ask: Ask, parts: int, split: Split, num_bytes: int) -> bool:
    """Whether the product takes longer than the two permutes that the loop adds to the collective of these bytes."""
    flops = loops.flops(joined(ask.outer, split))
    return flops > 2 * num_bytes * (loops.window_flops_per_byte or 0.0) / parts


def _widest(loops: Loops, split: Split) -> int:
    return max(split, key=lambda factor: ways(split[factor], loops.mesh))
