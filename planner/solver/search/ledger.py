"""What a search may spend and has spent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Counts the problems climbed. The count bounds a search the same on every run; ``stop`` is for clocks and users."""

    stop: Callable[[], bool]
    step: float  # a better solution is better by at least this much
    left: int  # climbs that may still be made
    spent: int = field(default=0)

    def exhausted(self) -> bool:
        """Whether to end; a climb is paid for by asking."""
        self.spent += 1
        self.left -= 1
        return self.left < 0 or self.stop()
