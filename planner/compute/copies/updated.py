"""What is updated in place though the step was only lent it: a copy of all of it first.

A cache that a step takes, puts a piece into and returns, and that is not donated, is copied whole. Seen on v3, where
such a copy is counted as if of float32 whatever its dtype, as it goes register by register; later chips move most of
them while they compute. So is a table that rows are added to (v5e: ``f32[50000,128]`` 117283 cycles; ``f32[50000,64]``,
which is turned to lie row by row and back, 51545 twice).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ...fusion.nature import UPDATE
from ...graph import Graph, Op, Value
from ...kernels import Kernel, Program
from ...lookups import SCATTER, looks_up_rows, row_tiles
from ..coefficients import Coefficients
from ..work import REGISTER_ELEMENTS, WORD_BYTES, padded_bytes, padded_elements
from .turning import Side, turning_cycles

CHANGES = frozenset({UPDATE, SCATTER})

HIDDEN_LATER = 0.75
"""What of such copies runs beside the kernels, seen on v5e and v6e: six of eight, and all that pass vector memory."""


def lent(graph: Graph) -> frozenset[int]:
    """The arguments of a whole step that are not donated."""
    return frozenset(graph.arguments) - {graph.arguments[argument] for argument in graph.aliases.values()}


def first_updates(program: Program) -> dict[int, int]:
    """By argument that a whole step is only lent, the first operation that updates it."""
    graph, found = program.graph, dict[int, int]()
    known = lent(graph)
    for number in (number for kernel in program.kernels for number in kernel.ops):
        op = graph.ops[number]
        if op.kind in CHANGES and op.operands[0] in known:
            found.setdefault(op.operands[0], number)
    return found


class Updated:
    """What a step is only ``lent`` that is copied where it is first updated."""

    def __init__(self, graph: Graph, of: Coefficients, lent: Collection[int]) -> None:
        self._graph, self._of, self._lent = graph, of, set(lent)
        ops = () if CHANGES.isdisjoint(graph.kinds) else enumerate(graph.ops)
        self._updates = {n for n, op in ops if op.kind in CHANGES and op.operands[0] in self._lent}

    def copies_cycles(self, kernel: Kernel) -> float:
        """What copying takes that a kernel is the first to update."""
        took = 0.0
        for number in kernel.ops if self._updates else ():
            value = self._graph.ops[number].operands[0] if number in self._updates else -1
            if value in self._lent:
                self._lent.discard(value)
                op, held = self._graph.ops[number], self._graph.values[value]
                is_scatter = op.kind == SCATTER
                took += self._table_cycles(op, held) if is_scatter else self._copy_cycles(held)
        return took

    def _table_cycles(self, op: Op, table: Value) -> float:
        """What is scattered into is copied whole; a table that does not lie row by row is turned, and turned back."""
        rows = Side(row_tiles(table), row_tiles(table) * REGISTER_ELEMENTS * WORD_BYTES)
        least = Side(padded_elements(table.shape) / REGISTER_ELEMENTS, padded_bytes(table))
        if len(table.shape) > 1 and looks_up_rows(self._graph, op) and rows.registers > least.registers:
            there = turning_cycles(least, rows, self._of, came_near=False)
            return there + turning_cycles(rows, least, self._of, is_result=True)
        moved = 2 * padded_bytes(table)
        return moved * self._of.byte_cycles + -(-moved // self._of.loop_window_bytes) * self._of.step_cycles

    def _copy_cycles(self, value: Value) -> float:
        if 2 * padded_bytes(value) <= self._of.near_total_bytes:
            return 0.0
        took = 2 * padded_bytes(replace(value, dtype="f32")) * self._of.byte_cycles
        return took * (1 - HIDDEN_LATER) if self._of.near_total_bytes else took
