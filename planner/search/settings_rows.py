"""What a search tells of the settings that a plan left open: the combinations that it looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsRow:
    """A combination of settings. ``how`` its price was found: ``searched``, ``priced`` with other layouts, or not.

    ``why`` says why it has no plan. Times are predicted; ``bound_s`` is None where it has no plan, which is known.
    """

    settings: Mapping[str, Any]
    how: str
    bound_s: float | None
    step_time_s: float | None
    peak_bytes: int | None
    why: str

    def as_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsTried:
    """The combinations that were looked at, and how many were not because the time was over.

    ``weighty`` are the settings that may change what the step computes. ``table_total`` counts what could be priced for
    the table of what is best at run time, ``table_priced`` what was, or was refused.
    """

    rows: tuple[SettingsRow, ...]
    not_looked_at: int
    weighty: tuple[str, ...] = ()
    table_priced: int = 0
    table_total: int = 0

    def as_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "tried": [row.as_json() for row in self.rows],
            "not_looked_at": self.not_looked_at,
            "table_priced": self.table_priced,
            "table_total": self.table_total,
        }
