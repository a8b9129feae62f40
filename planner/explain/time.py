"""Where the time of a step goes: tables of compute by layer and operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..estimate.figures import Estimate, PredictedKernel
from ..estimate.scope import PHASES
from .rows import Rows, duration, first, giga, share

UNCOUNTED = "gathers, scatters, sorts, by their bytes: the TPU compiler counts no cycles of these"


def time_table(estimate: Estimate) -> Rows:
    """What a step takes, what overlap would leave, and how far the machine's bounds are."""
    bound = estimate.bound
    figures = [
        ("compute", estimate.compute_s),
        ("communication", estimate.comm_s),
        ("step: all of it, nothing overlapped", estimate.step_time_s),
        ("with full overlap: the longer of both", estimate.overlapped_s),
        ("bound of this plan: its FLOPs at peak, its arguments moved once", bound.plan_s),
        ("bound of the step, split evenly over all devices", bound.step_s),
    ]
    if estimate.uncounted_s:
        figures.insert(2, (UNCOUNTED, estimate.uncounted_s))
    rows = tuple((what, duration(s), share(s, estimate.step_time_s)) for what, s in figures)
    return Rows(title="Time of a step, predicted", headers=("what", "time", "of the step"), rows=rows)


def unit_table(estimate: Estimate) -> Rows:
    """Compute by what bounds it."""
    kernels = _counted(estimate)
    totals = _totals(kernels, lambda kernel: kernel.unit)
    flops = {unit: sum(k.flops * k.times for k in kernels if k.unit == unit) for unit in totals}
    runs = {unit: sum(k.times for k in kernels if k.unit == unit) for unit in totals}
    rows = tuple(
        (unit, str(runs[unit]), duration(s), share(s, estimate.compute_s), giga(flops[unit], "FLOP"))
        for unit, s in totals.items()
    )
    headers = ("bound by", "kernels run", "time", "of compute", "work")
    return Rows(title="Compute by what bounds it, predicted", headers=headers, rows=rows)


def layer_table(estimate: Estimate) -> Rows:
    """Compute by layer, in the phases of a training step."""
    totals = _totals(_counted(estimate), lambda kernel: kernel.layer)
    by_phase = _by_phase(_counted(estimate))
    phases = [phase for phase in PHASES if any((layer, phase) in by_phase for layer in totals)]
    rows = first(
        (
            layer,
            *(duration(by_phase.get((layer, phase))) for phase in phases),
            duration(s),
            share(s, estimate.compute_s),
        )
        for layer, s in totals.items()
    )
    headers = ("layer", *phases, "together", "of compute")
    return Rows(title="Compute by layer, predicted", headers=headers, rows=rows)


def operation_table(estimate: Estimate) -> Rows:
    """The kernels that take longest; alike ones of one layer together."""
    alike: dict[tuple[str, str, str, str], list[PredictedKernel]] = {}
    for kernel in estimate.kernels:
        unit = kernel.unit if kernel.counted else f"{kernel.unit}, not counted"
        alike.setdefault((kernel.label, kernel.layer, kernel.phase, unit), []).append(kernel)
    heavy = sorted(alike.items(), key=lambda item: -_seconds(item[1]))
    rows = first(
        (label, layer, phase, str(sum(k.times for k in same)), duration(_seconds(same)), unit, _work(same))
        for (label, layer, phase, unit), same in heavy
    )
    headers = ("operation", "layer", "phase", "times", "time", "bound by", "work")
    return Rows(title="Operations that take longest, predicted", headers=headers, rows=rows)


def _totals(kernels: Iterable[PredictedKernel], key: Callable[[PredictedKernel], str]) -> dict[str, float]:
    """Seconds by a property, the longest first."""
    totals: dict[str, float] = {}
    for kernel in kernels:
        totals[key(kernel)] = totals.get(key(kernel), 0.0) + kernel.total_s
    return dict(sorted(totals.items(), key=lambda item: -item[1]))


def _by_phase(kernels: Iterable[PredictedKernel]) -> dict[tuple[str, str], float]:
    totals: dict[tuple[str, str], float] = {}
    for kernel in kernels:
        key = (kernel.layer, kernel.phase)
        totals[key] = totals.get(key, 0.0) + kernel.total_s
    return totals


def _counted(estimate: Estimate) -> list[PredictedKernel]:
    return [kernel for kernel in estimate.kernels if kernel.counted]


def _seconds(same: Iterable[PredictedKernel]) -> float:
    return sum(kernel.total_s for kernel in same)


def _work(same: Iterable[PredictedKernel]) -> str:
    return giga(sum(kernel.flops * kernel.times for kernel in same), "FLOP")
