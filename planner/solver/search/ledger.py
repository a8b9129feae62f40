"""What a search may spend and has spent."""

from __future__ import annotations

from dataclasses import dataclass

from ..arrays import Flags
from ..problem import Problem

OVERHEAD = 200_000  # of any climb: reducing, laying out


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Counts work in table entries passed over, which bounds a search the same on every run.

    ``halt`` is for clocks and users.
    """

    halt: Flags  # one
    step: float  # a better solution is better by at least this much
    left: float  # work that may still be done

    @property
    def exhausted(self) -> bool:
        """Whether to end."""
        return self.left <= 0 or bool(self.halt[0])

    def charge(self, problem: Problem, sweeps: int) -> None:
        """Takes note of a climb."""
        self.left -= OVERHEAD + 2.0 * sweeps * (len(problem.tables) + len(problem.usages))

    def part(self, left: float) -> Ledger:
        """A ledger for a part of the work; what it spends must be settled."""
        return Ledger(halt=self.halt, step=self.step, left=min(left, self.left))
