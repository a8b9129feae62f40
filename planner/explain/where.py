"""Where two plans of a step differ: lines whose compute or communication changes, tensors that lie otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..estimate.figures import Estimate, PredictedCollective, PredictedKernel
from ..estimate.scope import NOWHERE, short_source
from ..graph import Sharding
from .communication import asked_by, axes_text
from .rows import Rows, binary, duration, first

LEAST = 1e-4  # of the step: lines that change by less are not shown
NOTHING = (0.0, 0)

Key = tuple[str, str]
Taken = tuple[float, int]  # seconds, bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one line's compute, or one line's collectives of a kind over the same axes, take before and after."""

    line: str
    what: str
    before_s: float
    after_s: float
    before_bytes: int = 0
    after_bytes: int = 0

    @property
    def moved_s(self) -> float:
        """Seconds more than before."""
        return self.after_s - self.before_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Tensors that lie otherwise: what they have in common is how they lay and how they lie."""

    paths: tuple[str, ...]
    before: Sharding
    after: Sharding


def changes(before: Estimate, after: Estimate) -> list[Change]:
    """The lines whose compute or collectives change, those that change most first."""
    found = _changes(_totals(before), _totals(after))
    return sorted(found, key=lambda change: (-abs(change.moved_s), change.line, change.what))


def moved(before: Estimate, after: Estimate) -> list[Moved]:
    """The arguments and results that lie otherwise, the largest group first; the axes' names are both plans'."""
    was = {tensor.path: tensor.axes for tensor in before.tensors}
    groups: dict[tuple[Sharding, Sharding], list[str]] = {}
    for tensor in after.tensors:
        if was.get(tensor.path, tensor.axes) != tensor.axes:
            groups.setdefault((was[tensor.path], tensor.axes), []).append(tensor.path)
    found = [Moved(paths=tuple(paths), before=a, after=b) for (a, b), paths in groups.items()]
    return sorted(found, key=lambda one: -len(one.paths))


def where_tables(before: Estimate, after: Estimate) -> list[Rows]:
    """The changes as tables; those without a row are left out."""
    least_s = LEAST * max(before.step_time_s, after.step_time_s)
    lines = (_row(change) for change in changes(before, after) if abs(change.moved_s) >= least_s)
    headers = ("asked for by", "what", "before", "after", "change", "bytes before", "bytes after")
    tensors = ((_names(one.paths), layout_text(one.before), layout_text(one.after)) for one in moved(before, after))
    made = [
        Rows(title="Where it costs or saves, predicted", headers=headers, rows=first(lines)),
        Rows(title="What lies otherwise", headers=("tensors", "before", "after"), rows=first(tensors)),
    ]
    return [table for table in made if table.rows]


def where_json(before: Estimate, after: Estimate) -> dict[str, Any]:
    """The same as plain JSON values, every line."""
    return {
        "changes": [
            {
                "source": change.line,
                "what": change.what,
                "time_s": {"before": change.before_s, "after": change.after_s, "change": change.moved_s},
                "bytes": {"before": change.before_bytes, "after": change.after_bytes},
            }
            for change in changes(before, after)
        ],
        "layouts": [
            {"paths": list(one.paths), "before": list(map(list, one.before)), "after": list(map(list, one.after))}
            for one in moved(before, after)
        ],
    }


def layout_text(layout: Sharding) -> str:
    """A layout as a plan writes it, its dims without names."""
    if not any(layout):
        return "replicate"
    return " ".join(f"_@{'+'.join(axes)}" if axes else "_" for axes in layout)


def _changes(before: Mapping[Key, Taken], after: Mapping[Key, Taken]) -> Iterator[Change]:
    for line, what in dict.fromkeys([*before, *after]):
        was, now = before.get((line, what), NOTHING), after.get((line, what), NOTHING)
        if was != now:
            yield Change(line=line, what=what, before_s=was[0], after_s=now[0], before_bytes=was[1], after_bytes=now[1])


def _totals(estimate: Estimate) -> dict[Key, Taken]:
    """Seconds and bytes of a step by line: compute, and collectives by kind and axes."""
    totals: dict[Key, Taken] = {}
    for key, one in _items(estimate):
        seconds, num_bytes = totals.get(key, NOTHING)
        totals[key] = seconds + one.total_s, num_bytes + one.num_bytes * one.times
    return totals


def _items(estimate: Estimate) -> Iterator[tuple[Key, PredictedKernel | PredictedCollective]]:
    for kernel in estimate.kernels:
        if kernel.counted:
            yield (_line(kernel), "compute"), kernel
    for collective in estimate.collectives:
        yield (asked_by(collective), f"{collective.kind} over {axes_text(collective)}"), collective


def _line(kernel: PredictedKernel) -> str:
    source = kernel.origin.source
    return short_source(source) if source else kernel.layer or NOWHERE


def _row(change: Change) -> tuple[str, ...]:
    sign = "+" if change.moved_s >= 0 else "-"
    return (
        change.line,
        change.what,
        duration(change.before_s),
        duration(change.after_s),
        f"{sign}{duration(abs(change.moved_s))}",
        binary(change.before_bytes),
        binary(change.after_bytes),
    )


def _names(paths: tuple[str, ...]) -> str:
    return ", ".join(paths[:2]) + (f" and {len(paths) - 2} more" if len(paths) > 2 else "")
