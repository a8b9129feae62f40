"""Values that only matrix products read are moved as bfloat16.

The TPU's matrix units round float32 operands of default precision to bfloat16. Its compiler therefore makes them in
bfloat16 where nothing else reads them, and what is gathered or exchanged on the way there is half as large.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...graph import Graph, Op, Value
from ...kinds import ALL_GATHER, ALL_TO_ALL, COLLECTIVE_PERMUTE
from ..reshard import SLICE

WIDE, NARROW = "f32", "bf16"
PRODUCTS = frozenset({"dot_general", "dot", "convolution"})
EXCHANGES = frozenset({ALL_GATHER, ALL_TO_ALL, COLLECTIVE_PERMUTE})
PASSED = EXCHANGES | {
    *("reshape", "transpose", "copy", "reverse", "slice", "concatenate", "pad", "broadcast_in_dim", "maximum"),
    *("minimum", "select", "abs", SLICE),
}


def narrow(graph: Graph) -> Graph:
    """The graph with its exchanges of product operands in bfloat16, in loops too."""
    if any(op.bodies for op in graph.ops):
        ops = (replace(op, bodies=tuple(map(narrow, op.bodies))) if op.bodies else op for op in graph.ops)
        graph = replace(graph, ops=tuple(ops))
    if not any(op.kind in EXCHANGES for op in graph.ops):
        return graph
    rounded = _rounded(graph)
    return _Narrowing(graph, rounded).graph() if rounded else graph


def _rounded(graph: Graph) -> set[int]:
    """The wide values that are read by nothing that tells them from their rounded selves."""
    told: set[int] = set(graph.results)
    read: set[int] = set()
    for op in reversed(graph.ops):
        tells = not _rounds(op) and not (op.kind in PASSED and op.results[0] not in told and op.results[0] in read)
        for value in op.operands:
            read.add(value)
            if tells:
                told.add(value)
    return {value for value in read - told if graph.values[value].dtype == WIDE}


def _rounds(op: Op) -> bool:
    if op.kind == "convert":
        return False
    precision = op.attributes.get("precision_config", ())
    return op.kind in PRODUCTS and all(p == "DEFAULT" for p in precision)


class _Narrowing:
    """A graph in which some exchanges, and what moves their results on, become narrow."""

    def __init__(self, graph: Graph, rounded: set[int]):
        self.source = graph
        self.rounded = rounded
        self.values = list(graph.values)
        self.converted: dict[int, int] = {}

    def graph(self) -> Graph:
        """The narrowed graph."""
        ops = [made for op in self.source.ops for made in self._op(op)]
        return replace(self.source, values=tuple(self.values), ops=tuple(ops))

    def _op(self, op: Op) -> Iterator[Op]:
        if op.kind in EXCHANGES and op.results[0] in self.rounded:
            (operand,) = op.operands
            if self.values[operand].dtype == WIDE:
                if operand not in self.converted:
                    self.converted[operand] = self._add(operand)
                    yield replace(
                        op, kind="convert", operands=(operand,), results=(self.converted[operand],), attributes={}
                    )
                op = replace(op, operands=(self.converted[operand],))
            self._set_narrow(op.results[0])
        elif op.kind in PASSED and op.results[0] in self.rounded and self._all_narrow(op):
            self._set_narrow(op.results[0])
        yield op

    def _all_narrow(self, op: Op) -> bool:
        return all(self.values[v].dtype != WIDE for v in op.operands)

    def _add(self, like: int) -> int:
        self.values.append(Value(self.values[like].shape, NARROW))
        return len(self.values) - 1

    def _set_narrow(self, value: int) -> None:
        self.values[value] = Value(self.values[value].shape, NARROW)
