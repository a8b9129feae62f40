"""The members of GShard's family whose memory Figure 7 has.

GShard's training step with appendix A.2's sizes, one expert and 2048 source and target tokens a core, as in the plans
that ship; without rematerialisation and with all of it (the paper's compiler recomputes what it must, part by part).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import meshwright as mw
from meshwright.backends.jax.models import gshard
from meshwright.backends.jax.models.config import TransformerConfig
from meshwright.backends.jax.workload import Workload
from meshwright.dsl.plan import Plan
from meshwright.dsl.reader import loads
from meshwright.planner.estimate.figures import Estimate
from meshwright.planner.memory.kinds import SAVED

from .record import Answer, Record

MACHINES = {128: "v3:8x8", 512: "v3:16x16", 2048: "v3:32x32"}
NONE, FULL = "none", "full"
MEMBERS = (
    *((12, experts, NONE) for experts in MACHINES),
    *((layers, 128, NONE) for layers in (24, 36)),
    *((layers, experts, FULL) for layers in (12, 24, 36) for experts in MACHINES),
    (60, 2048, FULL),
)
"""Layers, experts of each MoE layer, what is recomputed."""
COMPILED = (*((layers, experts, FULL) for layers in (12, 36) for experts in MACHINES), (60, 2048, FULL))
"""Those that the compiler is asked for, the family of Table 1: it takes a minute or more each."""
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
    scores_bytes: int
    """Of attention scores, [.., heads, T, T], that are kept for the backward pass."""


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
        scores_bytes=kept_scores(estimate),
    )


def kept_scores(estimate: Estimate) -> int:
    config = TransformerConfig()
    scores = (config.heads, config.length, config.length)
    kept = [tensor for tensor in estimate.memory.tensors if tensor.kind == SAVED and tensor.shape[-3:] == scores]
    return sum(tensor.num_bytes for tensor in kept)


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
