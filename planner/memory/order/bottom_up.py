"""XLA's latency-hiding scheduler (``latency_hiding_scheduler.cc``, ``DefaultSchedulerCore``), as TPUs set it.

It goes through a program from its end. A node may come next once all that reads it is placed; which of these does,
rules say one after another, each among those that the ones before leave. What is sent is two nodes, a start and a done:
what stands between them hides it. A start may come before its time has passed, but whatever need not wait comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Nodes = list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedulable:
    """Nodes by number, in the order that there is so far.

    ``before`` are the nodes that each waits for, ``takes_s`` what each takes itself, ``reads`` the instructions that it
    reads, by any numbers. ``starts`` has the start of each done, ``sent_s`` the seconds that lie between the two,
    ``resource`` what a done takes from then on until its start gives it back, ``most`` how many may have it at a time,
    ``inside`` what is needed inside of a node, as of a loop.
    """

    before: Sequence[Sequence[int]]
    takes_s: Sequence[float]
    reads: Sequence[Sequence[int]]
    starts: Mapping[int, int]
    sent_s: Mapping[int, float]
    resource: Mapping[int, str]
    most: Mapping[str, int]
    inside: Mapping[int, frozenset[str]] = field(default_factory=dict)


def bottom_up(nodes: Schedulable) -> Nodes:
    """The order of the nodes."""
    return _BottomUp(nodes).run()


class _BottomUp:
    """What is placed so far, the last first, and what may come next, from when on without waiting."""

    def __init__(self, nodes: Schedulable) -> None:
        self.nodes = nodes
        self.done_of = {start: done for done, start in nodes.starts.items()}
        self.depths_s = self._depths_s()
        self.after: list[Nodes] = [[] for _ in nodes.before]
        for node, before in enumerate(nodes.before):
            for earlier in before:
                self.after[earlier].append(node)
        self.unplaced = [len(after) for after in self.after]
        self.readers: dict[int, int] = {}
        for reads in nodes.reads:
            for read in reads:
                self.readers[read] = self.readers.get(read, 0) + 1
        self.needs = [nodes.inside.get(node, frozenset[str]()) for node in range(len(self.after))]
        for node, kind in nodes.resource.items():
            self.needs[node] = frozenset([kind])
        self.in_use = dict.fromkeys(nodes.most, 0)
        self.now_s = 0.0
        self.placed_s = [0.0] * len(self.after)
        self.ready_s = [0.0] * len(self.after)
        self.ready = [node for node, count in enumerate(self.unplaced) if not count]
        self.placed: Nodes = []

    def _depths_s(self) -> list[float]:
        """The longest chain of what is sent up to each node, with its own."""
        depths = list[float]()
        for node, before in enumerate(self.nodes.before):
            depths.append(max([depths[earlier] for earlier in before], default=0.0) + self.nodes.sent_s.get(node, 0.0))
        return depths

    def run(self) -> Nodes:
        """The order."""
        while self.ready:
            free, needs = self.ready, self.needs
            if taken := {kind for kind, count in self.in_use.items() if count >= self.nodes.most[kind]}:
                free = [node for node in free if not needs[node] or needs[node].isdisjoint(taken)] or free
            node = self._best(free) if len(free) > 1 else free[0]
            self.ready.remove(node)
            self._place(node)
        return self.placed[::-1]

    def _best(self, free: Nodes) -> int:
        """The node that comes next, by the rules of ``ReadySetLt`` in their order."""
        starts, ready_s, now_s, depths_s = self.nodes.starts, self.ready_s, self.now_s, self.depths_s
        found = [node for node in free if node in starts] or free
        found = [node for node in found if ready_s[node] <= now_s] or _least(found, ready_s)
        if begins := [node for node in found if node in self.done_of]:
            awaited = [node for node in begins if self._is_awaited(node)]
            found = awaited or [node for node in found if depths_s[node] or node not in self.done_of] or found
        deepest = max([depths_s[node] for node in found])
        found = [node for node in found if depths_s[node] == deepest]
        if len(found) > 1:
            found = self._wasting_least(found)
        if len(found) > 1:
            before = self.nodes.before
            found = [node for node in found if any(earlier in starts for earlier in before[node])] or found
        if len(found) > 1:
            lets = [self._lets(node) for node in found]
            most = max(lets)
            found = [node for node, count in zip(found, lets, strict=True) if count == most]
        return max(found)

    def _is_awaited(self, start: int) -> bool:
        """Whether others have to wait until this starts; what nothing was sent for and nobody waits for starts last."""
        kind = self.nodes.resource[self.done_of[start]]
        if self.in_use[kind] < self.nodes.most[kind]:
            return False
        return any(self.nodes.resource.get(other) == kind for other in self.ready)

    def _wasting_least(self, found: Nodes) -> Nodes:
        """Those that take about as long as there is to wait for."""
        later = [self.ready_s[node] for node in self.ready if self.ready_s[node] > self.now_s]
        if not later:
            return found
        left_s = min(later) - self.now_s
        wasted = {node: abs(left_s - self.nodes.takes_s[node]) for node in found}
        least = min((wasted[node] for node in found if node not in self.done_of), default=None)
        return found if least is None else [node for node in found if wasted[node] <= least]

    def _lets(self, node: int) -> int:
        """How many of those that it reads may come once it is placed."""
        return sum([self.readers[read] == 1 for read in self.nodes.reads[node]])

    def _place(self, node: int) -> None:
        nodes = self.nodes
        kind, ends = nodes.resource.get(node), nodes.resource.get(self.done_of.get(node, -1))
        if kind is not None:
            self.in_use[kind] += 1
        if ends is not None:
            self.in_use[ends] -= 1
        self.placed.append(node)
        self.placed_s[node] = max(self.now_s, self.ready_s[node])
        self.now_s = self.placed_s[node] + nodes.takes_s[node]
        for read in nodes.reads[node]:
            self.readers[read] -= 1
        for earlier in nodes.before[node]:
            self.unplaced[earlier] -= 1
            if not self.unplaced[earlier]:
                sent_s = nodes.sent_s.get(node, 0.0)
                self.ready_s[earlier] = max(self.now_s, self.placed_s[node] + sent_s)
                self.ready.append(earlier)


def _least(found: Nodes, numbers: Sequence[float]) -> Nodes:
    least = min([numbers[node] for node in found])
    return [node for node in found if numbers[node] == least]
