"""Where a draft goes wrong: which values propagation lays otherwise than they are to lie, which lines take longer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from ...dsl.plan import Plan
from ..estimate.figures import Estimate
from ..graph import Axes, Graph, Origin, Sharding
from .groups import Group

LARGE = 0.1  # of the largest group: what counts when a first cause is looked for
WORTH = 0.95  # of the time that is lost: what its suspects have to explain

Spot = tuple[str | None, str | None]


class Guide:
    """Knows a step's groups of values, and says which of them to annotate next."""

    def __init__(self, groups: Sequence[Group], graph: Graph, laid: Callable[[Plan], Graph | None]):
        self.groups = groups
        self.laid = laid
        self.order = {path: number for number, path in enumerate(_paths(graph))}
        self.spots = {group: set[Spot]() for group in groups}
        spots = dict(_spots(graph))
        for group in groups:
            self.spots[group] = {spots[_maker(path)] for path in group.paths if _maker(path) in spots}

    def first_cause(self, plan: Plan, tried: Collection[Group]) -> Group | None:
        """The first large group in the program, forward before backward, that lies wrongly under ``plan``."""
        graph = self.laid(plan)
        found = lies(graph) if graph else {}
        wrong = [group for group in self.groups if group not in tried and _is_wrong(group, found)]
        most = max((group.num_bytes for group in wrong), default=0)
        large = [group for group in wrong if group.num_bytes >= LARGE * most]
        return min(large, key=lambda group: (group.backward, self._position(group)), default=None)

    def _position(self, group: Group) -> int:
        return min(self.order.get(_maker(path), len(self.order)) for path in group.paths)

    def suspects(self, current: Estimate, better: Estimate, known: Collection[Group]) -> list[Group]:
        """The groups whose operations, or operands, take longer under one plan than under a better one.

        Those that explain most first, and as many as explain nearly all.
        """
        lost, least = seconds(current), seconds(better)
        excess = {spot: max(took_s - least.get(spot, 0.0), 0.0) for spot, took_s in lost.items()}
        blame = {g: max((excess.get(spot, 0.0) for spot in self.spots[g]), default=0.0) for g in self.groups}
        guilty = sorted((g for g in self.groups if blame[g] and g not in known), key=lambda g: -blame[g])
        enough = WORTH * sum(excess.get(spot, 0.0) for spot in set[Spot]().union(*(self.spots[g] for g in guilty)))
        found: list[Group] = []
        explained = set[Spot]()
        for group in guilty:
            if sum(excess.get(spot, 0.0) for spot in explained) >= enough and not self.spots[group] <= explained:
                break
            found.append(group)
            explained |= self.spots[group]
        return found


def seconds(estimate: Estimate) -> dict[Spot, float]:
    """What a step takes, by the place in the model that asks for it."""
    found: dict[Spot, float] = defaultdict(float)
    listed = [(k.origin, k.total_s) for k in estimate.kernels if k.counted]
    for origin, total_s in (*listed, *((c.origin, c.total_s) for c in estimate.collectives)):
        found[_spot(origin)] += total_s
    return found


def _spot(origin: Origin) -> Spot:
    return origin.source, origin.scope


def _maker(path: str) -> str:
    """The value whose operation a path belongs to: ``ops/f/dot_general.1.in0/2`` to ``ops/f/dot_general.1/2``."""
    return "/".join(_without_operand(segment) for segment in path.split("/"))


def _without_operand(segment: str) -> str:
    head, _, last = segment.rpartition(".")
    return head if head and last.startswith("in") and last[2:].isdigit() else segment


def _paths(graph: Graph) -> Iterator[str]:
    yield from (op.origin.value for _, op, _ in graph.walk() if op.origin.value)


def _spots(graph: Graph) -> Iterator[tuple[str, Spot]]:
    yield from ((op.origin.value, _spot(op.origin)) for _, op, _ in graph.walk() if op.origin.value)


def lies(graph: Graph) -> dict[str, Sharding]:
    """How the values of a laid out graph that have a path lie, by path."""
    found: dict[str, Sharding] = {}
    for each, op, _ in graph.walk():
        sharding = each.values[op.results[0]].sharding if op.origin.value and op.results else None
        if op.origin.value and sharding is not None:
            found[op.origin.value] = tuple(_whole(axes, graph.mesh) for axes in sharding)
    return found


def _whole(axes: Axes, sizes: Mapping[str, int]) -> Axes:
    """Axes with each one in the place of its parts (``x:(1)2``, ``x:(2)4``) where all of them follow each other."""
    names = tuple(dict.fromkeys(axis.partition(":")[0] for axis in axes))
    parts = tuple(part for name in names for part in sizes if part.partition(":")[0] == name)
    return names if parts == tuple(axes) else tuple(axes)


def _is_wrong(group: Group, found: Mapping[str, Sharding]) -> bool:
    """Whether some value of the group lies otherwise than it is to, as far as that is known."""
    return any(found.get(path, group.layout.axes) != group.layout.axes for path in group.paths)
