"""Figure 8: where the time of one Transformer layer and one MoE layer goes, forward, against the roofline.

One block of GShard's encoder (attention, feed-forward; attention, experts) with appendix A.2's sizes, one expert and
2048 tokens a core, on 128, 512 and 2048 cores of TPU v3. No dropout and no random routing: whose random numbers the
paper drew how is not known. Parts are told apart by the function of the model that asked for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
from meshwright.backends.jax.models import blocks
from meshwright.backends.jax.models.config import TransformerConfig
from meshwright.backends.jax.models.parameters import abstract_parameters, parameter_table
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.plan import Plan
from meshwright.dsl.reader import loads
from meshwright.planner.collectives import price
from meshwright.planner.kinds import ALL_TO_ALL, COLLECTIVE_PERMUTE
from meshwright.planner.topology import Machine, physical

from .compiled_parts import compute_by_part
from .figure_9 import whole
from .parts import EXCHANGE, SUMS, part_of
from .record import Answer, Record

MACHINES = {128: "v3:8x8", 512: "v3:16x16", 2048: "v3:32x32"}
RULES = """
  x: B@expert T M
  segments: B@expert T
  params/moe/w[io]: E@expert ...
  params/**: replicate
  acts/moe/dispatched: E@expert G C M
  acts/moe/combined: G@expert S M
  out/0: B@expert T M
  out/**: infer
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Seconds by part at one number of experts: predicted, and at the roofline of each kernel and collective; FLOPs."""

    predicted_s: dict[str, float]
    roofline_s: dict[str, float]
    flops: dict[str, float]
    products_s: dict[str, float]
    """Predicted seconds of those kernels that hold a matrix product."""
    exchanged: str
    """The dtype in which tokens travel to experts and back."""

    def as_compiled(self, compute_s: Mapping[str, float]) -> Breakdown:
        """The same with the compiler's seconds of compute; those of collectives stay the network model's."""
        return replace(self, predicted_s={part: compute_s.get(part, s) for part, s in self.predicted_s.items()})

    @property
    def total_s(self) -> float:
        return sum(self.predicted_s.values())

    def share(self, part: str) -> float:
        return self.predicted_s[part] / self.total_s

    @property
    def of_roofline(self) -> float:
        return sum(self.roofline_s.values()) / self.total_s


def block(experts: int) -> tuple[Plan, Callable[..., Any], tuple[Any, ...]]:
    """The plan, the forward pass of one block, and its abstract arguments (params, x, segments)."""
    config = TransformerConfig(experts=experts, layers=4)
    stacked = abstract_parameters(parameter_table(config))["encoder"]
    params = jax.tree.map(lambda p: jax.ShapeDtypeStruct(p.shape[1:], p.dtype), stacked)
    x = jax.ShapeDtypeStruct((config.rows, config.length, config.model_dim), config.dtype)
    segments = jax.ShapeDtypeStruct((config.rows, config.length), jnp.int32)

    def step(params: Any, x: jax.Array, segments: jax.Array) -> Any:
        around = blocks.Surroundings(config=config, stack="encoder", segments=segments)
        return blocks.run_block(around, params, x, None)

    head = f"meshwright: 1\ntopology: {MACHINES[experts]}\nmesh: {{expert: {experts}}}\ntensors:"
    return loads(head + RULES, "figure-8.yaml"), step, (params, x, segments)


def breakdown(experts: int) -> Breakdown:
    estimate = mw.estimate(*block(experts))
    machine = physical(parse_topology(MACHINES[experts]))
    predicted, roofline, flops, products = (Counter[str]() for _ in range(4))
    for kernel in estimate.kernels:
        part = part_of(kernel.origin.source, kernel.origin.scope)
        predicted[part] += kernel.total_s
        roofline[part] += kernel.times * roofline_s(kernel.flops, kernel.num_bytes, machine)
        flops[part] += kernel.flops * kernel.times
        products[part] += kernel.total_s if kernel.flops else 0
    exchanged = next((each.dtype for each in estimate.collectives if each.kind == ALL_TO_ALL), "")
    for each in estimate.collectives:
        part = EXCHANGE if each.kind in (ALL_TO_ALL, COLLECTIVE_PERMUTE) else SUMS
        predicted[part] += each.total_s
        roofline[part] += each.times * price(each.kind, each.num_bytes, whole(MACHINES[experts])).bandwidth_s
    return Breakdown(
        predicted_s=dict(predicted),
        roofline_s=dict(roofline),
        flops=dict(flops),
        products_s=dict(products),
        exchanged=exchanged,
    )


def roofline_s(flops: float, num_bytes: int, machine: Machine) -> float:
    """As the paper has it: all of the peak FLOP/s or all of the memory's bandwidth, whichever takes longer."""
    return max(flops / peak(machine), num_bytes / (machine.chip.hbm_bytes_per_s or 1))


def peak(machine: Machine) -> float:
    return machine.chip.peak_flops_per_s("bfloat16") or 1


def compiled(experts: int, record: Record) -> Answer | None:
    """The compiler's seconds by part; none of collectives, to which it gives no time."""
    return record.get(f"figure 8, {experts} experts", lambda: compute_by_part(*block(experts), part_of))
