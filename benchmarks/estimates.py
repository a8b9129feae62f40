"""Estimates beside the TPU compiler: peak memory, compute, collectives and step time of plans, predicted and compiled.

    python benchmarks/estimates.py [--topologies v5e:4x4,v3:4x4] [STEP ...]       default: every step, five topologies

Predicted figures are ``mw.estimate``'s, compiled ones the TPU compiler's for that chip, ahead of time, on no TPU; where
seconds of communication enter (the step's time), both sides take the network model's. Errors are predicted over
compiled, less one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import meshwright as mw
import numpy as np
from rich.console import Console
from rich.table import Table
from steps import STEPS, Case, plan

TOPOLOGIES = {
    "v3:4x4": {"x": 4, "y": 8},
    "v4:2x2x4": {"x": 4, "y": 8},
    "v5e:4x4": {"x": 4, "y": 4},
    "v5p:2x2x4": {"x": 4, "y": 4},
    "v6e:4x8": {"x": 4, "y": 8},
}
MIB = 2**20


@dataclass(frozen=True)
class Row:
    """One plan: what was predicted and what was compiled. Bytes of a device, seconds of a step."""

    step: str
    layout: str
    topology: str
    peak_bytes: tuple[int, int]
    compute_s: tuple[float, float]
    step_s: tuple[float, float]
    bytes_by_kind: tuple[dict[str, int], dict[str, int]]

    @property
    def peak_error(self) -> float:
        return self.peak_bytes[0] / self.peak_bytes[1] - 1

    @property
    def compute_error(self) -> float:
        return self.compute_s[0] / self.compute_s[1] - 1

    @property
    def collectives_agree(self) -> bool:
        """Whether each kind's bytes are within a tenth; kinds that move under a MiB on both sides do not count."""
        predicted, compiled = self.bytes_by_kind
        pairs = [(predicted.get(k, 0), compiled.get(k, 0)) for k in {*predicted, *compiled}]
        return all(abs(p - c) <= 0.1 * c for p, c in pairs if max(p, c) > MIB)


def rows(steps: list[str], topologies: dict[str, dict[str, int]], console: Console) -> Iterator[Row]:
    for step in steps:
        made = STEPS[step]()
        for topology, mesh in topologies.items():
            for layout in made.layouts:
                row = measured(step, made, layout, topology, mesh, console)
                if row:
                    yield row


def measured(step: str, made: Case, layout: str, topology: str, mesh: dict[str, int], console: Console) -> Row | None:
    """Predicted and compiled figures; None, said aloud, where the layout is none of this mesh or does not fit."""
    try:
        proof = mw.verify(plan(made.layouts[layout], topology, mesh), made.step, made.args)
    except mw.PlanError as error:
        console.print(f"{step} {layout} {topology}: {error.problems[0].code}, left out", highlight=False)
        return None
    compiled, predicted = proof.compiled, proof.predicted
    if compiled.compute_s is None or predicted is None:
        console.print(f"{step} {layout} {topology}: {compiled.reason or 'no cycles'}; predicted {predicted}")
        return None
    row = Row(
        step=step,
        layout=layout,
        topology=topology,
        peak_bytes=(predicted.peak_bytes, compiled.peak_bytes),
        compute_s=(predicted.compute_s, compiled.compute_s),
        step_s=(predicted.step_time_s, compiled.compute_s + (compiled.predicted_communication_s or 0)),
        bytes_by_kind=(totals(predicted.collectives), totals(compiled.collectives)),
    )
    console.print(
        f"{step} {layout} {topology}: peak {row.peak_error:+.1%}, compute {row.compute_error:+.1%}", highlight=False
    )
    return row


def totals(collectives: object) -> dict[str, int]:
    found: dict[str, int] = {}
    for collective in collectives:
        found[collective.kind] = found.get(collective.kind, 0) + collective.total_bytes
    return found


def table(found: list[Row]) -> Table:
    shown = Table(title="Predicted, compiled by the TPU compiler, and the error", title_justify="left")
    for head in ("step", "layout", "topology", "peak MiB", "", "compute ms", "", "step ms", "", "MiB by kind"):
        shown.add_column(head, justify="right", overflow="fold")
    for row in found:
        shown.add_row(
            row.step,
            row.layout,
            row.topology,
            *pair(row.peak_bytes, 1 / MIB, ".0f"),
            *pair(row.compute_s, 1e3, ".2f"),
            *pair(row.step_s, 1e3, ".2f"),
            kinds(*row.bytes_by_kind),
        )
    return shown


def pair(figures: tuple[float, float], scale: float, form: str) -> tuple[str, str]:
    predicted, compiled = figures
    return f"{predicted * scale:{form}}/{compiled * scale:{form}}", f"{predicted / compiled - 1:+.1%}"


def kinds(predicted: dict[str, int], compiled: dict[str, int]) -> str:
    names = sorted({*predicted, *compiled})
    return ", ".join(f"{k} {predicted.get(k, 0) / MIB:.0f}/{compiled.get(k, 0) / MIB:.0f}" for k in names)


def summary(found: list[Row]) -> Iterator[str]:
    for name, errors in (
        ("peak memory", [abs(r.peak_error) for r in found]),
        ("compute seconds", [abs(r.compute_error) for r in found]),
    ):
        yield f"{name}: median error {np.median(errors):.1%}, 95th percentile {np.percentile(errors, 95):.1%}"
    yield f"peak memory, furthest below the compiled figure: {min(r.peak_error for r in found):+.1%}"
    agree = sum(r.collectives_agree for r in found)
    yield f"collectives' bytes of every kind within 10 %: {agree} of {len(found)} programs"
    ranks = [c for c in map(rank_correlation, groups(found)) if c is not None]
    if ranks:
        yield f"rank correlation of step times, layouts of one step: least {min(ranks):.2f}, mean {np.mean(ranks):.2f}"
    over_all = rank_correlation(found)
    if over_all is not None:
        yield f"rank correlation of step times over all: {over_all:.3f}"


def groups(found: list[Row]) -> Iterator[list[Row]]:
    for key in dict.fromkeys((r.step, r.topology) for r in found):
        yield [r for r in found if (r.step, r.topology) == key]


def rank_correlation(found: list[Row]) -> float | None:
    """Spearman's, of predicted and compiled step times; None for fewer than three plans."""
    if len(found) < 3:
        return None
    ranks = np.argsort(np.argsort(np.array([r.step_s for r in found]), axis=0), axis=0)
    return float(np.corrcoef(ranks.T)[0, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(STEPS))
    parser.add_argument("--topologies", default=",".join(TOPOLOGIES))
    given = parser.parse_args()
    console = Console(width=max(180, Console().width))
    topologies = {t: TOPOLOGIES[t] for t in given.topologies.split(",")}
    found = list(rows(given.steps or list(STEPS), topologies, console))
    console.print(table(found))
    for line in summary(found):
        console.print(line, highlight=False)


if __name__ == "__main__":
    main()
