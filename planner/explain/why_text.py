"""What forcing something else costs, in a sentence and as tables."""

from __future__ import annotations

from typing import Protocol

from ..estimate.figures import Estimate
from ..search.report import tables as search_tables
from ..search.result import SearchResult
from .difference import difference_table
from .rows import Rows, binary, duration
from .where import where_tables

SAME = 1e-3  # of a step time: what differs by less is the same


class Forced(Protocol):
    """Something forced on a plan: the price before, with all else as it is, and solved again."""

    @property
    def text(self) -> str:
        """What is forced."""

    @property
    def before(self) -> Estimate:
        """The plan's own price."""

    @property
    def alone(self) -> Estimate | None:
        """The price with all else as it is; None where that is not legal."""

    @property
    def alone_problem(self) -> str:
        """Why it is not."""

    @property
    def solved(self) -> SearchResult:
        """The best plan with what is forced."""


def headline(why: Forced) -> str:
    """One sentence: what it costs."""
    after, status = why.solved.estimate, why.solved.status
    if after is None:
        said = {"infeasible": "no plan fits, which is proven", "unknown": "nothing was found in the time"}
        return f"With {why.text} {said.get(status, status)}."
    proven = "" if status == "optimal" else f" (at best {duration(why.solved.bound_s)}: the search was not over)"
    moved = after.peak_bytes - why.before.peak_bytes
    memory = f"{binary(abs(moved))} {'more' if moved > 0 else 'less'} memory" if moved else "the same memory"
    return f"With {why.text} a step {_time(why.before.step_time_s, after.step_time_s)}, {memory}{proven}. Predicted."


def tables(why: Forced) -> list[Rows]:
    """What changes in figures, where, and which tensors lie otherwise; where nothing fits, why."""
    after = why.solved.estimate
    if after is None:
        return [_three(why), *search_tables(why.solved)]
    difference = difference_table(why.before, after)
    return [_three(why), *([difference] if difference.rows else []), *where_tables(why.before, after)]


def _three(why: Forced) -> Rows:
    """The plan, the plan with one thing changed, the plan solved anew."""
    rows = (
        _row("the plan", why.before, ""),
        _row("with it, all else as it is", why.alone, why.alone_problem),
        _row("with it, all else solved again", why.solved.estimate, why.solved.status),
    )
    headers = ("", "a step", "communication", "a device", "")
    return Rows(title=f"{why.text}, predicted", headers=headers, rows=rows)


def _row(what: str, estimate: Estimate | None, note: str) -> tuple[str, ...]:
    if estimate is None:
        return what, "-", "-", "-", note
    fits = "" if estimate.fits else "does not fit"
    figures = duration(estimate.step_time_s), duration(estimate.comm_s), binary(estimate.peak_bytes)
    return what, *figures, ", ".join(word for word in (note, fits) if word)


def _time(before_s: float, after_s: float) -> str:
    moved_s = after_s - before_s
    if abs(moved_s) <= SAME * before_s:
        return f"takes as long ({duration(after_s)})"
    percent = f"{abs(moved_s) / before_s:.1%}" if before_s else "-"
    return f"takes {duration(abs(moved_s))} {'more' if moved_s > 0 else 'less'} ({percent}: {duration(after_s)})"
