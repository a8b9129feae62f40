"""Estimates of steps drawn by seed beside what the TPU compiler made of them: memory, compute, collectives.

    python benchmarks/drawn_steps.py [--seeds 0-39]        what is kept of each seed beside today's estimate, in seconds
    python benchmarks/drawn_steps.py --compile 80-99       compiles these (a minute each, no TPU) and keeps what it says

A seed names a step, a machine and a layout (``drawn/steps.py``); ``drawn/compiled.jsonl`` keeps the compiled figures.
To see how close estimates are to programs that nothing was made for, compile seeds that nobody has looked at. Errors
are predicted over compiled, less one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import jaxlib
import libtpu
import meshwright as mw
from drawn import span
from drawn.steps import drawn
from estimates import Row, summary, table, totals
from rich.console import Console

KEPT = Path(__file__).parent / "drawn" / "compiled.jsonl"


def kept() -> dict[int, dict[str, Any]]:
    """What was compiled, by seed."""
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    return {row["seed"]: row for row in map(json.loads, lines)}


def compiled(seed: int) -> dict[str, Any]:
    """What the TPU compiler makes of a seed's step: bytes of a device, seconds of a step."""
    case = drawn(seed)
    said = mw.verify(case.plan, case.step, case.args).compiled
    return {
        "seed": seed,
        "name": case.name,
        "peak_bytes": said.peak_bytes,
        "compute_s": said.compute_s,
        "communication_s": said.predicted_communication_s,
        "collectives": totals(said.collectives),
        "reason": said.reason,
        "versions": {"jaxlib": jaxlib.__version__, "libtpu": libtpu.__version__},
    }


def row(seed: int, said: dict[str, Any]) -> Row:
    """A seed's figures, predicted now and compiled then."""
    case = drawn(seed)
    predicted = mw.estimate(case.plan, case.step, case.args)
    return Row(
        step=f"{seed}: {said['name'].partition(' on ')[0]}",
        layout="",
        topology=str(case.plan.topology),
        peak_bytes=(predicted.peak_bytes, said["peak_bytes"]),
        compute_s=(predicted.compute_s, said["compute_s"]),
        step_s=(predicted.step_time_s, said["compute_s"] + (said["communication_s"] or 0)),
        bytes_by_kind=(totals(predicted.collectives), said["collectives"]),
    )


def compile_all(seeds: range, console: Console) -> None:
    """Compiles what is not kept yet, and keeps each at once."""
    for seed in sorted({*seeds} - {*kept()}):
        try:
            said = compiled(seed)
        except mw.PlanError as error:
            said = {"seed": seed, "name": drawn(seed).name, "reason": str(error.problems[0].code)}
        with KEPT.open("a") as file:
            file.write(json.dumps(said) + "\n")
        console.print(f"{seed} {said['name']}: {said['reason'] or 'kept'}", highlight=False, soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=span, metavar="A-B", help="default: all that are kept")
    parser.add_argument("--compile", type=span, metavar="A-B", dest="to_compile")
    given = parser.parse_args()
    console = Console(width=max(180, Console().width))
    if given.to_compile:
        compile_all(given.to_compile, console)
    known = kept()
    seeds = given.seeds or given.to_compile or sorted(known)
    usable = [seed for seed in seeds if known.get(seed, {}).get("compute_s")]
    found = [row(seed, known[seed]) for seed in usable]
    console.print(table(found))
    for line in summary(found) if found else ():
        console.print(line, highlight=False)
    for seed in sorted({*seeds} - {*usable}):
        said = known.get(seed, {"name": drawn(seed).name, "reason": "not compiled yet"})
        why = said["reason"] or "the compiler gave no cycles"
        console.print(f"left out: {seed} {said['name']}: {why}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
