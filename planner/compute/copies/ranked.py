"""What surrounds a sort, or the largest of a dim: of these the compiler counts the copies and the places, not the work.

Numbers are sorted along rows of registers. What is sorted along its last dim is copied to lie so and back again, but
for what a product makes, which makes it so, in registers of 32 bits whatever the dtype; a sort that keeps the order of
equal numbers sorts the places of numbers beside them, which are written first. Seen on v3, v5e and v6e.
"""

from __future__ import annotations

from collections.abc import Collection

from ...fusion.nature import PRODUCTS
from ...graph import Graph, Op, Value
from ...ranked import TOP_K, is_ranked, placed_beside, turned
from ..coefficients import Coefficients
from ..work import REGISTER_ELEMENTS, WORD_BYTES, padded_elements
from .turning import NEAR_CYCLES, Side, turning_cycles


class Ranked:
    """The sorts of a graph; ``given`` are the arguments of its step, ``left`` the results."""

    def __init__(self, graph: Graph, of: Coefficients, given: Collection[int], left: Collection[int]) -> None:
        self._graph, self._of = graph, of
        self._given, self._left = frozenset(given), frozenset(left)
        self._made_so = {value for op in graph.of_kind(*PRODUCTS, "iota") for value in op.results}
        self._read = {value for op in graph.ops for value in op.operands}

    def copies_cycles(self, op: Op) -> float:
        """What copies and places take around a sort."""
        values, took = self._graph.values, 0.0
        few = op.kind == TOP_K and is_ranked(op, values[op.operands[0]])
        if turned(self._graph, op):
            sides = [v for v in op.operands if v not in self._made_so]
            took += sum(self._copy(values[v], came_near=None if v not in self._given else False) for v in sides)
            if not few:
                kept = [v for v in op.results if v in self._left or v in self._read]
                took += sum(self._copy(values[v], is_result=v in self._left, came_near=True) for v in kept)
        return took + (self._places(placed_beside(self._graph, op)) if not few else 0.0)

    def _copy(self, value: Value, *, is_result: bool = False, came_near: bool | None) -> float:
        registers = padded_elements(value.shape) / REGISTER_ELEMENTS
        side = Side(registers, registers * REGISTER_ELEMENTS * WORD_BYTES)
        near = came_near if self._fits(side.num_bytes) else False
        free = side.num_bytes + self._of.near_total_bytes
        return turning_cycles(side, side, self._of, is_result=is_result, free_bytes=free, came_near=near)

    def _places(self, places: Value | None) -> float:
        if places is None:
            return 0.0
        registers = padded_elements(places.shape) / REGISTER_ELEMENTS
        num_bytes = registers * REGISTER_ELEMENTS * WORD_BYTES
        if self._fits(2 * num_bytes):
            return 2 * NEAR_CYCLES * registers
        return num_bytes * self._of.byte_cycles + num_bytes / self._of.single_window_bytes * self._of.step_cycles

    def _fits(self, num_bytes: float) -> bool:
        return num_bytes <= self._of.near_total_bytes
