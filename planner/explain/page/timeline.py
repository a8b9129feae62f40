"""The timeline of a step: a lane for compute, one for each set of axes that communicates; nothing overlapped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape

from ...estimate.figures import Estimate, PredictedCollective, PredictedKernel
from ..communication import asked_by, axes_text
from ..rows import binary, duration
from . import svg

COMPUTE = "compute"
FINEST = 1500
LANE_HEIGHT = 30
Run = PredictedKernel | PredictedCollective
UNITS = ("matrix", "vector", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that runs from ``begin_s`` for ``took_s`` in a lane; ``count`` of them where they are too short."""

    lane: str
    color: str
    begin_s: float
    took_s: float
    said: str
    count: int = 1


def timeline(estimate: Estimate) -> str:
    """The picture, with a frame that a script lets readers zoom."""
    total_s = estimate.step_time_s
    if not total_s:
        return "<p>Nothing here takes time that could be predicted.</p>"
    listed = list(merged(events(estimate), total_s / FINEST))
    lanes = list(dict.fromkeys([COMPUTE, *(event.lane for event in listed)]))
    marks = "".join(_mark(event, lanes.index(event.lane), total_s) for event in listed)
    height = LANE_HEIGHT * len(lanes)
    frame = f' id="timeline" data-total-s="{total_s!r}" style="height:{height}px"'
    names = "".join(f'<div style="height:{LANE_HEIGHT}px">{escape(lane)}</div>' for lane in lanes)
    picture = svg.drawing(marks, svg.WIDTH, height, name="the timeline of a step", stretched=True, more=frame)
    scale = f'<div class="scale" id="scale"><span>0 ms</span><span>{duration(total_s)}</span></div>'
    units = [
        (f"unit-{unit}", f"compute bound by {unit}") for unit in UNITS if any(k.unit == unit for k in estimate.kernels)
    ]
    legend = svg.legend([*units, *((_color(lanes, lane), f"over {lane}") for lane in lanes[1:])])
    return f'<div class="lanes"><div class="names">{names}</div><div>{picture}{scale}</div></div>{legend}'


def events(estimate: Estimate) -> Iterator[Event]:
    """Everything that a step runs, one after another; what a loop repeats stands once, as long as its turns take."""
    now_s = 0.0
    runs: list[Run] = [*(kernel for kernel in estimate.kernels if kernel.counted), *estimate.collectives]
    for run in sorted(runs, key=lambda run: run.position):
        if run.total_s:
            lane, color, said = _shown(run)
            yield Event(lane=lane, color=color, begin_s=now_s, took_s=run.total_s, said=said)
        now_s += run.total_s


def merged(listed: Iterator[Event], finest_s: float) -> Iterator[Event]:
    """The same with neighbours of a lane joined that are too short to be seen."""
    last: Event | None = None
    for event in listed:
        short = last is not None and last.lane == event.lane and max(last.took_s / last.count, event.took_s) < finest_s
        if last is not None and short and last.took_s < 4 * finest_s:
            last = replace(last, took_s=event.begin_s + event.took_s - last.begin_s, count=last.count + 1)
            continue
        if last is not None:
            yield last
        last = event
    if last is not None:
        yield last


def _shown(run: Run) -> tuple[str, str, str]:
    """A run's lane, its colour and what is said of it."""
    turns = f" ({run.times} turns of {duration(run.predicted_s)})" if run.times > 1 else ""
    if isinstance(run, PredictedKernel):
        color = f"unit-{run.unit}" if run.unit in UNITS else "unit-vector"
        return (
            COMPUTE,
            color,
            f"{run.label}, {run.layer}, {run.phase}: {duration(run.total_s)}{turns}, bound by {run.unit}",
        )
    moved = f"{run.kind} over {axes_text(run)}: {duration(run.total_s)}{turns}, {binary(run.num_bytes)} of {run.dtype}"
    return "+".join(run.axes) or "devices", "", f"{moved}, asked for by {asked_by(run)}"


def _mark(event: Event, lane: int, total_s: float) -> str:
    scale = svg.WIDTH / total_s
    said = event.said if event.count == 1 else f"{event.count} short ones: {duration(event.took_s)}; first {event.said}"
    color = event.color or _axis_color(lane)
    return svg.rect(
        event.begin_s * scale, lane * LANE_HEIGHT + 3, event.took_s * scale, LANE_HEIGHT - 6, color=color, title=said
    )


def _color(lanes: list[str], lane: str) -> str:
    return _axis_color(lanes.index(lane))


def _axis_color(lane: int) -> str:
    return f"axis-{(lane - 1) % 6}"
