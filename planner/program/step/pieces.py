"""What single operations become on one device where they ask others: each worked out once for its layouts."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....dsl.records import record
from ...compute.demand import CUTS
from ...estimate.runs import kind_of
from ...estimate.traffic import Tariff, axes_of, group_size, held_bytes
from ...graph import Graph, Op, Sharding, Value
from ...kinds import ALL_REDUCE, COLLECTIVE_PERMUTE, KINDS
from ...partition import Found, partition
from ...partition.passes.narrow import rounds_its_sum
from ...partition.passes.scatters import kept_dims
from ...partition.target import target
from ...topology import Machine


@dataclass(frozen=True, slots=True)
class Alone:
    """An operation as a graph of its own, by its name, with the forms of its values: operands, then results. What it
    leaves may be read as bfloat16 alone: ``rounded``.
    """

    graph: Graph
    name: Hashable
    forms: tuple[int, ...]
    rounded: bool


@record(frozen=True, slots=True, kw_only=True)
class Piece:
    """An operation on one device, with its collectives. ``collectives_s`` is what those take, ``permutes_s`` those of
    them that neighbours send each other, ``last_s`` what a sum takes that comes last: along ``kept`` dims a ring may
    leave each device its part of it.

    ``form`` is what pieces have in common that differ in their shapes alone. A ``plain`` one asks nobody.
    """

    graph: Graph
    collectives_s: float
    permutes_s: float
    form: Hashable
    plain: bool
    last_s: float = 0.0
    kept: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """The pieces of one mesh of a machine; ``known`` are those worked out before, ``found`` is ``partition``'s."""

    machine: Machine
    tariff: Tariff
    mesh: Mapping[str, int]
    known: dict[Hashable, Piece] = field(default_factory=dict)
    found: Found = field(default_factory=Found)

    def of(self, alone: Alone, layouts: Sequence[Sharding]) -> Piece:
        """The piece of one operation whose values are laid out so."""
        key = (alone.name, tuple(layouts))
        found = self.known.get(key)
        if found is None:
            values = tuple(Value(v.shape, v.dtype, s) for v, s in zip(alone.graph.values, layouts, strict=True))
            laid = replace(alone.graph, values=values, mesh=self.mesh)
            local = partition(laid, platform=self.machine.platform, machine=self.machine, found=self.found)
            local = rounds_its_sum(local) if alone.rounded and self.machine.platform == "tpu" else local
            found = self.known[key] = self._piece(alone.graph.ops[0], local, key)
        return found

    def _piece(self, op: Op, local: Graph, key: Hashable) -> Piece:
        inner = any(each.bodies for each in local.ops)
        ops = tuple((each.kind, each.operands, each.results, _taken(local, each)) for each in local.ops)
        dtypes = tuple(value.dtype for value in local.values)
        took = [(each.kind, self._collective(graph, each) * times) for graph, each, times in local.walk()]
        return Piece(
            graph=local,
            collectives_s=sum(seconds for _, seconds in took),
            permutes_s=sum(seconds for kind, seconds in took if kind == COLLECTIVE_PERMUTE),
            form=key if inner else (ops, dtypes, local.arguments, local.results),
            plain=len(local.ops) == 1 and local.ops[0].kind == op.kind and not inner,
            last_s=took[-1][1] if took and local.ops[-1].kind == ALL_REDUCE else 0.0,
            kept=self._kept(local),
        )

    def _kept(self, local: Graph) -> frozenset[int]:
        """The dims along which each device may be left its part of the sum that comes last."""
        if not local.ops or local.ops[-1].kind != ALL_REDUCE or len(local.ops[-1].operands) != 1:
            return frozenset()
        goal = target(self.machine.platform, self.machine, math.prod(self.mesh.values()))
        return kept_dims(local, goal, self.mesh)

    def _collective(self, graph: Graph, op: Op) -> float:
        kind = kind_of(op)
        if kind not in KINDS or group_size(self.tariff.network.mesh, axes_of(op)) < 2:
            return 0.0
        return self.tariff.price(op, kind, held_bytes(graph, op, is_tpu=self.tariff.is_tpu)).total_s


def _taken(graph: Graph, op: Op) -> float:
    """The part that is taken of what a piece is cut from: what a kernel reads of that hangs on it."""
    if op.kind not in CUTS:
        return 1.0
    return graph.values[op.results[0]].num_elements / max(graph.values[op.operands[0]].num_elements, 1)
