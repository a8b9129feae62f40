"""The roofline bounds of a step: matrix units at their peak, each argument moved once, a network that costs nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from ..chip import Chip, Precision
from ..fusion.nature import GROUPED, SLICE
from ..graph import Graph, Op
from ..lookups import GATHER
from .figures import Bound

Work = Counter[tuple[str, Precision]]
PARTS = (GATHER, SLICE, "slice")
"""What reads no more of its operand than it makes."""


def bound(graph: Graph, local: Graph, chip: Chip) -> Bound:
    """The bounds of a step (``graph``) and of what a plan made of it for one device (``local``).

    The step's FLOPs and the bytes of its arguments are split evenly over the devices of its mesh; the plan's are a
    device's own, repeated and recomputed work with them.
    """
    devices = math.prod(graph.mesh.values())
    of_step, of_plan = matrix_work(graph, graph.mesh), matrix_work(local, {})
    return Bound(
        step_s=_longer(of_step, devices, argument_bytes(graph), chip),
        plan_s=_longer(of_plan, 1, argument_bytes(local), chip),
        step_flops=sum(of_step.values()) / devices,
        plan_flops=float(sum(of_plan.values())),
    )


def matrix_work(graph: Graph, mesh: Mapping[str, int], times: int = 1) -> Work:
    """The FLOPs of matrix products and convolutions of a graph, loops by their turns, by dtype and precision.

    A region of one device's shapes counts for all devices of ``mesh`` that run it.
    """
    found: Work = Counter()
    for op in graph.ops:
        flops = matrix_flops(graph, op)
        if flops:
            found[graph.values[op.operands[0]].dtype, product_precision(op)] += flops * times * op.origin.repeats
        for body in op.bodies:
            found.update(matrix_work(body, mesh, times * op.trips * _devices_inside(op, mesh)))
    return found


def matrix_flops(graph: Graph, op: Op) -> int:
    """Two for each multiplication of a matrix product or a convolution; 0 of all else."""
    if op.kind in ("dot_general", GROUPED):
        left, said = graph.shape(op.operands[0]), op.attributes
        contracted: int = math.prod(left[dim] for dim in said["lhs_contracting_dimensions"])
        is_by_groups = said.get("lhs_ragged_dimensions", (-1,))[0] in said["lhs_contracting_dimensions"]
        groups = graph.shape(op.operands[2])[-1] if is_by_groups else 1
        return 2 * graph.values[op.results[0]].num_elements * contracted // max(groups, 1)
    if op.kind == "convolution":
        kernel = graph.shape(op.operands[1])
        features: int = kernel[op.attributes["kernel_output_feature_dimension"]]
        return 2 * graph.values[op.results[0]].num_elements * math.prod(kernel) // max(1, features)
    return 0


def argument_bytes(graph: Graph) -> int:
    """Bytes of a graph's arguments; of those of which only parts are cut out or looked up, of these."""
    taken: dict[int, list[int]] = {value: [] for value in graph.arguments}
    reads, left = graph.reads(), frozenset(graph.results)
    for op in graph.of_kind(*PARTS):
        if op.operands[0] in taken and op.operands.count(op.operands[0]) == 1:
            taken[op.operands[0]].append(graph.values[op.results[0]].num_bytes)
    total = 0
    for value in graph.arguments:
        parts, num_bytes = taken[value], graph.values[value].num_bytes
        is_cut = bool(parts) and len(parts) == reads[value] and value not in left
        total += min(sum(parts), num_bytes) if is_cut else num_bytes
    return total


def _longer(work: Work, devices: int, num_bytes: int, chip: Chip) -> float | None:
    """Seconds of the FLOPs at the peak, or of the bytes once through memory, whichever is longer; of one device."""
    flops_s = _seconds(work.items(), chip)
    if flops_s is None or chip.hbm_bytes_per_s is None:
        return None
    return max(flops_s, num_bytes / chip.hbm_bytes_per_s) / devices


def _seconds(work: Iterable[tuple[tuple[str, Precision], int]], chip: Chip) -> float | None:
    total_s = 0.0
    for (dtype, precision), flops in work:
        peak = chip.peak_flops_per_s(dtype, precision) or chip.peak_flops_per_s("bfloat16")
        if peak is None:
            return None
        total_s += flops / peak
    return total_s


def product_precision(op: Op) -> Precision:
    """The higher of the precisions that a product asks for its two operands."""
    said = str(op.attributes.get("precision_config", op.attributes.get("precision", ""))).lower()
    return "highest" if "highest" in said else "high" if "high" in said else "default"


def _devices_inside(op: Op, mesh: Mapping[str, int]) -> int:
    """How many devices' work a manual region's shapes leave out."""
    return math.prod(mesh.get(axis, 1) for axis in op.attributes.get("manual_axes", ()))
