"""What exact prices taught of a program: what choices take together beyond their costs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..wiring.wires import Wiring
from .account import Account
from .exact import Missed

FEW = 8
"""By how many choices solutions are told apart of which one took more, at most."""

Together = tuple[tuple[int, tuple[int, ...]], ...]
"""Nodes that decide, each with some of its choices."""


@dataclass(slots=True, kw_only=True)
class Learnt:
    """``missed_s`` is what some choices take together beyond their costs, exactly, where it is more.

    ``guess_s`` has for each node the same shared out among its choices: a guess of what they take in other company.
    ``known`` are the solutions so far, by the choice of each node, with what their clusters took more in all: nothing
    that is learnt charges one beyond that, though what others taught may hold for it too; ``corrected`` is how often
    something was taken back for that. ``account`` says what of that is decisive. What rough choices cost more, and what
    is to keep a search from others, is guessed once a solution is known (``guesses_rough``): before that what is solved
    bounds all others.
    """

    leader: NDArray[np.int64]
    guess_s: list[NDArray[np.float64]]
    account: Account | None = None
    missed_s: dict[Together, float] = field(default_factory=dict)
    known: list[tuple[Sequence[int], float]] = field(default_factory=list)
    corrected: int = 0
    guesses_rough: bool = False
    priced: int = 0

    @classmethod
    def nothing(cls, leader: NDArray[np.int64], wiring: Wiring) -> Learnt:
        """Nothing learnt yet of what the nodes of a program choose."""
        guess_s = [np.zeros(len(node.costs)) for node in wiring.nodes]
        return cls(leader=leader, guess_s=guess_s, account=Account.of(wiring))

    @property
    def state(self) -> tuple[int, int, int]:
        """What changes where anything is learnt, or taken back, or rough choices are priced."""
        return len(self.missed_s), self.corrected, self.priced

    def widen(self, wiring: Wiring) -> None:
        """Takes in that some nodes have more choices than before, behind those that they had."""
        more = (len(node.costs) - len(guess_s) for node, guess_s in zip(wiring.nodes, self.guess_s, strict=True))
        self.guess_s = [np.pad(guess_s, (0, new)) for guess_s, new in zip(self.guess_s, more, strict=True)]
        self.account = Account.of(wiring)

    def price_rough(self, wiring: Wiring, choices: Sequence[int]) -> bool:
        """Prices the choices of a solution that were rough, and those of the same node that may take no more; whether
        there were any. Of the others what they cost more is guessed from then.
        """
        nodes, guess_s, priced = wiring.nodes, self.guess_s, False
        for level in wiring.levels:
            for position, number in level.kernels.items():
                node, choice = nodes[number], choices[number]
                if choice not in node.rough:
                    continue
                kernel, priced, node.costs = level.program.kernels[position], True, node.costs.copy()
                for each in (choice, *sorted(node.rough.keys() - {choice}, key=node.costs.__getitem__)):
                    if each != choice and node.costs[each] > node.costs[choice]:
                        break
                    roughly_s = node.rough.pop(each)
                    node.costs[each] += node.times * wiring.strategies.exactly_s(level.graph, kernel, each)
                    guess_s[number][each] -= roughly_s if self.guesses_rough else 0.0
        if not self.guesses_rough:
            for node, guess in zip(nodes, guess_s, strict=True):
                for choice, more_s in (*node.rough.items(), *node.deterred.items()):
                    guess[choice] += more_s
            self.guesses_rough = True
        if priced:
            self.account, self.priced = Account.of(wiring), self.priced + 1
        return priced

    def learn(
        self,
        clusters: Sequence[Missed],
        choices: Sequence[int],
        costs: Sequence[NDArray[np.float64]],
        least_s: float,
    ) -> bool:
        """Takes in what clusters of nodes missed, each at least ``least_s``; whether anything is new. What hangs on the
        fast memory that others have is guessed alone: other solutions leave more of it.
        """
        found: dict[Together, float] = defaultdict(float)
        took: dict[Together, float] = defaultdict(float)
        for each in clusters:
            took[self._together(each, choices)] += each.seconds
            decisive = each if self.account is None else self.account.decisive(each)
            found[self._together(decisive, choices)] += decisive.own_s
            if each.seconds > 0:
                self._guess(each.nodes, each.seconds, choices, costs)
        more_s = sum(max(missed_s, 0.0) for missed_s in took.values())
        self._correct(choices, more_s, found)
        self.known.append((choices, more_s))
        new = False
        for together, missed_s in sorted(found.items(), key=lambda each: -each[1]):
            if together and missed_s >= least_s and together not in self.missed_s:
                apart = self._told_apart(together, choices, least_s)
                missed_s = min(missed_s, self._room_s(apart))
                if missed_s >= least_s and apart not in self.missed_s:
                    self.missed_s[apart] = missed_s
                    new = True
        return new

    def _told_apart(self, together: Together, choices: Sequence[int], least_s: float) -> Together:
        """Some choices of a solution together, with those that tell it apart from others that made them too and took no
        more, where these are few.
        """
        found = dict(together)
        for other, more_s in self.known:
            if holds(together, other) and more_s - self.charged_s(other) < least_s:
                pairs = zip(self.leader.tolist(), choices, other, strict=True)
                differing = {node: (own,) for node, own, their in pairs if own != their}
                found |= differing if len(differing) <= FEW else {}
        return tuple(sorted(found.items()))

    def _correct(self, choices: Sequence[int], more_s: float, found: Mapping[Together, float]) -> None:
        """Takes back what a solution is charged beyond what it took more, of what it was not seen to take itself."""
        wrong_s = self.charged_s(choices) - more_s
        held = [each for each in self.missed_s if holds(each, choices)]
        for each in sorted(held, key=lambda each: (found.get(each, 0.0), -self.missed_s[each])):
            back_s = min(wrong_s, self.missed_s[each])
            if back_s > 0:
                wrong_s -= back_s
                self.missed_s[each] -= back_s
                self.corrected += 1

    def _room_s(self, together: Together) -> float:
        """What may be charged for some choices together without charging a known solution more than it took."""
        holding = ((choices, more_s) for choices, more_s in self.known if holds(together, choices))
        return min((more_s - self.charged_s(choices) for choices, more_s in holding), default=math.inf)

    def _together(self, missed: Missed, choices: Sequence[int]) -> Together:
        allowed = {int(self.leader[node]): self._choices_like(node, choices[node]) for node in missed.nodes}
        for node, same in missed.read.items():
            decider = int(self.leader[node])
            allowed[decider] = allowed.get(decider, same) & same
        return tuple(sorted((node, tuple(sorted(each))) for node, each in allowed.items()))

    def _choices_like(self, node: int, choice: int) -> frozenset[int]:
        return frozenset((choice,)) if self.account is None else self.account.choices_like(node, choice)

    def _guess(
        self, members: Sequence[int], missed_s: float, choices: Sequence[int], costs: Sequence[NDArray[np.float64]]
    ) -> None:
        own = np.array([costs[member][choices[member]] for member in members]) + 1e-12
        for member, share in zip(members, own / own.sum(), strict=True):
            self.guess_s[member][choices[member]] += share * missed_s

    def charged_s(self, choices: Sequence[int]) -> float:
        """What was learnt of a solution, given by the choice of each node, beyond its costs."""
        return sum(missed_s for together, missed_s in self.missed_s.items() if holds(together, choices))


def holds(together: Together, choices: Sequence[int]) -> bool:
    """Whether a solution, given by the choice of each node, makes all of some choices."""
    return all(choices[node] in each for node, each in together)
