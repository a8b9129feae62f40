"""Tables of text, and figures as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MAX_ROWS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A table to show: its title, its columns' heads, its cells as text."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def columns(table: Rows) -> str:
    """The table in columns of plain text."""
    lines = [table.headers, *table.rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.headers))]
    cells = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
    return "\n".join([table.title, *(f"  {line}" for line in cells)])


def first(rows: Iterable[Sequence[str]], *, limit: int = MAX_ROWS) -> tuple[tuple[str, ...], ...]:
    """The first rows of a table that are shown; the last one says how many more there are."""
    listed = [tuple(row) for row in rows]
    if len(listed) <= limit:
        return tuple(listed)
    more = f"... {len(listed) - limit} more (--json has all)"
    return (*listed[:limit], (more, *("",) * (len(listed[0]) - 1)))


def binary(num_bytes: int) -> str:
    """Bytes as people read them: ``15.48 GiB``."""
    amount, unit = float(num_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(amount) < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{num_bytes} B" if unit == "B" else f"{amount:.2f} {unit}"


def duration(seconds: float | None) -> str:
    """Seconds as milliseconds; a dash where they are not known."""
    return "-" if seconds is None else f"{seconds * 1e3:.3f} ms"


def share(part: float | None, whole: float | None) -> str:
    """A part in percent of the whole."""
    return "-" if part is None or not whole else f"{part / whole:.1%}"


def giga(amount: float, unit: str) -> str:
    """FLOPs and the like, in thousands of millions."""
    return f"{amount / 1e9:.3f} G{unit}"
