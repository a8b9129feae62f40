"""Everything that a device runs in a step, in order: collectives and kernels, each with its price."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..graph import Op, Origin
from ..kernels import Kernel, Program
from ..kinds import COLLECTIVE_PERMUTE, KINDS
from .figures import PredictedCollective, PredictedKernel
from .scope import layer_of, phase_of
from .traffic import Tariff, axes_of, group_size, held_bytes

HEAVY = ("convolution", "dot_general", "custom_call", "sort", "scatter", "gather", "reduce_window", "reduce")
"""What a kernel is named after, where it holds any of them: the first of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one run of a kernel takes: seconds, the unit that bounds it, FLOPs, the bytes that it reads and writes."""

    took_s: float
    unit: str
    flops: float
    num_bytes: int


Pricing = Callable[[Program, Kernel], Work]


@dataclass(slots=True)
class Runs:
    """What a step runs, as it is collected; ``position`` counts on through loops' bodies, each entered once."""

    tariff: Tariff
    pricing: Pricing | None
    kernels: list[PredictedKernel] = field(default_factory=list)
    collectives: list[PredictedCollective] = field(default_factory=list)
    places: dict[Origin, tuple[str, str]] = field(default_factory=dict)

    def add(self, program: Program) -> Runs:
        """Adds everything that a program runs."""
        for position, (inner, kernel, times) in enumerate(program.walk()):
            op = inner.graph.ops[kernel.ops[-1]]
            if kind_of(op) in KINDS:
                self._add_collective(inner, op, times, position)
            elif not kernel.bodies:
                self._add_kernel(inner, kernel, times, position)
        return self

    @property
    def compute_s(self) -> float | None:
        """Seconds of all kernels; None where nothing prices them."""
        return sum(kernel.total_s for kernel in self.kernels) if self.pricing else None

    def _add_kernel(self, program: Program, kernel: Kernel, times: int, position: int) -> None:
        if self.pricing is None:
            return
        work = self.pricing(program, kernel)
        main = main_op(program, kernel)
        layer, phase = self._place(main.origin)
        self.kernels.append(
            PredictedKernel(
                label=main.kind,
                unit=work.unit,
                flops=work.flops,
                num_bytes=work.num_bytes,
                predicted_s=work.took_s,
                times=times,
                origin=main.origin,
                layer=layer,
                phase=phase,
                position=position,
            )
        )

    def _add_collective(self, program: Program, op: Op, times: int, position: int) -> None:
        axes, kind = axes_of(op), kind_of(op)
        joined = group_size(self.tariff.network.mesh, axes)
        if joined == 1:
            return
        num_bytes = held_bytes(program.graph, op)
        price = self.tariff.price(op, kind, num_bytes)
        self.collectives.append(
            PredictedCollective(
                kind=kind,
                axes=axes,
                dims=tuple(op.attributes.get("dimensions", ())),
                dtype=program.graph.values[op.results[0]].dtype,
                num_bytes=num_bytes,
                times=times,
                group_size=2 if kind == COLLECTIVE_PERMUTE else joined,
                across_slices=self.tariff.crosses_slices(axes),
                predicted_s=price.total_s,
                algorithm=price.algorithm,
                bottleneck=price.bottleneck,
                origin=op.origin,
                position=position,
            )
        )

    def _place(self, origin: Origin) -> tuple[str, str]:
        if origin not in self.places:
            self.places[origin] = layer_of(origin), phase_of(origin)
        return self.places[origin]


def kind_of(op: Op) -> str:
    """A collective's name as HLO has it: StableHLO writes ``all_reduce`` inside manual regions."""
    return op.kind.replace("_", "-")


def main_op(program: Program, kernel: Kernel) -> Op:
    """The operation that a kernel is named after: its heaviest, or the last."""
    ops = [program.graph.ops[number] for number in kernel.ops]
    return min(reversed(ops), key=lambda op: HEAVY.index(op.kind) if op.kind in HEAVY else len(HEAVY))
