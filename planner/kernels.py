"""The program of one device as it runs: kernels, each some operations fused, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .graph import Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """What a device runs at once: an operation with those fused to it, a collective, or a loop.

    ``ops`` number the graph's operations in it, in order; an operation that the compiler computes anew for each that
    reads it stands in several kernels. ``reads`` and ``writes`` number the values that it takes from memory and leaves
    there; what stays inside is never written. ``waits`` are values that must be there before it runs though it does not
    read them: what a barrier took. A loop or a conditional has the programs of its bodies.
    """

    ops: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    bodies: tuple[Program, ...] = ()
    waits: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Kernels in the order in which they run, on the values of the graph of one device."""

    graph: Graph
    kernels: tuple[Kernel, ...]

    def walk(self, times: int = 1) -> Iterator[tuple[Program, Kernel, int]]:
        """Every kernel with its program and how often a step runs it or one like it, loops entered once."""
        for kernel in self.kernels:
            yield self, kernel, times * repeats_of(self.graph, kernel)
            trips = self.graph.ops[kernel.ops[-1]].trips if kernel.bodies else 1
            for body in kernel.bodies:
                yield from body.walk(times * trips)


def repeats_of(graph: Graph, kernel: Kernel) -> int:
    """For how many kernels alike one stands: as its last operation does, so that each is counted in one place."""
    return graph.ops[kernel.ops[-1]].origin.repeats
