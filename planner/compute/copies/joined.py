"""Copies between lookups and products that put several arrays together along what they sum, as message passing does.

Such a product reads its arrays with their rows on the lanes, and what is computed of these number by number lies so.
A lookup's rows lie one by one: what it makes is copied for the product, and what lies across is copied to be its table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...fusion.nature import BARRIER, ELEMENTWISE, PRODUCTS
from ...graph import Graph, Op
from ...kernels import Program
from ...kinds import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from ...lookups import LOOK_UP, looks_up_rows, tables_of
from ..coefficients import Coefficients
from ..work import REGISTER_ELEMENTS, padded_bytes, padded_elements
from .turning import Side, turning_cycles

JOIN = "concatenate"
ALONG = ELEMENTWISE | {"dynamic_slice", BARRIER, ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER}
"""What leaves values as they lie."""


class Joined:
    """The values of a program that lie across, and the lookups that they are copied for."""

    def __init__(self, program: Program, of: Coefficients) -> None:
        self._graph, self._of = program.graph, of
        joins = list(_joins(program)) if not program.graph.kinds.isdisjoint(LOOK_UP) else []
        self._across = self._connected(value for op in joins for value in op.operands)
        self._copied = set(program.graph.arguments)

    def copies_cycles(self, op: Op) -> float:
        """What the copies take between a lookup and what lies across."""
        if not self._across or not looks_up_rows(self._graph, op):
            return 0.0
        met = {value for value in (*tables_of(op), *op.results) if value in self._across} - self._copied
        self._copied |= met
        return sum(map(self._copy_cycles, met))

    def _copy_cycles(self, value: int) -> float:
        held = self._graph.values[value]
        side = Side(padded_elements(held.shape) / REGISTER_ELEMENTS, padded_bytes(held))
        return turning_cycles(side, side, self._of)

    def _connected(self, start: Iterable[int]) -> frozenset[int]:
        """These values and what they come of or become without lying otherwise, as far as lookups."""
        waiting, found = list(start), set[int]()
        beside: dict[int, list[int]] = {}
        for op in self._graph.ops if waiting else ():
            if op.kind in ALONG:
                for made, value in ((made, value) for made in op.results for value in op.operands):
                    if len(self._graph.shape(made)) == len(self._graph.shape(value)) == 2:
                        beside.setdefault(made, []).append(value)
                        beside.setdefault(value, []).append(made)
        while waiting:
            value = waiting.pop()
            if value not in found:
                found.add(value)
                waiting += beside.get(value, ())
        return frozenset(found)


def _joins(program: Program) -> Iterator[Op]:
    """What products put together as they read it, along the dim that they sum."""
    for kernel in program.kernels:
        ops = [program.graph.ops[number] for number in kernel.ops]
        if any(op.kind in PRODUCTS for op in ops):
            yield from (op for op in ops if op.kind == JOIN and _is_last(program.graph, op))


def _is_last(graph: Graph, op: Op) -> bool:
    rank = len(graph.shape(op.results[0]))
    return rank == 2 and op.attributes["dimension"] == rank - 1
