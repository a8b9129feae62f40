"""Gathers that are sums of what devices have among zeros.

The TPU compiler gathers so vectors whose parts are less than a tile, and on slices of many chips whatever all devices
of one gather, which a sum brings along all dims of the torus at once: on a torus of two dims where it is small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...fusion.nature import ELEMENTWISE
from ...graph import Graph, Op, Value
from ...kinds import ALL_GATHER, ALL_REDUCE, GATHERED
from ..layout import Mesh
from ..target import Target
from .narrow import SENT_ROUNDED

TILE_NUMBERS = 1024


def sum_small_gathers(graph: Graph, *, viewed: bool = True) -> Graph:
    """The graph with an all-reduce for each all-gather of a vector with parts smaller than a tile, in loops too; if not
    of what is ``viewed`` in more dims, where another plan may gather it.
    """
    if not graph.nesting and not any(_is_small(op, graph) for op in graph.ops if op.kind == ALL_GATHER):
        return graph
    values = list(graph.values)
    left = frozenset[int]() if viewed else _viewed(graph)

    ops: list[Op] = []
    for op in graph.ops:
        if not _is_small(op, graph) or not left.isdisjoint(op.results):
            bodies = tuple(sum_small_gathers(body, viewed=viewed) for body in op.bodies)
            ops.append(replace(op, bodies=bodies) if bodies else op)
            continue
        values.append(values[op.results[0]])
        inner = (len(values) - 1,)
        ops.append(Op(kind="pad", operands=op.operands, results=inner, origin=op.origin))
        ops.append(
            Op(
                kind=ALL_REDUCE,
                operands=inner,
                results=op.results,
                attributes={**op.attributes, "reducer": "add"},
                origin=op.origin,
            )
        )
    return replace(graph, values=tuple(values), ops=tuple(ops))


def _is_small(op: Op, graph: Graph) -> bool:
    if op.kind != ALL_GATHER:
        return False
    part = graph.values[op.operands[0]]
    return len(part.shape) == 1 and part.num_elements % TILE_NUMBERS != 0


def sums_viewed(graph: Graph) -> bool:
    """Whether some such sum is of a vector that is viewed in other dims."""
    padded = {op.results[0] for op in graph.ops if op.kind == "pad"}
    sums = {op.results[0] for op in graph.ops if op.kind == ALL_REDUCE and not padded.isdisjoint(op.operands)}
    inside = any(sums_viewed(body) for op in graph.ops for body in op.bodies) if graph.nesting else False
    return inside or not sums.isdisjoint(_viewed(graph) if sums else ())


def _viewed(graph: Graph) -> frozenset[int]:
    """What is viewed in other dims, or computed number by number and then is."""
    found: set[int] = set()
    for op in reversed(graph.ops):
        if op.kind == "reshape" or (op.kind in ELEMENTWISE and not found.isdisjoint(op.results)):
            found.update(op.operands)
    return frozenset(found)


def sum_whole_gathers(graph: Graph, target: Target, mesh: Mesh) -> Graph:
    """The graph with an all-reduce for each all-gather of a whole slice that the compiler makes one, in loops too."""
    if not target.may_sum_gathers or not (graph.nesting or ALL_GATHER in graph.kinds):
        return graph
    return _Summing(graph, target, mesh).graph()


class _Summing:
    """A graph in which gathers become sums; those alike have one mapping of attributes, by which they are known."""

    def __init__(self, graph: Graph, target: Target, mesh: Mesh):
        self.source, self.target, self.mesh = graph, target, mesh
        self.values = list(graph.values)
        self.said: dict[int, Mapping[str, Any]] = {}
        converts = [op for op in graph.ops if op.kind == "convert"]
        self.wide = {op.results[0]: op.operands[0] for op in converts if op.attributes is SENT_ROUNDED}
        self.before = {op.results[0]: graph.values[op.operands[0]] for op in converts}

    def graph(self) -> Graph:
        """The graph with sums."""
        ops: list[Op] = []
        for op in self.source.ops:
            if op.bodies:
                bodies = tuple(sum_whole_gathers(body, self.target, self.mesh) for body in op.bodies)
                ops.append(replace(op, bodies=bodies))
            elif op.kind == ALL_GATHER and self._is_summed(op):
                ops += self._sum(op)
            else:
                ops.append(op)
        read = {*self.source.results, *(value for op in ops for value in op.operands)}
        made = tuple(op for op in ops if op.attributes is not SENT_ROUNDED or op.results[0] in read)
        return replace(self.source, values=tuple(self.values), ops=made)

    def _is_summed(self, op: Op) -> bool:
        """Whether a gather is a sum: its bytes count as they are before what is sent is rounded, by the model too."""
        whole, (part,) = self.values[op.results[0]], op.operands
        bits = max(whole.bits, self.before[part].bits if part in self.before else 0)
        num_bytes = whole.num_elements * bits // 8
        return self.target.sums_gather(op.attributes.get("axes", ()), self.mesh, num_bytes)

    def _sum(self, op: Op) -> Iterator[Op]:
        """Zeros, a device's part written into them in the dtype that it is made in, and the sum, which is rounded as it
        is sent, where the gather was.
        """
        part = self.wide.get(op.operands[0], op.operands[0])
        whole = Value(self.values[op.results[0]].shape, self.values[part].dtype)
        zero, zeros, among = (self._add(value) for value in (Value((), whole.dtype), whole, whole))
        said = self.said.setdefault(id(op.attributes), {**op.attributes, "reducer": "add", GATHERED: True})
        yield Op(kind="constant", results=(zero,), attributes={"splat": 0.0}, origin=op.origin)
        yield Op(
            kind="broadcast_in_dim",
            operands=(zero,),
            results=(zeros,),
            attributes={"broadcast_dimensions": ()},
            origin=op.origin,
        )
        yield Op(kind="dynamic_update_slice", operands=(zeros, part), results=(among,), origin=op.origin)
        yield Op(kind=ALL_REDUCE, operands=(among,), results=op.results, attributes=said, origin=op.origin)

    def _add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1
