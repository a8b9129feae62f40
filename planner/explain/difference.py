"""What one plan costs or saves against another: time, memory by kind, bytes communicated by kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..estimate.figures import Estimate
from .rows import Rows, binary, duration

MANY = 10


def difference_table(before: Estimate, after: Estimate) -> Rows:
    """The figures that a change of plan moves, before and after; what stays the same is left out."""
    return Rows(
        title="What the change costs or saves, predicted",
        headers=("what", "before", "after", "change"),
        rows=tuple(_rows(before, after)),
    )


def difference_json(before: Estimate, after: Estimate) -> dict[str, Any]:
    """The same as plain JSON values: for each figure before, after and the difference; bytes and seconds."""
    return {
        "what": after.what,
        "time_s": {name: _change(a, b) for name, (a, b) in _times(before, after).items()},
        "peak_bytes": _change(before.peak_bytes, after.peak_bytes),
        "bytes_by_kind": _changes(before.bytes_by_kind, after.bytes_by_kind),
        "collective_bytes": _changes(before.collective_bytes, after.collective_bytes),
        "fits": {"before": before.fits, "after": after.fits},
    }


def _rows(before: Estimate, after: Estimate) -> Iterator[tuple[str, ...]]:
    for name, (was_s, is_s) in _times(before, after).items():
        yield from _row(name, was_s, is_s, duration)
    yield from _row("peak memory of a device", before.peak_bytes, after.peak_bytes, _bytes)
    yield from _kinds("memory", before.bytes_by_kind, after.bytes_by_kind)
    yield from _kinds("communicated", before.collective_bytes, after.collective_bytes)
    if before.fits != after.fits:
        yield "fits", _word(before.fits), _word(after.fits), "changed"


def _times(before: Estimate, after: Estimate) -> dict[str, tuple[float | None, float | None]]:
    return {
        "step": (before.step_time_s, after.step_time_s),
        "compute": (before.compute_s, after.compute_s),
        "not counted": (before.uncounted_s, after.uncounted_s),
        "communication": (before.comm_s, after.comm_s),
    }


def _kinds(what: str, before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    for kind in dict.fromkeys([*before, *after]):
        yield from _row(f"{what}: {kind}", before.get(kind, 0), after.get(kind, 0), _bytes)


def _row(
    what: str, before: float | None, after: float | None, shown: Callable[[float | None], str]
) -> Iterator[tuple[str, ...]]:
    if before == after:
        return
    if before is None or after is None:
        yield what, shown(before), shown(after), "-"
        return
    sign = "+" if after > before else "-"
    yield what, shown(before), shown(after), f"{sign}{shown(abs(after - before))}{_relative(before, after)}"


def _relative(before: float, after: float) -> str:
    """The change in percent; how many times as much it is where it is many times."""
    if not before:
        return ""
    return f" ({after / before:,.0f} times)" if after > MANY * before else f" ({after / before - 1:+.1%})"


def _bytes(num_bytes: float | None) -> str:
    return "-" if num_bytes is None else binary(int(num_bytes))


def _changes(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    return {kind: _change(before.get(kind, 0), after.get(kind, 0)) for kind in dict.fromkeys([*before, *after])}


def _change(before: float | None, after: float | None) -> dict[str, Any]:
    moved = None if before is None or after is None else after - before
    return {"before": before, "after": after, "change": moved}


def _word(fits: bool) -> str:
    return "yes" if fits else "no"
