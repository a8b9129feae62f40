"""Looks for a solution that fits beside those that do not: one choice changed at a time, each priced exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...memory import Memory
from .exact import held_bytes

FEW = 12
"""So many other choices of a node are looked at, those that cost least."""
FOLLOWING = 12
"""So many nodes may have to choose otherwise for one that does, or may choose what costs less beside it."""
POWER, LESS = 24, 1e-4
"""Of the norm over a step's points that a descent lowers, and by what part of it a solution has to be lower: the peak
alone stays where several points are as high.
"""

Choices = NDArray[np.int64]


class Moves:
    """What each node that decides may choose instead, by its place: ``costs`` are the seconds of the choices, ``near``
    the other nodes that it shares a table of seconds with.
    """

    def __init__(self, costs: list[NDArray[np.float64]], tables: Mapping[tuple[int, int], NDArray[np.float64]]) -> None:
        self.costs = [np.asarray(own, np.float64) for own in costs]
        self.near: list[list[tuple[int, NDArray[np.float64]]]] = [[] for _ in costs]
        for (a, b), table in tables.items():
            self.near[a].append((b, table))
            self.near[b].append((a, table.T))

    def others(self, node: int, chosen: Choices) -> Iterator[Choices]:
        """The solution with a node choosing otherwise, what costs least first; who may not choose as it does beside
        that follows.
        """
        seconds = self.costs[node].copy()
        for other, table in self.near[node]:
            own = table[:, chosen[other]]
            seconds = seconds + np.where(np.isfinite(own), own, table[np.isfinite(table)].max(initial=0.0))
        seconds[chosen[node]] = np.inf
        for choice in np.argsort(seconds, kind="stable")[:FEW]:
            found = self._followed(node, int(choice), chosen) if np.isfinite(seconds[choice]) else None
            if found is not None:
                yield found

    def suited(self, node: int, chosen: Choices) -> Iterator[Choices]:
        """The same, those around the node choosing what costs least beside that, where that changes something: of
        several that have to lie otherwise to take less no single one may.
        """
        for other in self.others(node, chosen):
            suited = self._suited(node, other)
            if not np.array_equal(suited, other):
                yield suited

    def more_s(self, chosen: Choices, other: Choices) -> float:
        """The seconds that another solution costs more."""
        changed = {int(node) for node in np.flatnonzero(chosen != other)}
        return sum(self._seconds(node, other, changed) - self._seconds(node, chosen, changed) for node in changed)

    def _seconds(self, node: int, chosen: Choices, changed: set[int]) -> float:
        """The costs of a node, and of pairs with it, each once where both are among those ``changed``."""
        pairs = (
            float(table[chosen[node], chosen[other]])
            for other, table in self.near[node]
            if other not in changed or node < other
        )
        return float(self.costs[node][chosen[node]]) + sum(pairs)

    def _followed(self, node: int, choice: int, chosen: Choices) -> Choices | None:
        found = chosen.copy()
        found[node] = choice
        settled, waiting = {node}, [node]
        for here in waiting:
            for other, table in self.near[here]:
                if np.isfinite(table[found[here], found[other]]):
                    continue
                if other in settled or len(settled) > FOLLOWING or not self._follow(other, found, settled):
                    return None
                settled.add(other)
                waiting.append(other)
        return found

    def _suited(self, node: int, chosen: Choices) -> Choices:
        """The solution with those around a node choosing what costs least, one after the other, then those around them
        if they choose otherwise now.
        """
        found = chosen.copy()
        settled, waiting = {node}, [other for other, _ in self.near[node]]
        for here in waiting:
            if here in settled or len(settled) > FOLLOWING:
                continue
            settled.add(here)
            seconds = self.costs[here].copy()
            for other, table in self.near[here]:
                seconds = seconds + table[:, found[other]]
            best = int(np.argmin(seconds))
            if seconds[best] < seconds[found[here]]:
                found[here] = best
                waiting += [other for other, _ in self.near[here]]
        return found

    def _follow(self, node: int, found: Choices, settled: set[int]) -> bool:
        """Has a node choose what may stand beside those that are settled; whether there is such a choice."""
        seconds = self.costs[node].copy()
        for other, table in self.near[node]:
            own = table[:, found[other]]
            seconds = seconds + (own if other in settled else np.where(np.isfinite(own), own, 0.0))
        found[node] = int(np.argmin(seconds))
        return bool(np.isfinite(seconds[found[node]]))


@dataclass(slots=True, kw_only=True)
class Lowering:
    """Descents into a limit, by the memory that a solution ``takes``, until so many are looked at or the time has
    ``ended``. ``place`` has for each node of the step the one that decides for it.
    """

    moves: Moves
    takes: Callable[[Choices], Memory]
    place: NDArray[np.int64]
    limit_bytes: int
    most: int
    ended: Callable[[], bool]
    known: dict[tuple[int, ...], int] = field(default_factory=dict)

    @property
    def least(self) -> tuple[int, Choices] | None:
        """The least peak that was seen, and what has it."""
        chosen = min(self.known, key=self.known.__getitem__, default=None)
        return None if chosen is None else (self.known[chosen], np.array(chosen, np.int64))

    def into(self, chosen: Choices, part: float = 1.0) -> Choices | None:
        """A solution that fits, if the descent from one that does not comes to one, in a part of the looks left."""
        held, idle = self._look(chosen), Counter[int]()
        most = len(self.known) + part * (self.most - len(self.known))
        while held.peak_bytes > self.limit_bytes:
            lower = self._lower(chosen, held, idle) if len(self.known) < most else None
            if lower is None:
                return None
            chosen, held = lower
        return chosen

    def quicker(self, chosen: Choices) -> Iterator[Choices]:
        """Of a solution that fits, those beside it that fit and cost less, the one that saves most first."""
        moves = self.moves.others, self.moves.suited
        beside = (other for several in moves for node in range(len(chosen)) for other in several(node, chosen))
        saving = [(more_s, other) for other in beside if (more_s := self.moves.more_s(chosen, other)) < 0]
        for _, other in sorted(saving, key=lambda each: each[0]):
            if self._is_over:
                return
            if tuple(other) not in self.known and self._look(other).peak_bytes <= self.limit_bytes:
                yield other

    @property
    def _is_over(self) -> bool:
        return len(self.known) >= self.most or self.ended()

    def _look(self, chosen: Choices) -> Memory:
        held = self.takes(chosen)
        self.known[tuple(chosen)] = held.peak_bytes
        return held

    def _lower(self, chosen: Choices, held: Memory, idle: Counter[int]) -> tuple[Choices, Memory] | None:
        """A solution beside one that takes less memory, at its peak or where it takes nearly as much. Nodes that were
        ``idle``, none of whose choices did before, come later; what changes several is looked at where no choice does.
        """
        enough = pressure(held) * (1 - LESS)
        order = sorted(self._order(held), key=idle.__getitem__)
        for several in (self.moves.others, self.moves.suited):
            for node in order:
                for other in several(node, chosen):
                    if tuple(other) in self.known:
                        continue
                    if self._is_over:
                        return None
                    found = self._look(other)
                    if found.peak_bytes <= self.limit_bytes or pressure(found) < enough:
                        return other, found
                idle[node] += 1
        return None

    def _order(self, held: Memory) -> list[int]:
        """The nodes whose values take most at the peak first, then those beside them."""
        own = [0] * len(self.moves.costs)
        for node, num_bytes in held_bytes(held.tensors).items():
            own[self.place[node]] += num_bytes
        beside = [sum(own[other] for other, _ in near) for near in self.moves.near]
        return sorted(range(len(own)), key=lambda node: (-own[node], -beside[node], node))


def pressure(held: Memory) -> float:
    """The bytes at a step's points as one figure, most of it from those near the peak."""
    peak = float(max(held.peak_bytes, 1))
    at = np.array([held.constant_bytes + point.num_bytes for point in held.points] + [held.peak_bytes], np.float64)
    return float(peak * ((at / peak) ** POWER).sum() ** (1 / POWER))
