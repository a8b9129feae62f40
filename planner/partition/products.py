"""Matrix products and convolutions as loops for the choice of their split."""

from __future__ import annotations

from ..graph import Axes, Factors, Sharding
from ..images import CONVOLUTION
from .convolutions import by_groups, follow_window, is_product
from .dot import Choice, Loops, choose
from .dot.problem import Ask
from .elementwise import replicate
from .factors import Split, cut, kept, layouts, split_of
from .layout import ways
from .strategy import Asked, PartialSum, Strategy
from .windows import Window


def dot_rule(asked: Asked) -> Strategy:
    """A matrix product, split as XLA's partitioner chooses."""
    factors = asked.op.factors
    if factors is None or len(asked.operands) != 2:
        return replicate(asked)
    bits = (asked.reads[0].bits, asked.reads[1].bits, asked.makes[0].bits)
    loops = _loops(factors, bits, asked)
    choice = choose(loops, _ask(loops, asked))
    sums_go_round = choice.windowed is not None and choice.windowed.moving is None
    return Strategy(
        operands=(loops.layout(choice.left, 0), loops.layout(choice.right, 1)),
        paths=tuple(_path(loops, choice, side) for side in (0, 1, 2)),
        made=(loops.layout(choice.made if sums_go_round else choice.raw, 2),),
        sums=() if sums_go_round else tuple(_sums(loops, choice)),
        window=_window(loops, choice),
    )


def convolution_rule(asked: Asked) -> Strategy:
    """A convolution is a product over batch and features; dims of its window that are split exchange halos."""
    factors = asked.op.factors
    if factors is None:
        return replicate(asked)
    given = asked.op.attributes
    sides = zip((*asked.operands[:2], asked.results[0]), ("input", "kernel", "output"), strict=True)
    if any(layout[dim] for layout, side in sides for dim in given[f"{side}_spatial_dimensions"]):
        return follow_window(asked)
    return by_groups(asked) or dot_rule(asked)


def ragged_rule(asked: Asked) -> Strategy:
    """Products of groups of rows: of the groups and their rows each device has all. Where both operands are split along
    what is added up, each device's sums are partial; else they are split as their result is, and what splits one of
    them alone along sums does as far as that leaves it (compiled for v5e).
    """
    factors = asked.op.factors
    if factors is None:
        return replicate(asked)
    one, other = (
        kept(split_of(dims, layout, factors.sizes, asked.mesh) or {}, factors.reduction)
        for dims, layout in zip(factors.operands[:2], asked.operands[:2], strict=True)
    )
    larger, smaller = (one, other) if asked.reads[0].num_bytes > asked.reads[1].num_bytes else (other, one)
    alone = {**_apart_from(larger, smaller), **larger}
    wanted = split_of(factors.results[0], asked.results[0], factors.sizes, asked.mesh) or {}
    summed = {factor: axes for factor, axes in one.items() if other.get(factor) == axes}
    split = {**_apart_from(summed, cut(wanted, factors.replicated)), **summed}
    summed |= _apart_from(split, cut(alone, summed))
    split |= summed
    return Strategy(
        operands=layouts(factors.operands, split, factors, asked.mesh),
        made=layouts(factors.results, split, factors, asked.mesh),
        sums=tuple(PartialSum(axes) for axes in summed.values()),
    )


def _apart_from(taken: Split, split: Split) -> Split:
    """What of a split is along other axes than those that are taken."""
    axes = {axis for each in taken.values() for axis in each}
    return {factor: own for factor, own in split.items() if axes.isdisjoint(own)}


def _path(loops: Loops, choice: Choice, side: int) -> tuple[Sharding, ...]:
    """The layouts that an operand passes through on its way, or the result after its sums."""
    return tuple(loops.layout(split, side) for split in choice.paths[side])


def _loops(factors: Factors, bits: tuple[int, int, int], asked: Asked) -> Loops:
    left, right, result = ([dims[0] for dims in rule] for rule in (*factors.operands[:2], factors.results[0]))
    target = asked.target
    is_convolution = asked.op.kind == CONVOLUTION
    is_shared = not is_convolution or is_product(asked)  # windows do not tell XLA how others would have it
    return Loops(
        sizes=factors.sizes,
        left=tuple(left),
        right=tuple(right),
        result=tuple(result),
        bits=bits,
        mesh=asked.mesh,
        shapes=tuple(value.shape for value in (*asked.reads[:2], asked.makes[0])) if is_convolution else (),
        shared=asked.shared if is_shared and asked.shared else (False, False),
        window_flops_per_byte=target.window_flops_per_byte,
        fewest_parts=target.fewest_convolved if is_convolution else target.fewest_parts,
    )


def _ask(loops: Loops, asked: Asked) -> Ask:
    def split(factors: tuple[int, ...], layout: Sharding) -> dict[int, Axes]:
        return {f: axes for f, axes in zip(factors, layout, strict=True) if axes}

    return Ask(
        left=split(loops.left, asked.operands[0]),
        right=split(loops.right, asked.operands[1]),
        result=split(loops.result, asked.results[0]),
        axes=frozenset(axis for axis, size in asked.mesh.items() if size > 1),
    )


def _window(loops: Loops, choice: Choice) -> Window | None:
    if choice.windowed is None:
        return None
    factor, axes = choice.windowed.factor, choice.windowed.axes
    left, right, result = (
        rule.index(factor) if factor in rule else None for rule in (loops.left, loops.right, loops.result)
    )
    return Window(axes=axes, parts=ways(axes, loops.mesh), moving=choice.windowed.moving, dims=(left, right, result))


def _sums(loops: Loops, choice: Choice) -> list[PartialSum]:
    """The reductions one after the other, each with the layout that it leaves."""
    now, sums = dict(choice.raw), []
    for reduction in choice.reductions:
        for factor, axes in reduction.scattered.items():
            now[factor] = (*now.get(factor, ()), *axes)
        sums.append(PartialSum(reduction.axes, loops.layout(now, 2) if reduction.scattered else None))
    return sums
