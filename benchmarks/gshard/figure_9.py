"""Figure 9: all-reduce and all-to-all of 8 MB and 32 MB per partition on 16 to 2048 partitions, two a chip."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from meshwright.dsl.machine import parse_topology
from meshwright.planner.collectives import price
from meshwright.planner.kinds import ALL_REDUCE, ALL_TO_ALL
from meshwright.planner.placement import Placement, place
from meshwright.planner.topology import physical

from .shown import Figure, table

SHAPES = ("2x4", "4x4", "4x8", "8x8", "8x16", "16x16", "16x32", "32x32")
"""Chips along x and y of 16 to 2048 partitions."""
SIZES_MIB = (8, 32)
MIB = 2**20
HEADS = ("partitions", "chips", "all-reduce ms, predicted", "x the first", "all-to-all ms, predicted", "x the first")
PAPER = ("sqrt of D x", "paper, all-to-all")


def figure_9() -> Figure:
    """The network model alone: the compiler gives collectives no time, so nothing here is compiled."""
    placed = [whole(f"v3:{shape}") for shape in SHAPES]
    tables = tuple(
        table(
            f"Figure 9: {mib} MB per partition on TPU v3, predicted by the network model",
            (*HEADS, *PAPER),
            rows(mib, placed),
        )
        for mib in SIZES_MIB
    )
    return Figure(name="figure-9", tables=tables, words=tuple(claims(placed)), draw=lambda canvas: draw(canvas, placed))


def whole(topology: str) -> Placement:
    """One group of all of a machine's devices."""
    machine = physical(parse_topology(topology))
    return place(machine, np.arange(machine.num_devices)[None, :])


def seconds(kind: str, mib: int, placed: list[Placement]) -> list[float]:
    return [price(kind, mib * MIB, group).total_s for group in placed]


def rows(mib: int, placed: list[Placement]) -> Iterator[tuple[str, ...]]:
    reduced, exchanged = seconds(ALL_REDUCE, mib, placed), seconds(ALL_TO_ALL, mib, placed)
    for shape, group, reduce_s, exchange_s in zip(SHAPES, placed, reduced, exchanged, strict=True):
        yield (
            str(group.group_size),
            shape,
            f"{reduce_s * 1e3:.3f}",
            f"{reduce_s / reduced[0]:.2f}",
            f"{exchange_s * 1e3:.3f}",
            f"{exchange_s / exchanged[0]:.2f}",
            f"{(group.group_size / placed[0].group_size) ** 0.5:.2f}",
            {placed[0].group_size: "1", placed[-1].group_size: "9"}.get(group.group_size, ""),
        )


def claims(placed: list[Placement]) -> Iterator[str]:
    """The paper's words, and what these figures say to them."""
    at_128 = [group.group_size for group in placed].index(128)
    for mib in SIZES_MIB:
        reduced, exchanged = seconds(ALL_REDUCE, mib, placed), seconds(ALL_TO_ALL, mib, placed)
        yield (
            f"{mib} MB, all-reduce: longest/shortest = {max(reduced) / min(reduced):.2f} predicted; paper: "
            "'independent of the number of devices', with a variance by topology. Predicted so for an all-reduce moves "
            "each byte twice over all links at once, however many there are."
        )
        yield (
            f"{mib} MB, all-to-all, 128 times the partitions: {exchanged[-1] / exchanged[0]:.2f} times as long "
            "predicted; paper: 9. What crosses the middle of the longest side decides; that grows from 4 to 32 "
            f"chips; the root of 128, {128**0.5:.1f}, holds from square to square. From 128 to 2048: "
            f"{exchanged[-1] / exchanged[at_128]:.2f} predicted; paper, Figure 8: 3.75."
        )
    yield "The picture of Figure 9 is not to be had: its absolute times are not compared."


def draw(canvas: Any, placed: list[Placement]) -> None:
    axes = canvas.subplots(1, 2, sharey=True)
    partitions = [group.group_size for group in placed]
    for ax, (kind, expected) in zip(axes, ((ALL_REDUCE, "constant"), (ALL_TO_ALL, "9 times")), strict=True):
        for mib in SIZES_MIB:
            took = seconds(kind, mib, placed)
            (line,) = ax.loglog(partitions, [s * 1e3 for s in took], "o-", label=f"{mib} MB, predicted")
            grown = 9.0 if kind == ALL_TO_ALL else 1.0
            ends = [took[0] * 1e3, took[0] * 1e3 * grown]
            ax.loglog(partitions[:: len(partitions) - 1], ends, "--", color=line.get_color())
        ax.plot([], [], "k--", label=f"paper: {expected} from 16 to 2048 (from the first predicted)")
        ax.set(title=kind, xlabel="partitions", ylabel="ms")
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15))
    canvas.suptitle("Figure 9: collectives on TPU v3, predicted")
