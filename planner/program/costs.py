"""Seconds of one kernel under a choice of layouts, by the same stages that price a whole step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..compute.price import price_at
from ..compute.speed import Speed
from ..estimate.runs import collectives
from ..estimate.traffic import Tariff
from ..fusion import fuse
from ..graph import Graph, Sharding, Value
from ..kernels import Kernel
from ..partition import partition
from ..topology import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """What prices kernels: a machine, the speed of its chips and what its network takes for a mesh."""

    machine: Machine
    speed: Speed
    tariff: Tariff
    mesh: Mapping[str, int]
    known: dict[object, float] = field(default_factory=dict)

    def seconds(self, graph: Graph) -> float:
        """What one run of a graph takes whose values have their layouts: its kernels and their collectives."""
        local = partition(graph, platform=self.machine.platform, machine=self.machine)
        program = fuse(local)
        counts_all = self.machine.platform != "tpu"
        prices = price_at(program, self.speed)
        took = sum(p.seconds * p.times for p in prices if p.counted or counts_all)
        return took + sum(c.total_s for c in collectives(program, self.tariff, {}))


def kernel_graph(graph: Graph, kernel: Kernel, mesh: Mapping[str, int]) -> tuple[Graph, tuple[int, ...]]:
    """A kernel as a graph of its own, without layouts, and the numbers that its values have in the whole."""
    ops = [graph.ops[number] for number in kernel.ops]
    numbers = tuple(dict.fromkeys(v for op in ops for v in (*op.operands, *op.results)))
    place = {number: position for position, number in enumerate(numbers)}
    made = {v for op in ops for v in op.results}
    small = tuple(
        replace(op, operands=tuple(place[v] for v in op.operands), results=tuple(place[v] for v in op.results))
        for op in ops
    )
    own = Graph(
        values=tuple(graph.values[n] for n in numbers),
        ops=small,
        arguments=tuple(place[n] for n in numbers if n not in made),
        results=tuple(place[v] for v in kernel.writes),
        mesh=mesh,
    )
    return own, numbers


def laid_out(own: Graph, numbers: Sequence[int], layouts: Mapping[int, Sharding]) -> Graph:
    """A kernel's graph with the layouts of its values, by their numbers in the whole."""
    values = tuple(
        Value(value.shape, value.dtype, layouts[number]) for value, number in zip(own.values, numbers, strict=True)
    )
    return replace(own, values=values)
