"""What a search may spend and has spent."""

from __future__ import annotations

from dataclasses import dataclass

from ..arrays import Flags


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Counts the problems climbed. The count bounds a search the same on every run; ``halt`` is for clocks and users."""

    halt: Flags  # one
    step: float  # a better solution is better by at least this much
    left: int  # climbs that may still be made

    def exhausted(self) -> bool:
        """Whether to end; a climb is paid for by asking."""
        self.left -= 1
        return self.left < 0 or bool(self.halt[0])
