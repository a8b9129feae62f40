"""GPUs beside their estimates: step time, memory and single kernels, predicted and measured, of one card at a time.

    python benchmarks/gpu_measured.py              what is kept of each card, beside today's estimates
    python benchmarks/gpu_measured.py h100         the same of one
    python benchmarks/gpu_measured.py --fit        the figures of ``chips.yaml`` (``measured:``) that they teach
    python benchmarks/gpu_measured.py --keep FILE  what ``gpu/measure.py`` wrote, from now on its card's

``gpu/export.py`` writes the programs, ``gpu/measure.py`` times them where there is a GPU and JAX, this package not
needed. The figures are fitted on the programs of one kernel or a few; the whole steps judge them. Errors are predicted
over measured, less one; of whole steps the median of calls one after the other, of small programs their kernels under
the profiler.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import jax
import meshwright as mw
import numpy as np
from gpu.case import Case
from gpu.fitted import fitted
from gpu.kept import Measured, Program, cards, keep, kept
from gpu.small import small
from gpu.unseen import unseen
from gpu.whole import whole
from rich.console import Console
from rich.table import Table

PLAN = 'meshwright: 1\ntopology: {}:1\nmesh: {{x: 1}}\ntensors:\n  "**": replicate\n'
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Row:
    """A program: seconds and bytes, predicted and measured."""

    name: str
    seconds: tuple[float, float]
    peak_bytes: tuple[int, int]
    kernels: tuple[int, int]

    @property
    def time_error(self) -> float:
        return self.seconds[0] / self.seconds[1] - 1

    @property
    def memory_error(self) -> float:
        return self.peak_bytes[0] / self.peak_bytes[1] - 1


def rows(cases: Iterable[Case], measured: Measured, *, of_kernels: bool) -> list[Row]:
    """What is predicted of each case, and what was measured of it."""
    plan = mw.loads(PLAN.format(measured.topology))
    found = []
    for case in cases:
        program: Program = measured.programs[case.name]
        cost = mw.estimate(plan, case.step if case.donated else jax.jit(case.step), case.args)
        took_s = program.kernels_s if of_kernels else program.median_s
        kernels = sum(kernel.times for kernel in cost.kernels if kernel.predicted_s)
        peaks = cost.peak_bytes, program.peak_bytes
        name = case.name if program.is_finite else f"{case.name} (overflowed)"
        found.append(Row(name, (cost.step_time_s, took_s), peaks, (kernels, program.kernels)))
    return found


def table(title: str, found: list[Row]) -> Table:
    shown = Table(title=title, title_justify="left")
    for head in ("program", "predicted ms", "measured ms", "", "predicted MiB", "compiled MiB", "", "kernels"):
        shown.add_column(head, justify="left" if head == "program" else "right")
    for row in found:
        times, sizes = (f"{1e3 * s:.3f}" for s in row.seconds), (f"{b / MIB:.0f}" for b in row.peak_bytes)
        ends = f"{row.memory_error:+.1%}", "/".join(map(str, row.kernels))
        shown.add_row(row.name, *times, f"{row.time_error:+.1%}", *sizes, *ends)
    return shown


def summary(name: str, errors: list[float]) -> str:
    sizes = np.abs(errors)
    return (
        f"{name}: median error {np.median(sizes):.1%}, 95th percentile {np.percentile(sizes, 95):.1%}; "
        f"from {min(errors):+.1%} to {max(errors):+.1%}"
    )


def show(console: Console, measured: Measured) -> None:
    """The tables of a card."""
    where = f"{measured.device}, jax {measured.jax}, driver {measured.driver}, {measured.date}"
    parts = rows(small(), measured, of_kernels=True)
    steps = rows(whole(), measured, of_kernels=False)
    console.print(table(f"Kernels, which taught the figures ({where})", parts))
    console.print(table(f"Training steps ({where})", steps))
    console.print(summary("kernels' time", [row.time_error for row in parts]), highlight=False)
    console.print(summary("steps' time", [row.time_error for row in steps]), highlight=False)
    console.print(summary("steps' memory", [row.memory_error for row in steps]), highlight=False)
    ranks = np.argsort(np.argsort(np.array([row.seconds for row in steps]), axis=0), axis=0)
    console.print(f"rank correlation of step times: {np.corrcoef(ranks.T)[0, 1]:.3f}", highlight=False)
    drawn = rows(unseen(), measured, of_kernels=False)
    console.print(table(f"Training steps drawn by seed ({where})", drawn))
    console.print(summary("drawn steps' time", [row.time_error for row in drawn]), highlight=False)
    console.print(summary("drawn steps' memory", [row.memory_error for row in drawn]), highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cards", nargs="*", metavar="CARD", help=f"of {', '.join(cards())}; all where none is named")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--keep", metavar="FILE", type=Path)
    given = parser.parse_args()
    kept_now = [keep(given.keep)] if given.keep else []
    if unknown := set(given.cards) - set(cards()):
        parser.error(f"nothing is kept of {', '.join(sorted(unknown))}; of {', '.join(cards())} there is")
    console = Console(width=max(150, Console().width))
    for measured in map(kept, given.cards or kept_now or cards()):
        if not given.fit:
            show(console, measured)
            continue
        console.print(f"{measured.topology}:", highlight=False)
        for name, figure in fitted(measured).items():
            console.print(f"  {name}: {figure}", highlight=False)


if __name__ == "__main__":
    main()
