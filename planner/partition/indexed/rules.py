"""Gathers and scatters: what is split along the indexed dims, the rows passed through, or the indices."""

from __future__ import annotations

from ...graph import Sharding
from ..elementwise import replicate
from ..factors import split_of
from ..layout import local_shape
from ..strategy import Asked, PartialSum, Strategy
from .problem import RESULT, Ask, Lookup, Plan
from .ways import solve


def gather_rule(asked: Asked) -> Strategy:
    """A gather; where the indexed dim is split, each device looks up its own rows and the sum is the whole."""
    return _strategy(asked, is_gather=True)


def scatter_rule(asked: Asked) -> Strategy:
    """A scatter; split updates leave partial sums of the whole operand, a split indexed dim none."""
    return _strategy(asked, is_gather=False)


def _strategy(asked: Asked, *, is_gather: bool) -> Strategy:
    factors = asked.op.factors
    if factors is None or len(asked.operands) != (2 if is_gather else 3):
        return replicate(asked)
    slices = (factors.results[0], asked.makes[0], asked.results[0])
    if not is_gather:
        slices = (factors.operands[2], asked.reads[2], asked.operands[2])
    dims = (*factors.operands[:2], slices[0], factors.results[0])
    values = (*asked.reads[:2], slices[1], asked.makes[0])
    lookup = Lookup(factors=factors, dims=dims, values=values, mesh=asked.mesh, is_gather=is_gather)
    layouts = (*asked.operands[:2], slices[2], asked.results[0])
    splits = (split_of(d, s, factors.sizes, asked.mesh) or {} for d, s in zip(dims, layouts, strict=True))
    operand, indices, third, result = splits
    axes = tuple(axis for axis, size in asked.mesh.items() if size > 1)
    plan = solve(lookup, Ask(operand=operand, indices=indices, slices=third, result=result, axes=axes))
    return _written(asked, lookup, plan)


def _written(asked: Asked, lookup: Lookup, plan: Plan) -> Strategy:
    count = len(asked.operands)
    paths = [[lookup.layout(split, which) for split in path] for which, path in enumerate(plan.paths[:count])]
    made = now = lookup.layout(plan.made, RESULT)
    sums: list[PartialSum] = []
    last = max((i for i, step in enumerate(plan.after) if step.axes), default=-1)
    for step in plan.after[: last + 1]:
        layout = lookup.layout(step.split, RESULT)
        if step.axes:
            sums.append(PartialSum(step.axes))
        if layout != now:
            sums.append(PartialSum((), layout))
            now = layout
    after = tuple(lookup.layout(step.split, RESULT) for step in plan.after[last + 1 :])
    return Strategy(
        operands=tuple(path[-1] for path in paths),
        made=(made,),
        paths=(*(tuple(path[:-1]) for path in paths), after),
        sums=tuple(sums),
        attributes=_attributes(asked, paths[0][-1]) if lookup.is_gather else {},
    )


def _attributes(asked: Asked, operand: Sharding) -> dict[str, tuple[int, ...]]:
    sizes = asked.op.attributes.get("slice_sizes")
    shape = asked.reads[0].shape
    if sizes is None:
        return {}
    part = local_shape(shape, operand, asked.mesh)
    return {"slice_sizes": tuple(p if s == w else s for s, w, p in zip(sizes, shape, part, strict=True))}
