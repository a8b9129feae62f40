"""What Switch's and Tutel's layouts of an MoE layer communicate: from the traced program, beside the papers' tables.

    python benchmarks/volumes.py [--compile]

Predicted bytes are those of ``mw.estimate``'s collectives, which come from the layer's program and the plan alone; the
papers' formulas (``switch_layouts.py``) are evaluated only to be printed beside them. ``--compile`` adds the program
that the TPU compiler makes, ahead of time (some minutes). Nothing is measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import meshwright as mw
from rich.console import Console
from rich.table import Table
from switch_layer import step_of
from switch_layouts import DEVICES, SHIFTED, SWITCH, TOPOLOGY, TUTEL, Layout, Volume, volume_of

MIB = 2**20
HEADS = ("layout", "mesh", "the paper's table says", "what and over what", "formula", "predicted", "compiled")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", action="store_true", help="ask the TPU compiler too")
    compiled = parser.parse_args().compile
    console = Console(width=max(150, Console().width))
    for paper, layouts in (("Switch, Figure 9", SWITCH), ("Tutel, Tables 3 and 4", TUTEL)):
        title = f"{paper}: MiB that a device holds of a layer's collectives, forward and backward, on {TOPOLOGY}"
        shown = Table(title=title, title_justify="left")
        for head in HEADS:
            shown.add_column(head, justify="right" if head in HEADS[4:] else "left")
        parted = [line for name, layout in layouts.items() for line in add(shown, name, layout, compiled)]
        console.print(shown)
        console.print("\n".join(parted) or f"All {len(layouts)} come out as the table has them.", highlight=False)
    console.print(
        f"{DEVICES} devices; of a reduce-scatter and an all-gather the whole is counted, as the formulas do. "
        "Shifted is what the TPU compiler's padding of reduce-scatters moves."
    )


def add(shown: Table, name: str, layout: Layout, compiled: bool) -> Iterator[str]:
    """Adds a layout's rows; yields a line for each volume that is not the table's."""
    step, args = step_of(layout.sizes)
    plan = layout.plan()
    proof = mw.verify(plan, step, args) if compiled else None
    predicted = volume_of((proof.predicted if proof else mw.estimate(plan, step, args)).collectives)
    made = volume_of(proof.compiled.collectives) if proof else None
    expected = layout.expected
    mesh = " ".join(f"{axis}={size}" for axis, size in layout.mesh.items())
    for number, key in enumerate(sorted({*expected, *predicted, *(made or {})})):
        first = (name, mesh, layout.said) if number == 0 else ("", "", "")
        shown.add_row(*first, " over ".join(key), mib(expected, key), mib(predicted, key), mib(made, key))
        by_table, found = expected.get(key, 0), predicted.get(key, 0)
        if key[0] != SHIFTED and abs(found - by_table) > 0.1 * by_table:
            yield f"{name}: {' over '.join(key)}: {found / MIB:.2f} MiB predicted, {by_table / MIB:.2f} by the table"
    shown.add_section()


def mib(volume: Volume | None, key: tuple[str, str]) -> str:
    if volume is None:
        return "not asked"
    return f"{volume[key] / MIB:.2f}" if key in volume else "-"


if __name__ == "__main__":
    main()
