"""XLA's ways to split a gather or scatter: devices grouped by one class of its dims, the rest asked of each group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...graph import Axes
from ..layout import Mesh, overlap, ways
from .groups import Grouped, aligned, borrowed, grouped
from .matched import matched
from .problem import INDICES, OPERAND, SLICES, After, Ask, Lookup, Plan, Solve, Split, cost, joined

Way = Callable[[Lookup, Ask, Solve], Plan | None]


def solve(lookup: Lookup, ask: Ask) -> Plan:
    """The cheapest way first, its groups' own problem next, until nothing is split; batch dims before all else."""
    whole: Solve = lambda inner: _whole(lookup, inner)  # noqa: E731
    found = by_parallel(lookup, ask, lambda inner: solve(lookup, inner))
    if found is not None:
        return found
    plans = [(plan, way) for way in WAYS if (plan := way(lookup, ask, whole)) is not None]
    if not plans:
        return whole(ask)
    _, best = min(plans, key=lambda pair: cost(lookup, ask, pair[0])) if len(plans) > 1 else plans[0]
    return best(lookup, ask, lambda inner: solve(lookup, inner)) or whole(ask)


def _whole(lookup: Lookup, ask: Ask) -> Plan:
    """Every device of the group computes all."""
    wanted = ask.slices if lookup.is_gather else ask.result
    return Plan(paths=(({},), ({},), ({},)), made={}, after=(After(wanted),))


def by_parallel(lookup: Lookup, ask: Ask, solve_inner: Solve) -> Plan | None:
    """Grouped by the batch dims of operand and indices, as the one lies that splits them more; the other's copies are
    split as much, its devices counted anew.
    """
    found = matched(lookup, ask)
    if found is None:
        return None
    parts = [
        grouped(split, _of(split, lookup.parallel), ask.axes, lookup.order(which), lookup.mesh)
        for which, split in ((OPERAND, found.operand), (INDICES, found.indices))
    ]
    reference = parts[found.leads]
    group = _of((found.operand, found.indices)[found.leads], lookup.parallel)
    operand, indices = (aligned(part, reference, lookup) for part in parts)
    batch = _of(indices, lookup.batch)
    slices = {**batch, **_without(_of(operand, lookup.through), _axes(batch), lookup.mesh)}
    inner = Ask(operand=operand, indices=indices, slices=slices, result=operand, axes=reference.axes)
    return _finished(lookup, ask, inner, solve_inner, (group, group, group, group))


def by_through(lookup: Lookup, ask: Ask, solve_inner: Solve) -> Plan | None:
    """Grouped by the operand's dims that slices have whole."""
    group = _of(ask.operand, lookup.through)
    if not group:
        return None
    operand = grouped(ask.operand, group, ask.axes, lookup.order(OPERAND), lookup.mesh)
    slices = _merged(ask.slices, group, lookup.mesh)
    count = ways(operand.group, lookup.mesh)
    indices = borrowed(ask.indices, count, lookup.order(INDICES), ask.axes, lookup)
    inner = Ask(
        operand=operand.split,
        indices=aligned(indices, operand, lookup),
        slices=slices,
        result=operand.split,
        axes=operand.axes,
    )
    return _finished(lookup, ask, inner, solve_inner, (group, {}, group, group))


def by_looked_up(lookup: Lookup, ask: Ask, solve_inner: Solve) -> Plan | None:
    """Grouped by the operand's dims that are looked up: each device finds its own places, a gather is their sum."""
    group = _of(ask.operand, lookup.looked_up)
    if not group:
        return None
    operand = grouped(ask.operand, group, ask.axes, lookup.order(OPERAND), lookup.mesh)
    count = ways(operand.group, lookup.mesh)
    each = (*lookup.batch, *lookup.parallel)
    own = [f for f in lookup.order(SLICES) if f not in lookup.through] + [*lookup.through]

    def part(split: Split, dims: Sequence[int]) -> Grouped:
        return borrowed(split, count, dims, ask.axes, lookup)

    indices, slices = part(ask.indices, lookup.order(INDICES)), part(ask.slices, own)
    if indices.split and not slices.split:
        slices = part(_of(ask.indices, each), own)
    elif slices.split and not indices.split:
        indices = part(_of(ask.slices, each), lookup.order(INDICES))
    inner = Ask(
        operand=operand.split,
        indices=aligned(indices, operand, lookup),
        slices=aligned(slices, operand, lookup),
        result=operand.split,
        axes=operand.axes,
    )
    made = {} if lookup.is_gather else group
    summed = operand.group if lookup.is_gather else ()
    return _finished(lookup, ask, inner, solve_inner, (group, {}, {}, made), summed)


def by_batch(lookup: Lookup, ask: Ask, solve_inner: Solve) -> Plan | None:
    """Grouped by the indices' dims: each group does its own slices, a scatter is their sum."""
    own = (*lookup.batch, *lookup.parallel)
    group = _of(ask.indices, own)
    if not group:
        return None
    slices = _merged(ask.slices, group, lookup.mesh) if lookup.is_gather else {}
    reference = grouped({**slices, **group}, group, ask.axes, lookup.order(SLICES), lookup.mesh)
    count = ways(reference.group, lookup.mesh)
    dims = [*lookup.looked_up, *lookup.through]
    operand = aligned(borrowed(ask.operand, count, dims, ask.axes, lookup), reference, lookup)
    indices = _without(_cut(ask.indices, own), reference.group, lookup.mesh)
    inner = Ask(operand=operand, indices=indices, slices=slices, result=operand, axes=reference.axes)
    made = group if lookup.is_gather else {}
    summed = () if lookup.is_gather else reference.group
    return _finished(lookup, ask, inner, solve_inner, ({}, group, group, made), summed)


WAYS: tuple[Way, ...] = (by_through, by_looked_up, by_batch)


def _finished(
    lookup: Lookup, ask: Ask, inner: Ask, solve_inner: Solve, groups: Sequence[Split], summed: Axes = ()
) -> Plan:
    """The groups' plan, their results summed up if need be, and laid out as asked."""
    wanted = ask.slices if lookup.is_gather else ask.result
    plan = solve_inner(inner)
    now = joined(groups[-1], inner.slices if lookup.is_gather else inner.result)
    after = [After(now, summed)] if summed else []
    return plan.within(inner, groups, (*after, After(wanted)))


def _merged(wanted: Split, group: Split, mesh: Mesh) -> dict[int, Axes]:
    """What is left to ask for of a tensor once groups split it so: nothing where the two do not fit together."""
    rest = {f: axes for f, axes in wanted.items() if f not in group}
    fits = all(wanted.get(f, axes) == axes for f, axes in group.items())
    return rest if fits and not overlap(_axes(rest), _axes(group), mesh) else {}


def _of(split: Split, factors: Iterable[int]) -> dict[int, Axes]:
    return {f: split[f] for f in factors if split.get(f)}


def _cut(split: Split, factors: Sequence[int]) -> dict[int, Axes]:
    return {f: axes for f, axes in split.items() if f not in factors}


def _without(split: Split, axes: Axes, mesh: Mesh) -> dict[int, Axes]:
    return {f: own for f, own in split.items() if own and not overlap(own, axes, mesh)}


def _axes(split: Split) -> Axes:
    return tuple(axis for axes in split.values() for axis in axes)
