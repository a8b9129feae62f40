"""Seconds of one kernel under a choice of layouts, by the same stages that price a whole step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..compute.price import price_at
from ..compute.speed import Speed
from ..estimate.runs import kind_of
from ..estimate.traffic import Tariff, axes_of, group_size, held_bytes
from ..fusion import fuse
from ..graph import Graph, Op, Sharding, Value
from ..kernels import Kernel, Program
from ..kinds import KINDS
from ..partition import partition
from ..partition.layout import local_shape
from ..topology import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """What prices kernels: a machine, the speed of its chips and what its network takes for a mesh."""

    machine: Machine
    speed: Speed
    tariff: Tariff
    mesh: Mapping[str, int]

    def seconds(self, graph: Graph, *, talks: bool) -> float:
        """What one run of a kernel's graph takes whose values have their layouts: computing and its collectives.

        ``talks`` says that some operation needs what other devices have. Where none does every device computes the
        kernel on its own part.
        """
        program = self._partitioned(graph) if talks else self._alone(graph)
        counts_all = self.machine.platform != "tpu"
        took = sum(p.seconds * p.times for p in price_at(program, self.speed) if p.counted or counts_all)
        if not talks:
            return took
        return took + sum(self._collective(inner, op) * times for inner, op, times in program.graph.walk())

    def _partitioned(self, graph: Graph) -> Program:
        return fuse(partition(graph, platform=self.machine.platform, machine=self.machine))

    def _alone(self, graph: Graph) -> Program:
        values = (Value(local_shape(v.shape, v.sharding or (), self.mesh), v.dtype) for v in graph.values)
        kernel = Kernel(ops=tuple(range(len(graph.ops))), reads=graph.arguments, writes=graph.results)
        return Program(graph=replace(graph, values=tuple(values)), kernels=(kernel,))

    def _collective(self, graph: Graph, op: Op) -> float:
        kind = kind_of(op)
        if kind not in KINDS or group_size(self.tariff.network.mesh, axes_of(op)) < 2:
            return 0.0
        return self.tariff.price(op, kind, held_bytes(graph, op)).total_s


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


def laid_out(own: Graph, layouts: Mapping[int, Sharding]) -> Graph:
    """A kernel's graph with the layouts of its values."""
    values = tuple(Value(value.shape, value.dtype, layouts[n]) for n, value in enumerate(own.values))
    return replace(own, values=values)
