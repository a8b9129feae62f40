"""Values that only matrix products read are moved as bfloat16.

The TPU's matrix units round float32 operands of default precision to bfloat16. Its compiler therefore makes them in
bfloat16 where nothing else reads them, and what is gathered or exchanged on the way there is half as large; sums over
devices take float32 and leave bfloat16. Truth values, of which products read ones and zeros, are moved as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...fusion.nature import SENT, is_of_vector
from ...graph import Graph, Op, Value
from ...kinds import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, COLLECTIVE_PERMUTE, ROUNDED
from ..reshard import SLICE

WIDE, NARROW, TRUTH = "f32", "bf16", "pred"
PRODUCTS = frozenset({"dot_general", "dot", "convolution"})
EXCHANGES = frozenset({ALL_GATHER, ALL_TO_ALL, COLLECTIVE_PERMUTE})
MOVED = EXCHANGES | {SLICE}
SENT_ROUNDED = {SENT: True}
PASSED = EXCHANGES | {
    *("reshape", "transpose", "copy", "reverse", "slice", "concatenate", "pad", "broadcast_in_dim", "maximum"),
    *("minimum", "select", "abs", "dynamic_update_slice", "gather", SLICE),
}


def narrow(graph: Graph) -> Graph:
    """The graph with its exchanges of product operands in bfloat16, in loops too."""
    return _narrow(graph, [True] * len(graph.results))


def rounds_its_sum(graph: Graph) -> Graph:
    """The graph where its results are read rounded alone: a sum over devices that makes one leaves bfloat16."""
    sums = {value for op in graph.ops if op.kind == ALL_REDUCE for value in op.results}
    rounded = {value for value in sums.intersection(graph.results) if graph.values[value].dtype == WIDE}
    return _Narrowing(graph, rounded).graph() if rounded else graph


def _narrow(graph: Graph, results: Sequence[bool]) -> Graph:
    if not graph.nesting and graph.kinds.isdisjoint({*EXCHANGES, ALL_REDUCE}):
        return graph
    told, read = told_apart(graph, results)
    if graph.nesting:
        ops = (replace(op, bodies=tuple(_inner(op, told))) if op.bodies else op for op in graph.ops)
        graph = replace(graph, ops=tuple(ops))
    rounded = {value for value in read - told if graph.values[value].dtype == WIDE} | _converted(graph)
    return _Narrowing(graph, rounded).graph() if rounded else graph


def _converted(graph: Graph) -> set[int]:
    """What comes of other devices, sums of them too, that the step itself rounds, and reads not otherwise."""
    coming = {op.results[0] for op in graph.of_kind(*EXCHANGES, ALL_REDUCE)}
    coming = {value for value in coming - set(graph.results) if graph.values[value].dtype == WIDE}
    found = set[int]()
    for op in graph.ops if coming else ():
        if op.kind == "convert" and graph.values[op.results[0]].dtype == NARROW:
            found.update(op.operands)
        else:
            coming.difference_update(op.operands)
    return coming & found


def _inner(op: Op, told: set[int]) -> Iterator[Graph]:
    """The bodies of a loop or branch, narrowed by what reads their results."""
    for body in op.bodies:
        slots = [True] * len(body.results)
        if op.kind == "while":
            carried = _carried(op, told)[: len(slots)]
            slots = [a or b in told for a, b in zip(carried, op.results, strict=True)]
        yield _narrow(body, slots)


def told_apart(graph: Graph, results: Sequence[bool]) -> tuple[set[int], set[int]]:
    """The values that some reader tells from their rounded selves, and all that are read.

    ``results`` says which of the graph's results are told apart by what reads those.
    """
    told = {value for value, is_told in zip(graph.results, results, strict=True) if is_told}
    for op in reversed(graph.ops):
        kind = op.kind
        if kind in PRODUCTS:
            if not _rounds(op) or is_of_vector(graph, op):
                told.update(op.operands)
        elif kind in PASSED:
            if op.results[0] in told:
                told.update(op.operands)
        elif op.bodies and kind == "while":
            carried = _carried(op, told)
            told.update(value for value, is_told in zip(op.operands, carried, strict=True) if is_told)
        else:
            told.update(op.operands)
    return told, set(graph.results).union(*[op.operands for op in graph.ops])


def _carried(op: Op, told: set[int]) -> list[bool]:
    """What a loop carries is told apart if any turn or what follows the loop does so."""
    body = op.bodies[0]
    slots = [value in told for value in op.results]
    while True:
        inside, _ = told_apart(body, slots)
        found = [value in inside for value in body.arguments]
        grown = [slot or now for slot, now in zip(slots, found, strict=False)]
        if grown == slots:
            return found
        slots = grown


def _rounds(op: Op) -> bool:
    return all(precision == "DEFAULT" for precision in op.attributes.get("precision_config", ()))


class _Narrowing:
    """A graph in which some exchanges, and what moves their results on, become narrow."""

    def __init__(self, graph: Graph, rounded: set[int]):
        self.source = graph
        self.rounded = rounded
        self.values = list(graph.values)
        self.converted: dict[int, int] = {}
        self.said: dict[int, Mapping[str, Any]] = {}
        converts = (op for op in graph.ops if op.kind == "convert")
        self.truths = {op.results[0]: op.operands[0] for op in converts if self.values[op.operands[0]].dtype == TRUTH}

    def graph(self) -> Graph:
        """The narrowed graph."""
        ops: list[Op] = []
        for op in self.source.ops:
            if op.kind in PASSED and op.results[0] in self.rounded:
                ops += self._op(op)
            elif op.kind == ALL_REDUCE and op.results[0] in self.rounded:
                self._set_narrow(op.results[0])
                ops.append(replace(op, attributes=self._rounding(op.attributes)))
            else:
                ops.append(op)
        if self.truths:
            read = {*self.source.results, *(value for op in ops for value in op.operands)}
            ops = [op for op in ops if op.kind != "convert" or op.results[0] in read]
        return replace(self.source, values=tuple(self.values), ops=tuple(ops))

    def _op(self, op: Op) -> Iterator[Op]:
        """An operation whose result is rounded."""
        if op.kind in MOVED and op.operands[0] in self.truths:
            yield from self._moved_as_truths(op, self.truths[op.operands[0]])
            return
        if op.kind in EXCHANGES:
            (operand,) = op.operands
            if self.values[operand].dtype == WIDE:
                if operand not in self.converted:
                    self.converted[operand] = self._add(operand)
                    result = self.converted[operand]
                    yield replace(op, kind="convert", operands=(operand,), results=(result,), attributes=SENT_ROUNDED)
                op = op.moved((self.converted[operand],))
            self._set_narrow(op.results[0])
        elif op.kind in PASSED and self._all_narrow(op):
            self._set_narrow(op.results[0])
        yield op

    def _moved_as_truths(self, op: Op, operand: int) -> Iterator[Op]:
        """The exchange, or slice, of what a product's operand is converted from, and what arrives converted."""
        (result,) = op.results
        self.values.append(Value(self.values[result].shape, TRUTH))
        arrived = self.truths[result] = len(self.values) - 1
        self._set_narrow(result)
        yield replace(op, operands=(operand,), results=(arrived,))
        yield replace(op, kind="convert", operands=(arrived,), results=(result,), attributes={})

    def _rounding(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Those of a sum that rounds what it leaves: one mapping for all alike, by which alike kernels are known."""
        return self.said.setdefault(id(attributes), {**attributes, ROUNDED: True})

    def _all_narrow(self, op: Op) -> bool:
        return all(self.values[v].dtype != WIDE for v in op.operands)

    def _add(self, like: int) -> int:
        self.values.append(Value(self.values[like].shape, NARROW))
        return len(self.values) - 1

    def _set_narrow(self, value: int) -> None:
        self.values[value] = Value(self.values[value].shape, NARROW)
