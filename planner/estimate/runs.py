"""Everything that a device runs in a step, in order: its kernels and its collectives, each with its price.

``position`` counts all of them in a row, what loops repeat once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from ..compute import KernelPrice
from ..graph import Op
from ..kernels import Kernel, Program
from ..kinds import COLLECTIVE_PERMUTE, KINDS
from .figures import PredictedCollective, PredictedKernel
from .scope import layer_of, phase_of
from .traffic import Tariff, axes_of, group_size, held_bytes

HEAVY = ("convolution", "dot_general", "custom_call", "sort", "scatter", "gather", "reduce_window", "reduce")
"""What a kernel is named after, where it holds any of them: the first of these."""
_RANKS = MappingProxyType({kind: rank for rank, kind in enumerate(HEAVY)})


def kernels(program: Program, prices: Iterable[KernelPrice], *, counts_all: bool) -> Iterator[PredictedKernel]:
    """The kernels that compute, with their ``prices`` in the same order.

    ``counts_all`` says that no kernel's time is left out, as on machines whose compiler counts none of them.
    """
    left = iter(prices)
    for position, (inner, kernel, times) in enumerate(program.walk()):
        if kernel.bodies or _collective(inner, kernel):
            continue
        price, main = next(left), main_op(inner, kernel)
        yield PredictedKernel(
            label=main.kind,
            unit=price.bound,
            flops=price.flops,
            num_bytes=price.num_bytes,
            predicted_s=price.seconds,
            counted=price.counted or counts_all,
            times=times,
            origin=main.origin,
            layer=layer_of(main.origin),
            phase=phase_of(main.origin),
            position=position,
        )


def collectives(
    program: Program, tariff: Tariff, gradients: Mapping[int, tuple[str, ...]]
) -> Iterator[PredictedCollective]:
    """The collectives, with the prices of a tariff; those that join one device alone are left out.

    ``gradients`` are the weights whose gradients each adds up, by ``id`` of its op.
    """
    for position, (inner, kernel, times) in enumerate(program.walk()):
        op = _collective(inner, kernel)
        if op is not None and group_size(tariff.network.mesh, axes_of(op)) > 1:
            priced = _priced(inner, op, times, position, tariff)
            yield replace(priced, gradient_of=gradients[id(op)]) if id(op) in gradients else priced


def _priced(program: Program, op: Op, times: int, position: int, tariff: Tariff) -> PredictedCollective:
    axes, kind = axes_of(op), kind_of(op)
    num_bytes = held_bytes(program.graph, op)
    price = tariff.price(op, kind, num_bytes)
    return PredictedCollective(
        kind=kind,
        axes=axes,
        dims=tuple(op.attributes.get("dimensions", ())),
        dtype=program.graph.values[op.results[0]].dtype,
        num_bytes=num_bytes,
        times=times,
        group_size=2 if kind == COLLECTIVE_PERMUTE else group_size(tariff.network.mesh, axes),
        across_slices=tariff.crosses_slices(axes),
        predicted_s=price.total_s,
        algorithm=price.algorithm,
        bottleneck=price.bottleneck,
        origin=op.origin,
        position=position,
    )


def _collective(program: Program, kernel: Kernel) -> Op | None:
    """The collective that a kernel is; None for all others."""
    op = program.graph.ops[kernel.ops[-1]]
    return op if kind_of(op) in KINDS else None


def kind_of(op: Op) -> str:
    """A collective's name as HLO has it: StableHLO writes ``all_reduce`` inside manual regions."""
    return op.kind.replace("_", "-")


def main_op(program: Program, kernel: Kernel) -> Op:
    """The operation that a kernel is named after: its heaviest, or the last."""
    ops = program.graph.ops
    found, least = ops[kernel.ops[-1]], len(HEAVY)
    for number in reversed(kernel.ops):
        rank = _RANKS.get(ops[number].kind, least)
        if rank < least:
            found, least = ops[number], rank
    return found
