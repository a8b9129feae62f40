"""Figure 7: memory of a device by kind, constant in the number of experts and linear in the number of layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from meshwright.planner.estimate.scope import FORWARD, RECOMPUTED

from .members import COMPILED, FULL, GIB, GROUPS, MACHINES, MEMBERS, NONE, OTHER, Member, compiled, member
from .record import Answer, Record
from .shown import Figure, table

OVERHEADS = {12: "0 %", 24: "0 %", 36: "28 %", 60: "34 %"}
"""Share of all cycles that the paper's runs spend on recomputation."""
Found = dict[tuple[int, int, str], Member]
Answers = dict[tuple[int, int, str], Answer]


def figure_7(record: Record) -> Figure:
    found = {key: member(*key) for key in MEMBERS}
    answers = {key: answer for key in COMPILED if (answer := compiled(*key, record)) is not None}
    return Figure(
        name="figure-7",
        tables=(rows(found, answers),),
        words=tuple(words(found, answers)),
        draw=lambda canvas: draw(canvas, found),
    )


def rows(found: Found, answers: Answers) -> Any:
    heads = ("GiB of a core", "experts", "remat", *GROUPS, OTHER, "peak, predicted", "fits", "peak, compiled")
    heads += ("recomputed, predicted", "recomputed, paper")
    return table(
        "Figure 7: memory of a TPU v3 core (15.48 GiB to give), predicted",
        heads,
        (row(each, answers.get(key)) for key, each in found.items()),
    )


def row(each: Member, answer: Answer | None) -> tuple[str, ...]:
    return (
        f"{each.layers} layers",
        str(each.experts),
        each.remat,
        *(f"{num_bytes / GIB:.2f}" for num_bytes in each.by_group.values()),
        f"{each.peak_bytes / GIB:.2f}",
        "yes" if each.fits else "no",
        "not asked" if answer is None else f"{answer['peak_bytes'] / GIB:.2f}" if answer["peak_bytes"] else "too much",
        f"{each.shares.get(RECOMPUTED, 0):.0%}",
        OVERHEADS[each.layers] if chosen(each) else "",
    )


def chosen(each: Member) -> bool:
    """Whether this is the way in which the paper ran that depth: recomputing where it had to."""
    return each.remat == (FULL if each.layers >= 36 else NONE)


def words(found: Found, answers: Answers) -> Iterator[str]:
    for layers, how in ((12, NONE), (12, FULL), (24, FULL), (36, FULL)):
        peaks = [found[layers, experts, how].peak_bytes for experts in MACHINES]
        yield (
            f"{layers} layers, remat {how}: 128 to 2048 experts, most/least = {max(peaks) / min(peaks):.3f} predicted; "
            "paper: 'constant'."
        )
    yield from (linear(found, how) for how in (NONE, FULL))
    yield from (needs(found[layers, 128, NONE]) for layers in (12, 24, 36))
    yield overheads(found)
    yield activations(found)
    for key, answer in answers.items():
        if answer["peak_bytes"]:
            error = found[key].peak_bytes / answer["peak_bytes"] - 1
            yield f"{key[0]} layers, {key[1]} experts, remat {key[2]}: peak {error:+.1%} of the compiler's."
    yield "The picture of Figure 7 is not to be had: its gigabytes are not compared, only the text."


def linear(found: Found, how: str) -> str:
    depths = [12, 24, 36]
    peaks = [found[layers, 128, how].peak_bytes / GIB for layers in depths]
    slope, start = np.polyfit(depths, peaks, 1)
    off = max(abs(start + slope * layers - peak) / peak for layers, peak in zip(depths, peaks, strict=True))
    return (
        f"Remat {how}, 128 experts, 12 to 36 layers: {start:.2f} GiB and {slope:.3f} GiB a layer predicted, at most "
        f"{off:.1%} off that line; paper: 'linear'."
    )


def needs(each: Member) -> str:
    said = "fit" if each.fits else "do not fit"
    did = each.layers < 36
    parted = (
        f" {each.scores_bytes / GIB:.2f} GiB of it are attention scores kept for the backward pass. They grow with the "
        "square of a row's length: 1024 tokens here; the paper prints none."
    )
    return (
        f"{each.layers} layers {said} without rematerialisation: {each.peak_bytes / GIB:.2f} GiB predicted; in the "
        f"paper {'they did' if did else 'they did not'}.{'' if each.fits == did else parted}"
    )


def overheads(found: Found) -> str:
    said = (
        f"{layers} layers {found[layers, 2048, FULL].shares[RECOMPUTED]:.0%} ({OVERHEADS[layers]}), "
        f"its forward pass being {found[layers, 2048, FULL].shares[FORWARD]:.0%}"
        for layers in (36, 60)
    )
    return (
        f"Recomputed share of compute, predicted (paper): {'; '.join(said)}. Here a block's forward pass runs once "
        "more, whatever the depth; the paper's compiler chose what to recompute."
    )


def activations(found: Found) -> str:
    at = {layers: found[layers, 2048, FULL].by_group["activations"] / GIB for layers in (36, 60)}
    return (
        f"Saved activations at 60 layers {at[60]:.2f} GiB, at 36 {at[36]:.2f} GiB predicted; in the paper 60 layers "
        "hold less than 36, for more is recomputed and its activations are bfloat16."
    )


def draw(canvas: Any, found: Found) -> None:
    ax = canvas.subplots()
    shown = [each for each in found.values() if chosen(each)]
    floor = [0.0] * len(shown)
    names = [f"{each.experts}E\n{each.layers}L" for each in shown]
    for group in (*GROUPS, OTHER):
        heights = [each.by_group[group] / GIB for each in shown]
        ax.bar(names, heights, bottom=floor, label=group)
        floor = [low + height for low, height in zip(floor, heights, strict=True)]
    ax.axhline(15.48, color="k", linestyle="--", label="what a core has to give")
    ax.set(ylabel="GiB", title="Figure 7: memory of a TPU v3 core, predicted (remat: none to 24 layers, full from 36)")
    ax.legend()
