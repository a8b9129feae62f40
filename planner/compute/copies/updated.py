"""What is updated in place though the step was only lent it: a copy of all of it first.

A cache that a step takes, puts a piece into and returns, and that is not donated, is copied whole. Such a copy is
counted as if of float32 whatever its dtype, as it goes register by register (v3, v4, v5e, v5p, v6e: 18.2, 18.1, 18.4,
7.1 and 10.8 cycles for each, in bfloat16 as in float32). What has room in fast memory twice is moved while others
compute, of what has room there once about every other one (4 to 256 MiB, two to eight copies; v3 has no such room). So
is a table that rows are added to (v5e: ``f32[50000,128]`` 117283 cycles; ``f32[50000,64]``, which is turned to lie row
by row and back, 51545 twice).
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

TIGHT = 0.5
"""How much of copies runs beside the kernels of what has room in fast memory once, and not twice."""
STALLED_LATER = 1.25
"""How many times as long as their bytes take copies do on chips with such memory: 1.23 to 1.38 times."""


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
        took = 2 * padded_bytes(replace(value, dtype="f32")) * self._of.byte_cycles
        fast_bytes, own_bytes = self._of.near_total_bytes or self._of.common_bytes, padded_bytes(value)
        if not fast_bytes:
            return took
        hidden = 1.0 if 2 * own_bytes <= fast_bytes else TIGHT if own_bytes <= fast_bytes else 0.0
        return took * STALLED_LATER * (1 - hidden)
