"""The choices of a kernel: which loop each axis of the mesh splits, and how what is added up is laid out after that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations_with_replacement, product
from typing import NamedTuple

from ....dsl.records import record
from ...graph import Sharding
from ..step.nest import Form, Meeting, Nest


@dataclass(frozen=True, slots=True)
class Split:
    """What one axis splits: a loop, and after it is added up another (None: every device has the sum). One place that
    is cut out of a loop is such a sum, unless it is ``kept`` where it is. Without the first what is viewed is split,
    and what it is a view of is not. If it is ``gathered``, the first splits what lies before a view, is gathered
    there, and the other splits what lies behind (None: nothing does).
    """

    loop: int | None = None
    then: int | None = None
    kept: bool = False
    gathered: bool = False


@record(frozen=True, slots=True)
class Choice:
    """What the axes split, each the one in ``splits``. ``layouts`` are those of the nest's forms, ``asking`` the
    operations whose devices need what others have, in order.
    """

    layouts: tuple[Sharding, ...]
    asking: tuple[int, ...]
    splits: tuple[Split, ...] = ()


Uses = tuple[int | None, ...]  # the loop of each form that an axis splits


class Way(NamedTuple):
    """A split, and the ``uses`` that the forms have of it; ``asking`` are the operations that ask others for it."""

    split: Split
    uses: Uses
    asking: frozenset[int]


@dataclass(frozen=True, slots=True)
class Bundled:
    """Only the choices that split along all axes of each group alike (``groups``: places among axes)."""

    groups: tuple[tuple[int, ...], ...]

    def picked(self, legal: Sequence[Mapping[Split, Way]]) -> Iterator[tuple[Way, ...]]:
        """What of each axis's ways is picked together."""
        first = [
            [split for split in legal[group[0]] if all(split in legal[axis] for axis in group)] for group in self.groups
        ]
        for several in product(*first):
            of = {axis: split for group, split in zip(self.groups, several, strict=True) for axis in group}
            yield tuple(ways[of[axis]] for axis, ways in enumerate(legal))


@dataclass(frozen=True, slots=True)
class Near:
    """Only the choices that are one of ``centres`` but for what one axis splits."""

    centres: tuple[tuple[Split, ...], ...]

    def picked(self, legal: Sequence[Mapping[Split, Way]]) -> Iterator[tuple[Way, ...]]:
        """What of each axis's ways is picked together."""
        found: dict[tuple[Split, ...], None] = {}
        for centre in self.centres:
            for axis, ways in enumerate(legal):
                found.update(dict.fromkeys((*centre[:axis], split, *centre[axis + 1 :]) for split in ways))
        for several in found:
            yield tuple(ways[split] for ways, split in zip(legal, several, strict=True))


@dataclass(frozen=True, slots=True)
class Counted:
    """Of the choices that differ in which of several axes of one size splits what only one (``alike``: places among
    axes): what is added up over devices is laid out along the last.
    """

    alike: tuple[tuple[int, ...], ...]

    def picked(self, legal: Sequence[Mapping[Split, Way]]) -> Iterator[tuple[Way, ...]]:
        """What of each axis's ways is picked together."""
        several = (combinations_with_replacement(legal[places[0]].values(), len(places)) for places in self.alike)
        for each in product(*several):
            found = dict(zip(chain(*self.alike), chain(*each), strict=True))
            yield tuple(found[place] for place in range(len(legal)))


Among = Bundled | Near | Counted


def by_size(mesh: Mapping[str, int]) -> dict[int, list[str]]:
    """The axes of a mesh by their sizes."""
    found: dict[int, list[str]] = {}
    for axis, size in mesh.items():
        found.setdefault(size, []).append(axis)
    return found


def counted(layout: Sharding, mesh: Mapping[str, int]) -> Sharding:
    """The layout as all are written that split each dim along as many axes of each size."""
    alike = by_size(mesh).values()
    return tuple(tuple(axis for axes in alike for axis in axes[: sum(each in axes for each in own)]) for own in layout)


def choices(
    nest: Nest, mesh: Mapping[str, int], among: Among | None = None, order: Sequence[str] | None = None
) -> Iterator[Choice]:
    """Every legal choice, or those ``among`` some; of axes that split one loop the major comes first in ``order``, by
    default that of the mesh.
    """
    axes = [axis for axis, size in mesh.items() if size > 1]
    options = [[(split, *_used(nest, split)) for split in _splits(nest, mesh[axis])] for axis in axes]
    legal = [{split: Way(split, uses, asking) for split, uses, asking in each if uses is not None} for each in options]
    writers = [_Layouts(form, nest, axes, mesh, order or axes) for form in nest.forms]
    every: Iterator[tuple[Way, ...]] = product(*(ways.values() for ways in legal))
    for picked in every if among is None else among.picked(legal):
        if not _divide(nest, [split for split, _, _ in picked], [mesh[axis] for axis in axes]):
            continue
        by_form = zip(*(uses for _, uses, _ in picked), strict=True) if picked else (() for _ in writers)
        last = tuple(split.then is not None for split, _, _ in picked) if isinstance(among, Counted) else ()
        layouts = tuple(writer.of(loops, last) for writer, loops in zip(writers, by_form, strict=True))
        if None not in layouts:
            asking = frozenset[int]().union(*(asking for _, _, asking in picked))
            yield Choice(layouts, tuple(sorted(asking)), tuple(split for split, _, _ in picked))  # type: ignore[arg-type]


def _splits(nest: Nest, size: int) -> Iterator[Split]:
    """What an axis of this size may split. What little is left of a dim is whole behind the cut where no axis of this
    size splits it there.
    """
    yield Split()
    loops = [n for n in range(len(nest.sizes)) if not nest.blocked[n] and _has_parts(nest, n, size)]
    for loop in loops:
        cuts = frozenset[int]() if loop in nest.ends else nest.cuts.get(loop, frozenset()) & {*loops}
        if not cuts:
            yield Split(loop)
        for then in loops if loop in nest.sums else ():
            if then != loop and then in (cuts or loops) and _is_after(nest, loop, then):
                yield Split(loop, then)
                if any(loop in form.places for form in nest.forms):
                    yield Split(loop, then, kept=True)
        if loop in nest.gathers:
            behind = {each for form in nest.forms if loop in form.gathered for each in form.loops}
            yield Split(loop, gathered=True)
            yield from (Split(loop, then, gathered=True) for then in loops if then != loop and then in behind)
    opened = (loop for loop in sorted(nest.opened) if _has_parts(nest, loop, size))
    yield from (Split(None, loop) for loop in (*(loop for loop in loops if loop in nest.views), *opened))


def _is_after(nest: Nest, loop: int, then: int) -> bool:
    """Whether what is added up over ``loop`` has the other."""
    return any(loop in form.after and then in form.loops and loop not in form.loops for form in nest.forms)


def _used(nest: Nest, split: Split) -> tuple[Uses | None, frozenset[int]]:
    """The loop that each form uses of a split, None where a form cannot, and the operations that ask others for it."""
    if split == Split():
        return (None,) * len(nest.forms), frozenset()
    uses = tuple(_loop(form, split) for form in nest.forms)
    if any(loop is not None and form.loops.count(loop) > 1 for loop, form in zip(uses, nest.forms, strict=True)):
        return None, frozenset()  # two dims go along one loop, and no axis splits both
    asking = (ops for meeting, ops in nest.meetings.items() if _asks(nest, meeting, uses))
    return uses, frozenset[int]().union(*asking)


def _loop(form: Form, split: Split) -> int | None:
    if split.loop is None:
        return split.then if split.then in form.viewed and split.then in form.loops else None
    if split.gathered and split.loop in form.gathered:
        return split.then if split.then in form.loops else None
    is_after = split.loop in form.after and split.then in form.loops
    if split.loop in form.loops and not (is_after and not split.kept and split.loop in form.places):
        return split.loop
    return split.then if is_after else None


def _asks(nest: Nest, meeting: Meeting, uses: Uses) -> bool:
    """Whether devices need what others have: parts of a loop that is needed whole, or of tensors split otherwise."""
    split = {uses[form] for form in meeting.forms} - {None}
    if len(split) > 1 or split & meeting.needs:
        return True
    return any(loop in nest.forms[form].loops and uses[form] != loop for loop in split for form in meeting.forms)


def _has_parts(nest: Nest, loop: int, count: int) -> bool:
    """Whether a loop has so many parts: it is divided by them, or the last ones are padded, which is where a loop makes
    a dim by itself (the compiler pads no dim that it goes through as several).
    """
    size = nest.sizes[loop]
    return size % count == 0 or (size > count and loop in nest.alone)


def _divide(nest: Nest, picked: Sequence[Split], sizes: Sequence[int]) -> bool:
    """Whether every loop has as many parts as the axes that split it ask for, before and after sums alike."""
    ways: dict[int | None, int] = {}
    for split, size in zip(picked, sizes, strict=True):
        for loop in (split.loop, split.then):
            ways[loop] = ways.get(loop, 1) * size
    return all(loop is None or _has_parts(nest, loop, count) for loop, count in ways.items())


class _Layouts:
    """The layouts of one form, by the loop that each axis splits of it."""

    def __init__(self, form: Form, nest: Nest, axes: Sequence[str], mesh: Mapping[str, int], order: Sequence[str]):
        self._form, self._nest, self._mesh = form, nest, mesh
        self._axes = sorted(enumerate(axes), key=lambda each: order.index(each[1]))
        self._known: dict[tuple[Uses, tuple[bool, ...]], Sharding | None] = {}

    def of(self, loops: Uses, last: tuple[bool, ...] = ()) -> Sharding | None:
        """The layout, that of some axes behind others; None where a minor loop of a dim would be split and a major one
        not all the way.
        """
        if (loops, last) not in self._known:
            self._known[loops, last] = self._written(loops, last)
        return self._known[loops, last]

    def _written(self, split: Uses, last: tuple[bool, ...]) -> Sharding | None:
        order = sorted(self._axes, key=lambda each: last[each[0]]) if any(last) else self._axes
        layout = []
        for loops in self._form.dims:
            axes: list[str] = []
            full = True
            for loop in loops:
                mine = [axis for place, axis in order if split[place] == loop]
                if mine and not full:
                    return None
                axes += mine
                ways = 1
                for axis in mine:
                    ways *= self._mesh[axis]
                full = full and ways == self._nest.sizes[loop]
            layout.append(tuple(axes))
        return tuple(layout)
