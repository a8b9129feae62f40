"""Seconds of one kernel under a choice of layouts, by the same stages that price a whole step."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

from ..compute.speed import Speed
from ..estimate.traffic import Tariff
from ..graph import Graph, Sharding, Value
from ..kernels import Kernel
from ..partition.layout import local_shape
from ..topology import Machine
from .choices import Choice
from .fused import Fused, fused
from .nest import Nest
from .pieces import Piece, Pieces, alone, name_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """What prices kernels: a machine, the speed of its chips and what its network takes for a mesh."""

    machine: Machine
    speed: Speed
    tariff: Tariff
    mesh: Mapping[str, int]

    def pieces(self) -> Pieces:
        """Where the pieces of this mesh are kept."""
        return Pieces(machine=self.machine, tariff=self.tariff, mesh=self.mesh)


@dataclass(slots=True)
class _Asking:
    """An operation that may ask other devices: alone, by its name, with the forms of its values."""

    graph: Graph
    name: Hashable
    forms: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class Costs:
    """What the choices of one kernel take. Operations that ask other devices are partitioned one by one; what they
    become is fused with the others, once for all choices for which it differs in nothing but shapes.
    """

    own: Graph
    nest: Nest
    pricing: Pricing
    pieces: Pieces
    asking: dict[int, _Asking] = field(default_factory=dict)
    fused: dict[Hashable, Fused] = field(default_factory=dict)
    parts: dict[tuple[int, Sharding], tuple[int, ...]] = field(default_factory=dict)

    def seconds(self, choice: Choice) -> float:
        """What one run takes on each device, computing and its collectives."""
        found = {number: self._piece(number, choice) for number in choice.asking}
        found = {number: piece for number, piece in found.items() if not piece.plain}
        key = tuple((number, piece.form) for number, piece in found.items())

        def part(value: int, dtype: str) -> Value:
            form = self.nest.form_of[value]
            return Value(self._shape(value, form, choice.layouts[form]), dtype)

        if key not in self.fused:
            self.fused[key] = fused(self.own, part, found, self.nest.form_of)
        counts_all = self.pricing.machine.platform != "tpu"
        computing_s = self.fused[key].seconds(part, found, self.pricing.speed, counts_all=counts_all)
        return computing_s + sum(piece.collectives_s for piece in found.values())

    def _piece(self, number: int, choice: Choice) -> Piece:
        if number not in self.asking:
            graph, values = alone(self.own, number)
            self.asking[number] = _Asking(graph, name_of(graph), tuple(self.nest.form_of[v] for v in values))
        asking = self.asking[number]
        return self.pieces.of(asking.graph, asking.name, [choice.layouts[form] for form in asking.forms])

    def _shape(self, value: int, form: int, layout: Sharding) -> tuple[int, ...]:
        if (form, layout) not in self.parts:
            self.parts[form, layout] = local_shape(self.own.values[value].shape, layout, self.pricing.mesh)
        return self.parts[form, layout]


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
