"""The reasons of a plan's choices in words, as a table, as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..estimate.figures import Estimate
from .reasons import Alternative, Reason
from .rows import Rows, binary, duration

SAME = 1e-3  # of the whole: what differs by less is the same
MOST = 60


def reason_table(listed: Sequence[Reason], estimate: Estimate) -> Rows:
    """A row for each alternative of each choice with what the step then takes; ``estimate`` is the plan's."""
    rows = [row for reason in listed for row in _rows(reason, estimate)]
    if len(rows) > MOST:
        more = f"... {len(rows) - MOST} more (--json has all)"
        rows = [*rows[:MOST], (more, "", "", "", "")]
    headers = ("choice", "instead", "a step", "a device", "reason")
    title = "Why each choice: what else could stand there, all else as it is, predicted"
    return Rows(title=title, headers=headers, rows=tuple(rows))


def reasons_json(listed: Sequence[Reason], estimate: Estimate) -> list[dict[str, Any]]:
    """The same as plain JSON values; seconds of a step, bytes of a device."""
    return [
        {
            "choice": reason.choice,
            "tensors": reason.tensors,
            "pinned": reason.pinned,
            "reason": sentence(reason, estimate),
            "alternatives": [_alternative_json(other) for other in reason.alternatives],
        }
        for reason in listed
    ]


def sentence(reason: Reason, estimate: Estimate) -> str:
    """What a choice is for: what it saves against the best of what could stand there."""
    said = ["pinned"] if reason.pinned else []
    if not reason.reached:
        return "; ".join([*said, "not priced: the time was over"])
    legal = [other for other in reason.alternatives if other.estimate is not None]
    same = [other for other in legal if other.estimate and _is_same(other.estimate, estimate)]
    others = [(other.what, other.estimate) for other in legal if other.estimate and other not in same]
    fitting = [(what, other) for what, other in others if other.fits]
    if fitting or (others and not estimate.fits):
        said.append(
            _against(*min(fitting or others, key=lambda pair: (pair[1].step_time_s, pair[1].peak_bytes)), estimate)
        )
    elif others:
        what, least = min(others, key=lambda pair: pair[1].peak_bytes)
        said.append(f"{what} does not fit: {binary(least.peak_bytes - (least.limit_bytes or 0))} too much")
    if same:
        said.append(f"{same[0].what}: the same")
    return "; ".join(said if legal else [*said, "nothing else is legal there"])


def _is_same(other: Estimate, estimate: Estimate) -> bool:
    """Whether neither time nor memory differs."""
    moved_s, moved = other.step_time_s - estimate.step_time_s, other.peak_bytes - estimate.peak_bytes
    return abs(moved_s) <= SAME * estimate.step_time_s and abs(moved) <= SAME * estimate.peak_bytes


def _against(what: str, other: Estimate, estimate: Estimate) -> str:
    saved_s = other.step_time_s - estimate.step_time_s
    percent = f"{abs(saved_s) / estimate.step_time_s:.1%}" if estimate.step_time_s else "-"
    if saved_s > SAME * estimate.step_time_s:
        return f"saves {duration(saved_s)} ({percent}): {what} is slower"
    if saved_s < -SAME * estimate.step_time_s:
        return f"costs {duration(-saved_s)} ({percent}): {what} is faster"
    saved = other.peak_bytes - estimate.peak_bytes
    return f"saves {binary(saved)}" if saved > 0 else f"{what} is as fast and takes {binary(-saved)} less"


def _rows(reason: Reason, estimate: Estimate) -> Iterator[tuple[str, ...]]:
    first, why = reason.choice, sentence(reason, estimate)
    for other in reason.alternatives:
        yield first, other.what, *_figures(other, estimate), why
        first = why = ""
    if not reason.alternatives:
        yield first, "-", "-", "-", why


def _figures(other: Alternative, estimate: Estimate) -> tuple[str, str]:
    if other.estimate is None:
        return "not legal", "-"
    moved_s = other.estimate.step_time_s - estimate.step_time_s
    moved = other.estimate.peak_bytes - estimate.peak_bytes
    time = f"{'-' if moved_s < 0 else '+'}{duration(abs(moved_s))}"
    memory = f"{'-' if moved < 0 else '+'}{binary(abs(moved))}"
    return time, memory if other.estimate.fits else f"{memory}, does not fit"


def _alternative_json(other: Alternative) -> dict[str, Any]:
    found = other.estimate
    return {
        "instead": other.what,
        "step_time_s": found.step_time_s if found else None,
        "comm_s": found.comm_s if found else None,
        "peak_bytes": found.peak_bytes if found else None,
        "fits": found.fits if found else None,
        "problem": other.problem or None,
    }
