"""Operations that follow their result's layout, or their operand's, dim by dim."""

from __future__ import annotations

from ..fusion.nature import ELEMENTWISE
from .factors import cut, layout_of, layouts, split_of
from .layout import used, whole
from .reshard import SLICE, reshard_steps
from .strategy import Asked, PartialSum, Strategy


def follow_result(asked: Asked) -> Strategy:
    """Every operand is laid out like the result along the dims that they share: XLA's way with elementwise ones."""
    factors = asked.op.factors
    if _moves_less_afterwards(asked):
        return Strategy(operands=asked.operands, made=asked.operands[:1])
    if factors is None:
        return _same_shape(asked)
    split = split_of(factors.results[0], asked.results[0], factors.sizes, asked.mesh)
    if split is None:
        return replicate(asked)
    split = cut(split, (*factors.replicated, *factors.permutation))
    operands = layouts(factors.operands, split, factors, asked.mesh)
    return Strategy(operands=operands, made=layouts(factors.results, split, factors, asked.mesh))


def _moves_less_afterwards(asked: Asked) -> bool:
    """Whether several operands of an operation that works number by number lie alike, but not as its result does.

    XLA then moves what it makes, not all that it reads; nor the one value that a square reads twice, though another may
    have it moved too (compiled for v3, v4 and v5e: optimisers that need gradients and their squares move both).
    """
    if asked.op.kind not in ELEMENTWISE or len(asked.op.operands) < 2 or len(asked.results) != 1:
        return False
    if len({*asked.operands}) > 1 or any(value.shape != asked.makes[0].shape for value in asked.reads):
        return False
    return any(step.kind != SLICE for step in reshard_steps(asked.operands[0], asked.results[0], asked.mesh))


def _same_shape(asked: Asked) -> Strategy:
    """Without factors: operands of the result's shape are laid out like it, all others are whole; so are all that give
    nothing.
    """
    if not asked.results:
        return replicate(asked)
    result = asked.results[0]
    like = [result if v.shape == asked.makes[0].shape else whole(len(v.shape)) for v in asked.reads]
    return Strategy(operands=tuple(like), made=asked.results)


def replicate(asked: Asked) -> Strategy:
    """Computed whole on every device."""
    return Strategy(
        operands=tuple(whole(len(v.shape)) for v in asked.reads),
        made=tuple(whole(len(v.shape)) for v in asked.makes),
    )


def nothing_read(asked: Asked) -> Strategy:
    """Constants and counters: each device makes its own part."""
    return Strategy(operands=asked.operands, made=asked.results)


def passed_through(asked: Asked) -> Strategy:
    """Barriers and tuples: what comes in goes out, each as its result is laid out."""
    if len(asked.results) == len(asked.operands):
        return Strategy(operands=asked.results, made=asked.results)
    return follow_result(asked)


def reduce_rule(asked: Asked) -> Strategy:
    """A reduction is computed as its operand lies; dims that are split and reduced leave partial sums."""
    factors = asked.op.factors
    if factors is None:
        return replicate(asked)
    split = split_of(factors.operands[0], asked.operands[0], factors.sizes, asked.mesh) or {}
    summed = tuple(axis for f in factors.reduction for axis in split.get(f, ()))
    return Strategy(
        operands=layouts(factors.operands, split, factors, asked.mesh),
        made=layouts(factors.results, split, factors, asked.mesh),
        sums=(PartialSum(summed),) if summed else (),
    )


def reshape_rule(asked: Asked) -> Strategy:
    """A reshape follows its result's layout where the operand can have it, else its operand's, else it is whole."""
    factors = asked.op.factors
    if factors is None or not used(asked.results[0]):
        return replicate(asked)
    sizes, mesh = factors.sizes, asked.mesh
    split = split_of(factors.results[0], asked.results[0], sizes, mesh)
    wanted = layout_of(factors.operands[0], split, sizes, mesh) if split is not None else None
    if wanted is not None:
        return Strategy(operands=(wanted,), made=asked.results)
    split = split_of(factors.operands[0], asked.operands[0], sizes, mesh)
    made = layout_of(factors.results[0], split, sizes, mesh) if split is not None else None
    if made is not None:
        return Strategy(operands=asked.operands, made=(made,))
    return replicate(asked)
