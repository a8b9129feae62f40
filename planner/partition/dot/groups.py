"""Devices grouped by the axes of one class of a product's dims; what is left is a smaller product in each group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ...graph import Axes
from ..layout import halves, ways
from .looped import windowed
from .problem import Ask, Choice, Loops, Reduction, Split, axes_of, dropped, joined, renamed

Solve = Callable[[Ask], Choice]
Group = Callable[[Loops, Ask, bool, Solve], Choice | None]


def by_batch(loops: Loops, ask: Ask, matching: bool, solve: Solve) -> Choice | None:
    """Grouped by the batch dims, where an operand is split along them as often as the result."""
    batch = loops.batch
    left, right, result = (loops.parts(s, batch) for s in (ask.left, ask.right, ask.result))
    if result == 1 or result not in (left, right):
        return None
    group = _of(_batch_master(loops, ask), batch)
    if matching and any(_of(s, batch) != group for s in (ask.left, ask.right)):
        return None
    if left != right and not all(_fits_batch(loops, ask, side, result) for side in (0, 1)):
        return None
    mine, theirs = (_brought(loops, ask, split, group) for split in (ask.left, ask.right))
    inner = _inside(ask, group, mine, theirs, _aligned(ask.result, group))
    return solve(inner).within(inner, group, group, group)


def _brought(loops: Loops, ask: Ask, split: Split, group: Split) -> dict[int, Axes]:
    """An operand's split inside the groups of a batch: axes that it had along other dims and that now make the groups
    are replaced by spare ones, or their parts, where it is cut along the batch by those: permuted before.
    """
    other = {f: own for f, own in split.items() if f not in group}
    moved = set(axes_of(group)) & set(axes_of(other))
    spare = [axis for axis in sorted(ask.axes) if axis not in axes_of(split)]
    found = _elsewhere(loops, other, moved, spare) if moved else {}
    return found or _aligned(split, group)


def _fits_batch(loops: Loops, ask: Ask, side: int, batch_parts: int) -> bool:
    """Whether an operand can be split along the batch as often as the result: by axes that it has left over, or by all
    that split its free dims, or those that are summed over.
    """
    own, other = (ask.left, ask.right) if side == 0 else (ask.right, ask.left)
    more, rest = divmod(batch_parts, loops.parts(own, loops.batch))
    if rest:
        return False
    spare = ways((axis for axis in ask.axes if axis not in axes_of(own)), loops.mesh)
    summed = loops.parts(own, loops.contracted)
    free = loops.parts(own, (loops.left_free, loops.right_free)[side])
    if spare % more == 0 or summed == more:
        return True
    return free == more and summed == loops.parts(other, loops.contracted)


def _batch_master(loops: Loops, ask: Ask) -> Split:
    """Whose batch axes the others follow: the larger operand's where both agree in number, else the result's."""
    counts = [[loops.parts(s, (f,)) for f in loops.batch] for s in (ask.left, ask.right)]
    if counts[0] != counts[1]:
        return ask.result
    larger_left = loops.num_bytes(ask.left, 0) > loops.num_bytes(ask.right, 1)
    return ask.left if larger_left else ask.right


def by_free(loops: Loops, ask: Ask, matching: bool, solve: Solve) -> Choice | None:
    """Grouped by the dims of one operand that the result has too; the other operand is whole along those axes."""
    side, dims = _free_side(loops, ask, matching)
    if not dims:
        return None
    own, group = (ask.left, ask.right)[side], _of(ask.result, dims)
    if matching and _of(own, dims) != group:
        return None
    inner = _inside_free(loops, ask, side, group)
    made = solve(inner)
    return made.within(inner, group, {}, group) if side == 0 else made.within(inner, {}, group, group)


def _inside_free(loops: Loops, ask: Ask, side: int, group: Split) -> Ask:
    """What is asked of the groups that an operand's free dims make.

    Images that are gathered for a kernel's gradient are convolved in a loop of sums all the same (compiled on v5e, v5p
    and v6e).
    """
    own, other = (ask.left, ask.right) if side == 0 else (ask.right, ask.left)
    others = _whole_along(loops, ask, other, group, 1 - side)
    mine, result = _aligned(own, group), _aligned(ask.result, group)
    inner = _inside(ask, group, *((mine, others) if side == 0 else (others, mine)), result)
    stays_whole = side == 1 or loops.is_convolution
    if not stays_whole or not _shares_axes(other, group):
        return inner
    return replace(inner, gathered=True, may_sum=side == 1 and loops.is_convolution)


def _shares_axes(split: Split, other: Split) -> bool:
    return not set(axes_of(split)).isdisjoint(axes_of(other))


def _is_looped(loops: Loops, ask: Ask, side: int, dims: tuple[int, ...]) -> bool:
    """Whether the product in such groups would hide its collective in a loop of permutes, nothing gathered for them."""
    group = _of(ask.result, dims)
    if _shares_axes((ask.right, ask.left)[side], group):
        return False
    inner = _inside_free(loops, ask, side, group)
    splits = (inner.left, inner.right, inner.result)
    if any(0 < len(axes_of(split)) < len(inner.axes) for split in splits):
        return False
    return windowed(loops, inner, ways(inner.axes, loops.mesh)) is not None


def _free_side(loops: Loops, ask: Ask, matching: bool) -> tuple[int, tuple[int, ...]]:
    """Which operand's free dims group the devices, and which of them."""
    pairs = ((ask.left, loops.left_free), (ask.right, loops.right_free))
    have = [loops.parts(own, free) for own, free in pairs]
    asked = [loops.parts(ask.result, free) for _, free in pairs]
    may = [have[i] == asked[i] > 1 for i in (0, 1)]
    agree = [_of(own, free) == _of(ask.result, free) for own, free in pairs]
    if matching and all(may) and any(agree):
        may = agree
    if any(may):
        left_moves = have[0] * loops.num_bytes(ask.right, 1)
        right_moves = have[1] * loops.num_bytes(ask.left, 0)
        side = 0 if may[0] and (not may[1] or left_moves < right_moves) else 1
        if all(may) and loops.window_flops_per_byte is not None:
            looped = [_is_looped(loops, ask, i, tuple(f for f in pairs[i][1] if ask.result.get(f))) for i in (0, 1)]
            side = looped.index(True) if looped[0] != looped[1] else side
        return side, tuple(f for f in pairs[side][1] if ask.result.get(f))
    for side in (0, 1):
        if have[side] > 1 and asked[side] > 1:
            own, free = pairs[side]
            return side, tuple(f for f in free if 1 < loops.parts(own, (f,)) == loops.parts(ask.result, (f,)))
    return 0, ()


def _whole_along(loops: Loops, ask: Ask, other: Split, group: Split, side: int) -> dict[int, Axes]:
    """The other operand's split once it is whole along the group's axes."""
    axes = set(axes_of(group))
    if not axes & set(axes_of(other)):
        return dict(other)
    spare = tuple(axis for axis in sorted(ask.axes) if axis not in axes_of(other))
    if spare and ways(spare, loops.mesh) % ways(axes, loops.mesh) == 0:
        return {f: spare if set(own) & axes else own for f, own in other.items()}
    covered = [f for f, own in other.items() if own and set(own) <= axes]
    if {a for f in covered for a in other[f]} == axes:
        return {f: own for f, own in other.items() if f not in covered}
    free = loops.left_free if side == 0 else loops.right_free
    count = ways(axes, loops.mesh)
    contracted_fits = loops.parts(other, loops.contracted) == count
    free_fits = loops.parts(other, free) == count
    free_alike = loops.parts(other, free) == loops.parts(ask.result, free)
    gone = loops.contracted if contracted_fits and free_alike else free if free_fits else ()
    if gone:
        return dropped({f: own for f, own in other.items() if f not in gone}, axes)
    return _expected(loops, ask, axes, side)


def _expected(loops: Loops, ask: Ask, group: set[str], side: int) -> dict[int, Axes]:
    """How the result and the operand that groups the devices would have the other one: what is left of its split where
    nothing of it fits the groups.
    """
    mine, free = (ask.left, loops.right_free) if side == 1 else (ask.right, loops.left_free)
    found = dropped(_of(ask.result, (*loops.batch, *free)), group)
    summed = dropped(_of(mine, loops.contracted), group)
    return found if {*axes_of(found)} & {*axes_of(summed)} else {**found, **summed}


def by_contracted(loops: Loops, ask: Ask, matching: bool, solve: Solve) -> Choice | None:
    """Grouped by the dims that are summed over: each group holds a partial sum."""
    dims = _contracted_dims(loops, ask)
    if not dims:
        return None
    larger_left = loops.num_bytes(ask.left, 0) > loops.num_bytes(ask.right, 1)
    group = _of(ask.left if larger_left else ask.right, dims)
    if matching and any(_of(s, dims) != group for s in (ask.left, ask.right)):
        return None
    result, scattered = _summed_result(loops, ask, group)
    kept = axes_of(scattered)
    rest = tuple(axis for axis in axes_of(group) if scattered and axis not in kept)
    inner = _inside(ask, group, _aligned(ask.left, group), _aligned(ask.right, group), result)
    made = solve(inner).within(inner, group, group, {})
    reductions = [Reduction(kept or axes_of(group), scattered), *([Reduction(rest)] if rest else [])]
    first, second, third = made.paths
    paths = first, second, tuple(joined(split, scattered) for split in third)
    left_apart = joined(made.made, scattered)
    return replace(made, made=left_apart, paths=paths, reductions=(*reductions, *made.reductions))


def _contracted_dims(loops: Loops, ask: Ask) -> tuple[int, ...]:
    left, right = (loops.parts(s, loops.contracted) for s in (ask.left, ask.right))
    if left == right > 1:
        return loops.contracted
    if left > 1 and right > 1:
        return tuple(f for f in loops.contracted if 1 < loops.parts(ask.left, (f,)) == loops.parts(ask.right, (f,)))
    return ()


def _summed_result(loops: Loops, ask: Ask, group: Split) -> tuple[dict[int, Axes], dict[int, Axes]]:
    """The result's split in a group, and the dims over which the sum is scattered."""
    axes, result = set(axes_of(group)), ask.result
    taken = axes & set(axes_of(result))
    if not taken:
        return dict(result), {}
    covered = {f: own for f, own in result.items() if own and set(own) <= axes}
    unsplit = [a for a in sorted(ask.axes) if a not in axes_of(result)]
    if ways(unsplit, loops.mesh) % ways(axes, loops.mesh) == 0:
        return _elsewhere(loops, result, taken, [a for a in unsplit if a not in axes]), {}
    if axes - set(axes_of(covered)) in (set(), set(unsplit)):
        return {f: own for f, own in result.items() if f not in covered}, covered
    minor = {f: own[-len(axes) :] for f, own in result.items() if set(own[-len(axes) :]) == axes}
    major = {f: own[: -len(axes)] if f in minor else own for f, own in result.items()}
    inside = [_aligned(split, group) for split in (ask.left, ask.right)]
    if minor and not all(inside) and dropped(major, ()) in inside:
        return major, minor
    return {}, {}


def _elsewhere(loops: Loops, split: Split, taken: set[str], spare: list[str]) -> dict[int, Axes]:
    """A split with the axes that are taken replaced by spare ones, or their parts; empty where these are too few."""
    names: dict[str, str] = {}
    for axis in sorted(taken, key=lambda a: -ways((a,), loops.mesh)):
        size = ways((axis,), loops.mesh)
        other = next((s for s in spare if ways((s,), loops.mesh) % size == 0), None)
        if other is None:
            return {}
        spare.remove(other)
        same = ways((other,), loops.mesh) == size
        names[axis] = other if same or other not in loops.mesh else halves(other, size, loops.mesh)[0]
    return renamed(split, names)


def _of(split: Split, factors: Iterable[int]) -> dict[int, Axes]:
    return {f: split[f] for f in factors if split.get(f)}


def _aligned(split: Split, group: Split) -> dict[int, Axes]:
    """What a tensor's split is inside the groups: without the group's factors, its axes nowhere else."""
    return dropped({f: own for f, own in split.items() if f not in group}, axes_of(group))


def _inside(ask: Ask, group: Split, left: Split, right: Split, result: Split) -> Ask:
    axes = ask.axes - frozenset(axes_of(group))
    parts = frozenset(axis for axis in axes_of(result) if axis not in ask.axes)
    if parts:
        whole = frozenset(part.partition(":")[0] for part in parts)
        axes = (axes - whole) | parts if not whole & {*axes_of(left), *axes_of(right)} else axes
    outer = joined(ask.outer, group)
    found = {"gathered": ask.gathered, "may_sum": ask.may_sum}
    return Ask(left=left, right=right, result=result, axes=axes, outer=outer, **found)
