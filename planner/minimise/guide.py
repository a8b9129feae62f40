"""Where a draft goes wrong: which values propagation lays otherwise than they are to lie, and which make others so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...dsl.plan import Plan
from ..estimate.figures import Estimate
from ..graph import Graph, Sharding
from ..search.workload import lying
from .flow import Flow, Spot, spot_of
from .groups import Group

SMALL = 0.02  # of the largest value at a place: those with fewer bytes are the last to be a cause of what it takes
MOST_OF = 0.25  # of the greatest loss: the places that are looked at together
HEAVY = 2e-4  # of a step: the places that take more are kept as they are

NONE = frozenset[str]()

Lies = Callable[[Plan], Mapping[str, Sharding] | None]
Laid = Callable[[Plan], Graph | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A group to annotate for what takes so long without it. ``is_right`` where it lies as it is to all the same."""

    group: Group
    seconds: float
    is_right: bool = False


class Guide:
    """Knows a step's groups of values and what they are made of, and says which of them to annotate next.

    How values lie under a plan is known nearly (``lies``), and exactly where that explains nothing: it takes longer
    (``laid``).
    """

    def __init__(self, groups: Sequence[Group], flow: Flow, lies: Lies, laid: Laid):
        self.flow = flow
        self.groups = groups
        self._lies = lies
        self._laid = laid
        self._group: dict[str, Group] = {}
        self._operands: dict[str, list[Group]] = defaultdict(list)
        self._wanted: dict[str, Sharding] = {}
        for group in sorted(groups, key=lambda group: not group.is_tag):
            for maker in group.makers:
                if group.is_operand:
                    self._operands[flow.read_by.get(maker, maker)].append(group)
                else:
                    self._group.setdefault(maker, group)
                    self._wanted.setdefault(maker, group.layout.axes)
        self._bytes = {path: group.num_bytes / len(group.paths) for path, group in self._group.items()}
        self._products = {path: [self._group[path]] for path in flow.products if path in self._group}
        self._at: dict[Spot, list[str]] = defaultdict(list)
        for path, spot in flow.spots.items():
            self._at[spot].append(path)

    def wrong(self, plan: Plan) -> frozenset[str]:
        """The values that lie otherwise than they are to under ``plan``, nearly and as far as that is known."""
        return self._otherwise(self._lies(plan) or {})

    def exactly_wrong(self, plan: Plan) -> frozenset[str]:
        """The same, as the plan's price has them."""
        laid = self._laid(plan)
        return self._otherwise(lying(laid) if laid is not None else {})

    def _otherwise(self, found: Mapping[str, Sharding]) -> frozenset[str]:
        wanted = self._wanted
        return frozenset(path for path, sharding in found.items() if wanted.get(path, sharding) != sharding)

    def causes(self, wrong: Collection[str], blame: Mapping[Spot, float], kept: Collection[Group]) -> list[Cause]:
        """The groups that lie wrongly first in the program before places to blame: those that explain most of it.

        None where all that is blamed comes from values that lie as they are to.
        """
        explained = self._explained(self._open(wrong, kept), blame)
        ranked = sorted(explained, key=lambda group: -explained[group])
        least = MOST_OF * explained[ranked[0]] if ranked else 0.0
        return [Cause(group=group, seconds=explained[group]) for group in ranked if explained[group] >= least]

    def heirs(self, cause: Cause, wrong: Collection[str], kept: Collection[Group]) -> list[Cause]:
        """The groups that lie wrongly whose values are made of a cause's alone, or of such: it, moved or converted."""
        open_, family = self._open(wrong, kept), set(cause.group.makers)
        for path in sorted(open_, key=lambda path: self.flow.order.get(path, 0)):
            if self.flow.parents.get(path) and self.flow.parents[path] <= family:
                family.add(path)
        groups = dict.fromkeys(self._group[path] for path in family if path in open_)
        return [replace(cause, group=group) for group in groups if group is not cause.group]

    def unexplained(
        self, wrong: Collection[str], blame: Mapping[Spot, float], kept: Collection[Group]
    ) -> dict[Spot, float]:
        """Of the places to blame those where all comes from values that lie as they are to."""
        open_ = self._open(wrong, kept)
        return {spot: seconds for spot, seconds in blame.items() if self._first(spot, open_) is None}

    def beside(self, blame: Mapping[Spot, float], kept: Collection[Group], *, at_once: bool) -> list[Cause]:
        """What can be said of products at places, most to blame of those where there is something to say.

        That is of operands that a product reads otherwise than they are made, and, ``at_once`` or where all of these
        are said, of what it makes.
        """
        operands, made = self._beside(blame, kept, self._operands), self._beside(blame, kept, self._products)
        return [*operands, *made] if at_once or not operands else operands

    def _beside(
        self, blame: Mapping[Spot, float], kept: Collection[Group], said: Mapping[str, Sequence[Group]]
    ) -> list[Cause]:
        found: dict[Group, Cause] = {}
        for spot, seconds in blame.items():
            for path in self._at.get(spot, ()):
                for group in said.get(path, ()):
                    if group not in kept:
                        found.setdefault(group, Cause(group=group, seconds=seconds, is_right=True))
        least = MOST_OF * max((cause.seconds for cause in found.values()), default=0)
        return [cause for cause in found.values() if cause.seconds >= least]

    def _open(self, wrong: Collection[str], kept: Collection[Group]) -> frozenset[str]:
        """The values that lie wrongly and are not annotated yet."""
        settled = {maker for group in kept for maker in group.makers if not group.is_operand}
        return frozenset(path for path in wrong if path in self._group and path not in settled)

    def _explained(self, open_: frozenset[str], places: Mapping[Spot, float]) -> dict[Group, float]:
        """The groups that lie wrongly first before places, each with the seconds of those."""
        found: dict[Group, float] = defaultdict(float)
        for spot, seconds in places.items():
            root = self._first(spot, open_)
            if root is not None:
                found[self._group[root]] += seconds
        return found

    def _first(self, spot: Spot, open_: frozenset[str]) -> str | None:
        """The first value of the program that lies wrongly and of which a place makes something.

        Small ones count where no other does: the rows that a gather is asked for bring its table to where they lie.
        """
        around = [path for path in self._around(spot) if path in self._group]
        sizes = self._bytes
        large = SMALL * max((sizes[path] for path in around), default=0)
        for least in (large, 0.0):
            roots = {self._root(path, open_, least) for path in around if path in open_ and sizes[path] >= least}
            if roots:
                return min(roots, key=lambda path: self.flow.order.get(path, len(self.flow.order)))
        return None

    def _around(self, spot: Spot) -> Iterator[str]:
        """The values made at a place, and what they are made of; where none has a path what is read there."""
        made = self._at.get(spot, ())
        for path in made:
            yield path
            yield from self.flow.parents[path]
        if not made:
            yield from sorted(self.flow.unnamed.get(spot, ()))

    def _root(self, path: str, wrong: frozenset[str], least: float) -> str:
        """The first value of the program that ``path`` comes from by way of wrong values of so many bytes alone."""
        seen, stack, first = {path}, [path], path
        while stack:
            current = stack.pop()
            if self.flow.order.get(current, 0) < self.flow.order.get(first, 0):
                first = current
            parents = (self.flow.parents.get(current, NONE) - seen) & wrong
            before = [each for each in parents if self._bytes[each] >= least]
            seen.update(before)
            stack += before
        return first

    def at(self, places: Mapping[Spot, float]) -> list[Cause]:
        """All that can be said of values that are made at places, and of operands as they are read there."""
        found: dict[Group, Cause] = {}
        for spot, took_s in places.items():
            for path in self._at.get(spot, ()):
                own = [self._group[path]] if path in self._group else []
                for group in (*own, *self._operands.get(path, ())):
                    found.setdefault(group, Cause(group=group, seconds=took_s, is_right=True))
        return list(found.values())

    def deciding(self, places: Mapping[Spot, float], estimate: Estimate) -> dict[Spot, float]:
        """Those of these places that multiply, or where something is sent."""
        sent = {spot_of(each.origin) for each in estimate.collectives}
        multiplied = {self.flow.spots[path] for path in self.flow.products}
        return {spot: took_s for spot, took_s in places.items() if spot in sent or spot in multiplied}

    def first(self, wrong: Collection[str], places: Mapping[Spot, float], kept: Collection[Group]) -> list[Cause]:
        """The groups that lie wrongly first in the program before these places, all of them."""
        found = self._explained(self._open(wrong, kept), places)
        return [Cause(group=group, seconds=took_s) for group, took_s in found.items()]

    def heavy(self, estimate: Estimate, blamed: Collection[Spot]) -> frozenset[str]:
        """The values of the places that take long, or were blamed for something, and what they are made of."""
        least = HEAVY * estimate.step_time_s
        spots = {spot for spot, took_s in seconds(estimate).items() if took_s > least}
        return frozenset(path for spot in spots.union(blamed) for path in self._around(spot))


def blame(current: Estimate, better: Estimate, least: float) -> dict[Spot, float]:
    """The places that take longer under one plan than under a better one, by more than this share of the step."""
    lost, known = seconds(current), seconds(better)
    excess = {spot: took_s - known.get(spot, 0.0) for spot, took_s in lost.items()}
    return {spot: took_s for spot, took_s in excess.items() if took_s > least * better.step_time_s}


def seconds(estimate: Estimate) -> dict[Spot, float]:
    """What a step takes, by the place in the model that asks for it."""
    found: dict[Spot, float] = defaultdict(float)
    listed = [(k.origin, k.step_s) for k in estimate.kernels]
    for origin, total_s in (*listed, *((c.origin, c.total_s) for c in estimate.collectives)):
        found[spot_of(origin)] += total_s
    return found
