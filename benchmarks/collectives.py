"""GShard's Figure 9 from the network model: all-reduce and all-to-all on TPU v3, beside the paper's words.

    python benchmarks/collectives.py

Figure 9 has 8 MB and 32 MB per partition, on 16 to 2048 partitions (two a chip). Its picture is not to be had; its text
is: all-reduce is constant, and all-to-all takes 9 times as long on 128 times the partitions (section 5.3: it is O(sqrt
D) on a two-dimensional torus). Every figure here is predicted, none is measured.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from meshwright.dsl.machine import parse_topology
from meshwright.planner.collectives import price
from meshwright.planner.kinds import ALL_REDUCE, ALL_TO_ALL
from meshwright.planner.placement import Placement, place
from meshwright.planner.topology import physical
from rich.console import Console
from rich.table import Table

SHAPES = ["2x4", "4x4", "4x8", "8x8", "8x16", "16x16", "16x32", "32x32"]
"""Chips along x and y of 16 to 2048 partitions."""
MIB = 2**20


def main() -> None:
    console = Console(width=max(120, Console().width))
    placed = [whole(f"v3:{shape}") for shape in SHAPES]
    for mib in (8, 32):
        console.print(table(mib, placed))
    for line in claims(placed):
        console.print(line)


def whole(topology: str) -> Placement:
    """One group of all of a machine's devices."""
    machine = physical(parse_topology(topology))
    return place(machine, np.arange(machine.num_devices)[None, :])


def table(mib: int, placed: list[Placement]) -> Table:
    shown = Table(title=f"{mib} MB per partition on TPU v3, predicted", title_justify="left")
    for head in ("partitions", "chips", "all-reduce ms", "x the first", "all-to-all ms", "x the first", "sqrt of D"):
        shown.add_column(head, justify="right")
    first = placed[0].group_size
    reduced = [price(ALL_REDUCE, mib * MIB, group).total_s for group in placed]
    exchanged = [price(ALL_TO_ALL, mib * MIB, group).total_s for group in placed]
    for shape, group, reduce_s, exchange_s in zip(SHAPES, placed, reduced, exchanged, strict=True):
        shown.add_row(
            str(group.group_size),
            shape,
            f"{reduce_s * 1e3:.3f}",
            f"{reduce_s / reduced[0]:.2f}",
            f"{exchange_s * 1e3:.3f}",
            f"{exchange_s / exchanged[0]:.2f}",
            f"{(group.group_size / first) ** 0.5:.2f}",
        )
    return shown


def claims(placed: list[Placement]) -> Iterator[str]:
    """The paper's words, and what these figures say to them."""
    by_size = {group.group_size: group for group in placed}
    for mib in (8, 32):
        reduced = [price(ALL_REDUCE, mib * MIB, group).total_s for group in placed]
        yield (
            f"{mib} MB, all-reduce, 16 to 2048 partitions: most/least = {max(reduced) / min(reduced):.2f} predicted; "
            "paper: 'constant'"
        )
        grown = {d: price(ALL_TO_ALL, mib * MIB, by_size[d]).total_s for d in (16, 128, 2048)}
        yield (
            f"{mib} MB, all-to-all {grown[2048] / grown[16]:.2f} times from 16 to 2048 partitions predicted, paper: 9. "
            f"From 128: {grown[2048] / grown[128]:.2f} times; Figure 8: 3.75"
        )


if __name__ == "__main__":
    main()
