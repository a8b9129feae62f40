"""What a step communicates: tables by axis and by the line that asked for it, and where the axes lie."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ..estimate.figures import AxisPlace, Estimate, PredictedCollective
from ..estimate.scope import NOWHERE, short_source
from ..placement import Span
from .rows import Rows, binary, duration, first, share

Key = Callable[[PredictedCollective], tuple[str, ...]]


def by_axis(estimate: Estimate) -> Rows:
    """Collectives by kind and axes."""
    headers = ("collective", "axes", "times", "bytes a device", "time", "of communication", "waits for")
    rows = _rows(estimate, lambda c: (c.kind, axes_text(c)), lambda same: (_bottlenecks(same),))
    return Rows(title="Communication by axis, predicted", headers=headers, rows=rows)


def by_source(estimate: Estimate) -> Rows:
    """Collectives by the line that asked for them."""
    headers = ("asked for by", "collective", "axes", "times", "bytes a device", "time", "of communication")
    rows = _rows(estimate, lambda c: (asked_by(c), c.kind, axes_text(c)), lambda same: ())
    return Rows(title="Communication by source line, predicted", headers=headers, rows=rows)


def by_gradient(estimate: Estimate) -> Rows:
    """The collectives that add up gradients, by weight."""
    listed = replace(estimate, collectives=tuple(c for c in estimate.collectives if c.gradient_of))
    headers = ("gradient of", "collective", "axes", "times", "bytes a device", "time", "of communication")
    rows = _rows(listed, lambda c: (_weights(c), c.kind, axes_text(c)), lambda same: ())
    return Rows(title="Gradients added up, predicted", headers=headers, rows=rows)


def axis_table(estimate: Estimate) -> Rows:
    """Where each axis of the mesh lies on the machine, and what it carries."""
    rows = tuple(
        (
            axis.name,
            str(axis.num_devices),
            "; ".join(map(_span_text, axis.spans)) or "one device",
            ", ".join(axis.shared_with) or "none",
            *_carried(estimate, axis),
        )
        for axis in estimate.axes
    )
    headers = ("axis", "devices", "lies on", "shares links with", "bytes a device", "time")
    return Rows(title="The mesh over the machine, and its traffic, predicted", headers=headers, rows=rows)


def axes_text(collective: PredictedCollective) -> str:
    """The axes of a collective, and whether it crosses slices."""
    across = ", across slices" if collective.across_slices else ""
    return ("+".join(collective.axes) or f"{collective.group_size} devices") + across


def asked_by(collective: PredictedCollective) -> str:
    """The line that asked for a collective, else its name stack."""
    source = collective.origin.source
    return short_source(source) if source else collective.origin.scope or NOWHERE


def axis_seconds(estimate: Estimate, axis: str) -> float:
    """What the collectives over an axis, or over it and others, take of a step."""
    return _seconds(_over(estimate, axis))


def _weights(collective: PredictedCollective) -> str:
    first, *more = collective.gradient_of
    return f"{first} and {len(more)} more" if more else first


def _rows(
    estimate: Estimate, key: Key, more: Callable[[list[PredictedCollective]], tuple[str, ...]]
) -> tuple[tuple[str, ...], ...]:
    """A row for each of what is alike, the longest first."""
    alike: dict[tuple[str, ...], list[PredictedCollective]] = {}
    for collective in estimate.collectives:
        alike.setdefault(key(collective), []).append(collective)
    heavy = sorted(alike.items(), key=lambda item: -_seconds(item[1]))
    return first((*said, *_figures(same, estimate), *more(same)) for said, same in heavy)


def _figures(same: list[PredictedCollective], estimate: Estimate) -> tuple[str, ...]:
    took_s = _seconds(same)
    times = str(sum(collective.times for collective in same))
    return times, binary(_bytes(same)), duration(took_s), share(took_s, estimate.comm_s)


def _carried(estimate: Estimate, axis: AxisPlace) -> tuple[str, str]:
    over = _over(estimate, axis.name)
    return binary(_bytes(over)), duration(_seconds(over))


def _over(estimate: Estimate, axis: str) -> list[PredictedCollective]:
    return [collective for collective in estimate.collectives if axis in map(_whole, collective.axes)]


def _span_text(span: Span) -> str:
    whole = "all" if span.extent == span.size else f"{span.extent}"
    apart = f", {span.stride} apart" if span.stride > 1 else ""
    return f"{whole} of {span.dim} ({span.size}{apart}{', a ring' if span.ring else ''})"


def _bottlenecks(same: Iterable[PredictedCollective]) -> str:
    return ", ".join(dict.fromkeys(collective.bottleneck for collective in same if collective.bottleneck))


def _bytes(same: Iterable[PredictedCollective]) -> int:
    return sum(collective.total_bytes for collective in same)


def _seconds(same: Iterable[PredictedCollective]) -> float:
    return sum(collective.total_s for collective in same)


def _whole(axis: str) -> str:
    """The axis of the mesh that this is a part of (``x`` of ``x:(2)4``)."""
    return axis.partition(":")[0]
