"""The program of one device as it runs: kernels, each some operations fused, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from ..dsl.records import record
from .forms import Form
from .graph import Graph

PRODUCTS = ("dot_general", "convolution")


@record(frozen=True, slots=True, kw_only=True)
class Kernel:
    """What a device runs at once: an operation with those fused to it, a collective, or a loop.

    ``ops`` number the graph's operations in it, in order; an operation that the compiler computes anew for each that
    reads it stands in several kernels. ``reads`` and ``writes`` number the values that it takes from memory and leaves
    there; what stays inside is never written. ``waits`` are values that must be there before it runs though it does not
    read them: what a barrier took. ``behind`` has the values that it reads behind barriers, each
    with all that its barrier took. A loop or a conditional has the programs of its bodies. ``form`` is what is known of
    all kernels alike, where that is kept.
    """

    ops: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    bodies: tuple[Program, ...] = ()
    waits: tuple[int, ...] = ()
    behind: tuple[tuple[int, tuple[int, ...]], ...] = ()
    form: Form | None = field(default=None, compare=False, repr=False)


@record(frozen=True, slots=True, kw_only=True)
class Program:
    """Kernels in the order in which they run, on the values of the graph of one device.

    ``joint`` has what sums over devices make that are one (``joint_sums``), None where nobody has looked.
    """

    graph: Graph
    kernels: tuple[Kernel, ...]
    joint: tuple[tuple[int, ...], ...] | None = None

    def walk(self, times: int = 1) -> Iterator[tuple[Program, Kernel, int]]:
        """Every kernel with its program and how often a step runs it or one like it, loops entered once."""
        repeats = {op.origin.repeats for op in self.graph.ops}
        same = repeats.pop() if len(repeats) == 1 else None
        for kernel in self.kernels:
            yield self, kernel, times * (repeats_of(self.graph, kernel) if same is None else same)
            trips = self.graph.ops[kernel.ops[-1]].trips if kernel.bodies else 1
            for body in kernel.bodies:
                yield from body.walk(times * trips)


def repeats_of(graph: Graph, kernel: Kernel) -> int:
    """For how many kernels alike one stands: where its operations are of several layers as its first product does, or
    its last operation, so that each kernel is counted in one place.
    """
    if len(kernel.ops) == 1:
        return graph.ops[kernel.ops[0]].origin.repeats
    found = {graph.ops[number].origin.repeats for number in kernel.ops}
    if len(found) == 1:
        return found.pop()
    ops = [graph.ops[number] for number in kernel.ops]
    return next((op for op in ops if op.kind in PRODUCTS), ops[-1]).origin.repeats


def repeats_of_arguments(graph: Graph) -> dict[int, int]:
    """For how many each argument of a graph stands: as what first reads it does, forward if it is a layer's weight."""
    found: dict[int, int] = {}
    for op in graph.ops:
        for value in op.operands:
            found.setdefault(value, op.origin.repeats)
    return {value: found.get(value, 1) for value in graph.arguments}
