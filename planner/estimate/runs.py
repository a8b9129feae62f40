"""Everything that a device runs in a step, in order: its kernels and its collectives, each with its price.

``position`` counts all of them in a row, what loops repeat once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ..compute import KernelPrice
from ..graph import Op
from ..kernels import Kernel, Program
from ..kinds import COLLECTIVE_PERMUTE, KINDS
from ..price import Price
from .figures import PredictedCollective, PredictedKernel
from .scope import layer_of, phase_of
from .traffic import Tariff, axes_of, group_size, held_bytes

HEAVY = (
    "convolution",
    "dot_general",
    "ragged_dot",
    "custom_call",
    "sort",
    "scatter",
    "gather",
    "reduce_window",
    "reduce",
)
"""What a kernel is named after, where it holds any of them: the first of these."""
_RANKS = MappingProxyType({kind: rank for rank, kind in enumerate(HEAVY)})


class Run(NamedTuple):
    """A kernel that computes: where it stands among all that a step runs, how often it runs, what it takes."""

    position: int
    program: Program
    kernel: Kernel
    times: int
    price: KernelPrice
    counted: bool

    @property
    def total_s(self) -> float:
        """Seconds over a whole step."""
        return self.price.seconds * self.times

    @property
    def uncounted_s(self) -> float:
        """The same of what is not counted."""
        return self.price.uncounted_s * self.times if self.counted else self.total_s


class Sending(NamedTuple):
    """A collective: where it stands among all that a step runs, how often it runs."""

    position: int
    program: Program
    op: Op
    times: int


class Runs(NamedTuple):
    """What a step runs: kernels that compute, and collectives, each in order."""

    computing: tuple[Run, ...]
    sending: tuple[Sending, ...]


def runs_of(program: Program, prices: Iterable[KernelPrice], *, counts_all: bool) -> Runs:
    """What a program runs; ``prices`` are those of the kernels that compute, in order.

    ``counts_all`` says that no kernel's time is left out, as on machines whose compiler counts none of them.
    """
    computing, sending, left = list[Run](), list[Sending](), iter(prices)
    for position, (inner, kernel, times) in enumerate(program.walk()):
        op = inner.graph.ops[kernel.ops[-1]]
        if kind_of(op) in KINDS:
            sending.append(Sending(position, inner, op, times))
        elif not kernel.bodies:
            price = next(left)
            computing.append(Run(position, inner, kernel, times, price, price.counted or counts_all))
    return Runs(tuple(computing), tuple(sending))


def kernels(runs: Iterable[Run]) -> Iterator[PredictedKernel]:
    """The kernels that compute, as an estimate shows them."""
    for run in runs:
        price, main = run.price, main_op(run.program, run.kernel)
        yield PredictedKernel(
            label=main.kind,
            unit=price.bound,
            flops=price.flops,
            num_bytes=price.num_bytes,
            predicted_s=price.seconds,
            counted=run.counted,
            uncounted_s=price.uncounted_s,
            shared_s=price.shared_s,
            times=run.times,
            origin=main.origin,
            layer=layer_of(main.origin),
            phase=phase_of(main.origin),
            position=run.position,
        )


class Priced(NamedTuple):
    """A collective and what it takes; ``num_bytes`` are what one device holds of it."""

    sending: Sending
    num_bytes: int
    price: Price

    @property
    def total_s(self) -> float:
        """Seconds over a whole step."""
        return self.price.total_s * self.sending.times


def priced(sending: Iterable[Sending], tariff: Tariff) -> Iterator[Priced]:
    """The collectives, with the prices of a tariff; those that join one device alone are left out."""
    for each in sending:
        if group_size(tariff.network.mesh, axes_of(each.op)) > 1:
            num_bytes = held_bytes(each.program.graph, each.op, is_tpu=tariff.is_tpu)
            yield Priced(each, num_bytes, tariff.price(each.op, kind_of(each.op), num_bytes))


def collectives(
    found: Iterable[Priced], tariff: Tariff, gradients: Mapping[int, tuple[str, ...]]
) -> Iterator[PredictedCollective]:
    """The collectives as an estimate shows them; ``gradients`` are the weights whose gradients each adds up, by ``id``
    of its op.
    """
    for (position, program, op, times), num_bytes, price in found:
        axes, kind = axes_of(op), kind_of(op)
        yield PredictedCollective(
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
            gradient_of=gradients.get(id(op), ()),
            origin=op.origin,
            position=position,
        )


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
