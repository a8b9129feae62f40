"""Figure 7: memory of a device by kind, constant in the number of experts and linear in the number of layers.

GShard's training step with appendix A.2's sizes, one expert and 2048 source and target tokens a core, as in the plans
that ship; without rematerialisation and with all of it (the paper's compiler recomputes what it must, part by part).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import meshwright as mw
import numpy as np
from meshwright.backends.jax.models import gshard
from meshwright.backends.jax.workload import Workload
from meshwright.dsl.plan import Plan
from meshwright.dsl.reader import loads
from meshwright.planner.estimate.figures import Estimate
from meshwright.planner.estimate.scope import FORWARD, RECOMPUTED
from meshwright.planner.memory.kinds import SAVED

from .record import Answer, Record
from .shown import Figure, table

MACHINES = {128: "v3:8x8", 512: "v3:16x16", 2048: "v3:32x32"}
NONE, FULL = "none", "full"
MEMBERS = (
    *((12, experts, NONE) for experts in MACHINES),
    *((layers, 128, NONE) for layers in (24, 36)),
    *((layers, experts, FULL) for layers in (12, 24, 36) for experts in MACHINES),
    (60, 2048, FULL),
)
"""Layers, experts of each MoE layer, what is recomputed."""
COMPILED = ((12, 128, FULL), (36, 2048, FULL), (60, 2048, FULL), (12, 2048, FULL), (12, 128, NONE), (24, 128, FULL))
"""Those that the compiler is asked for: it takes a minute or two each."""
OVERHEADS = {12: "0 %", 24: "0 %", 36: "28 %", 60: "34 %"}
"""Share of all cycles that the paper's runs spend on recomputation."""
GIB = 2**30
GROUPS = {
    "weights": ("weights", "optimiser state", "results"),
    "gradients": ("gradients",),
    "activations": ("saved activations",),
}
"""What is drawn together; all other kinds are ``transients and other``."""
OTHER = "transients and other"
RULES = """
  batch/**: B@expert T
  params/**/moe/w[io]: L E@expert ...
  params/**: replicate
  opt/**: like params
  acts/moe/dispatched: E@expert G C M
  acts/moe/combined: G@expert S M
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of the family: what its step is predicted to hold, and to spend on recomputation."""

    layers: int
    experts: int
    remat: str
    peak_bytes: int
    fits: bool
    by_group: Mapping[str, int]
    shares: Mapping[str, float]
    """Of forward, backward, recomputed and update in all seconds of compute."""
    largest: tuple[str, ...]
    """The largest activations that are kept for the backward pass."""


def figure_7(record: Record) -> Figure:
    found = {key: member(*key) for key in MEMBERS}
    answers = {key: answer for key in COMPILED if (answer := compiled(*key, record)) is not None}
    return Figure(
        name="figure-7",
        tables=(rows(found, answers),),
        words=tuple(words(found, answers)),
        draw=lambda canvas: draw(canvas, found),
    )


def workload(layers: int, experts: int) -> Workload:
    """The trillion-weight member has its activations in bfloat16 (the paper, section 4.3)."""
    return gshard(experts=experts, layers=layers, activations="bfloat16" if layers == 60 else "float32")


def plan_of(experts: int, remat: str) -> Plan:
    head = f"meshwright: 1\ntopology: {MACHINES[experts]}\nmesh: {{expert: {experts}}}\nremat: {remat}\ntensors:"
    return loads(head + RULES, "figure-7.yaml")


def member(layers: int, experts: int, remat: str) -> Member:
    step = workload(layers, experts)
    estimate = mw.estimate(plan_of(experts, remat), step.step, step.args, donate_argnums=step.donated)
    shares = Counter[str]()
    for kernel in estimate.kernels:
        shares[kernel.phase] += kernel.total_s / (estimate.compute_s or 1)
    return Member(
        layers=layers,
        experts=experts,
        remat=remat,
        peak_bytes=estimate.peak_bytes,
        fits=estimate.fits,
        by_group=grouped(estimate.bytes_by_kind),
        shares=dict(shares),
        largest=tuple(kept(estimate)),
    )


def kept(estimate: Estimate) -> Iterator[str]:
    """The largest activations kept, by shape."""
    totals, counts = Counter[tuple[object, ...]](), Counter[tuple[object, ...]]()
    for tensor in estimate.memory.tensors:
        if tensor.kind == SAVED:
            counts[tensor.dtype, tensor.shape] += 1
            totals[tensor.dtype, tensor.shape] += tensor.num_bytes
    for (dtype, shape), num_bytes in totals.most_common(3):
        yield f"{counts[dtype, shape]} of {dtype}{list(shape)}, {num_bytes / GIB:.2f} GiB"


def grouped(by_kind: Mapping[str, int]) -> dict[str, int]:
    groups = {name: sum(by_kind.get(kind, 0) for kind in kinds) for name, kinds in GROUPS.items()}
    return groups | {OTHER: sum(by_kind.values()) - sum(groups.values())}


def compiled(layers: int, experts: int, remat: str, record: Record) -> Answer | None:
    """The compiler's peak, and whether it fits."""

    def answer() -> Answer:
        step = workload(layers, experts)
        made = mw.verify(plan_of(experts, remat), step.step, step.args, donate_argnums=step.donated).compiled
        return {"peak_bytes": made.peak_bytes, "fits": made.fits, "compute_s": made.compute_s}

    return record.get(f"figure 7, {layers} layers, {experts} experts, remat {remat}", answer)


Found = dict[tuple[int, int, str], Member]
Answers = dict[tuple[int, int, str], Answer]


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
    parted = "" if each.fits == (each.layers < 36) else f" Largest of what is kept: {'; '.join(each.largest)}."
    return (
        f"{each.layers} layers {said} without rematerialisation: {each.peak_bytes / GIB:.2f} GiB predicted; in the "
        f"paper {'they did' if each.layers < 36 else 'they did not'}.{parted}"
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
