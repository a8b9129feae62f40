"""What exact prices taught of a program: what choices take together beyond their costs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..solver.problem import FORBIDDEN
from .exact import Missed
from .wires import Node

Together = tuple[tuple[int, tuple[int, ...]], ...]
"""Nodes that decide, each with some of its choices."""


@dataclass(slots=True, kw_only=True)
class Learnt:
    """``missed_s`` is what some choices take together beyond their costs, exactly, where it is more.

    ``guess_s`` has for each node the same shared out among its choices: a guess of what they take in other company.
    ``known`` are the solutions so far, by the choice of each node, with what their clusters took more in all: nothing
    that is learnt charges one beyond that, though what others taught may hold for it too; ``corrected`` is how often
    something was taken back for that.
    """

    leader: NDArray[np.int64]
    guess_s: list[NDArray[np.float64]]
    missed_s: dict[Together, float] = field(default_factory=dict)
    known: list[tuple[Sequence[int], float]] = field(default_factory=list)
    corrected: int = 0

    @classmethod
    def nothing(cls, leader: NDArray[np.int64], nodes: Sequence[Node]) -> Learnt:
        """Nothing learnt yet of what these nodes choose."""
        return cls(leader=leader, guess_s=[np.zeros(len(node.costs)) for node in nodes])

    @property
    def state(self) -> tuple[int, int]:
        """What changes where anything is learnt, or taken back."""
        return len(self.missed_s), self.corrected

    def widen(self, nodes: Sequence[Node]) -> None:
        """Takes in that some nodes have more choices than before, behind those that they had."""
        more = (len(node.costs) - len(guess_s) for node, guess_s in zip(nodes, self.guess_s, strict=True))
        self.guess_s = [np.pad(guess_s, (0, new)) for guess_s, new in zip(self.guess_s, more, strict=True)]

    def learn(
        self,
        clusters: Sequence[Missed],
        choices: Sequence[int],
        costs: Sequence[NDArray[np.float64]],
        least_s: float,
    ) -> bool:
        """Takes in what clusters of nodes missed, each at least ``least_s``; whether anything is new."""
        found: dict[Together, float] = defaultdict(float)
        for each in clusters:
            found[self._together(each, choices)] += each.seconds
            if each.seconds > 0:
                self._guess(each.nodes, each.seconds, choices, costs)
        more_s = sum(max(missed_s, 0.0) for missed_s in found.values())
        self._correct(choices, more_s, found)
        self.known.append((choices, more_s))
        new = False
        for together, missed_s in sorted(found.items(), key=lambda each: -each[1]):
            if together and missed_s >= least_s and together not in self.missed_s:
                missed_s = min(missed_s, self._room_s(together))
                if missed_s >= least_s:
                    self.missed_s[together] = missed_s
                    new = True
        return new

    def _correct(self, choices: Sequence[int], more_s: float, found: Mapping[Together, float]) -> None:
        """Takes back what a solution is charged beyond what it took more, of what it was not seen to take itself."""
        wrong_s = self.charged_s(choices) - more_s
        held = [each for each in self.missed_s if _holds(each, choices)]
        for each in sorted(held, key=lambda each: (found.get(each, 0.0), -self.missed_s[each])):
            back_s = min(wrong_s, self.missed_s[each])
            if back_s > 0:
                wrong_s -= back_s
                self.missed_s[each] -= back_s
                self.corrected += 1

    def _room_s(self, together: Together) -> float:
        """What may be charged for some choices together without charging a known solution more than it took."""
        holding = ((choices, more_s) for choices, more_s in self.known if _holds(together, choices))
        return min((more_s - self.charged_s(choices) for choices, more_s in holding), default=math.inf)

    def _together(self, missed: Missed, choices: Sequence[int]) -> Together:
        allowed = {int(self.leader[node]): frozenset((choices[node],)) for node in missed.nodes}
        for node, same in missed.read.items():
            decider = int(self.leader[node])
            allowed[decider] = allowed.get(decider, same) & same
        return tuple(sorted((node, tuple(sorted(each))) for node, each in allowed.items()))

    def _guess(
        self, members: Sequence[int], missed_s: float, choices: Sequence[int], costs: Sequence[NDArray[np.float64]]
    ) -> None:
        own = np.array([costs[member][choices[member]] for member in members]) + 1e-12
        for member, share in zip(members, own / own.sum(), strict=True):
            self.guess_s[member][choices[member]] += share * missed_s

    def charged_s(self, choices: Sequence[int]) -> float:
        """What was learnt of a solution, given by the choice of each node, beyond its costs."""
        return sum(missed_s for together, missed_s in self.missed_s.items() if _holds(together, choices))

    def alone(self) -> list[tuple[int, tuple[int, ...], float]]:
        """What choices of a node take beyond their cost, whatever the others choose: node, choices, seconds."""
        return [(*together[0], missed_s) for together, missed_s in self.missed_s.items() if len(together) == 1]

    def several(self) -> list[tuple[Together, float]]:
        """What several nodes take together."""
        return [(together, missed_s) for together, missed_s in self.missed_s.items() if len(together) > 1]


def _holds(together: Together, choices: Sequence[int]) -> bool:
    return all(choices[node] in each for node, each in together)


def company(
    together: Together, missed_s: float, counts: Mapping[int, int]
) -> tuple[NDArray[np.float64], dict[int, NDArray[np.float64]]]:
    """A node that takes ``missed_s`` if all of some nodes choose as said, and nothing else: its costs, and the table of
    each of those nodes, of ``counts`` choices, with it.

    Its first choice is to pay, and each other one to say which node chooses otherwise.
    """
    costs = np.zeros(len(together) + 1)
    costs[0] = missed_s
    tables = {}
    for position, (node, choices) in enumerate(together):
        tables[node] = np.zeros((counts[node], len(costs)))
        tables[node][list(choices), position + 1] = FORBIDDEN
    return costs, tables
