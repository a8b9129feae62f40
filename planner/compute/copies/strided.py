"""What a scan takes of arrays that lie another way: of each piece a row of every register."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...fusion.nature import ELEMENTWISE
from ...graph import Graph, Op
from ...kernels import Kernel
from ...kinds import KINDS
from ..work import LANES

TILED_DIMS = 2
KEEPING = {*KINDS, *ELEMENTWISE, "transpose", "dynamic_slice", "slice", "reshape"}
SLICE, PRODUCT = "dynamic_slice", "dot_general"

ROW_CYCLES, WIDE_ROW_CYCLES, WIDE_EDGE = 15.0, 7.0, 256
"""What taking one row out of a register takes, seen on v3, v5e and v5p; and where squares are as wide as on v6e."""


def strided(graph: Graph, given: Collection[int]) -> frozenset[int]:
    """The values whose first dim lies in registers' rows or lanes: transposes of what is given or multiplied.

    A transpose before a loop moves no numbers, nor does the product before that write what it makes as a loop reads it.
    Pieces along a dim that lies outside of the two minor ones are whole registers (seen on v4 and v5e).
    """
    orders = {value: _as_it_comes(graph, value) for value in given}
    for op in graph.ops:
        if op.kind == PRODUCT:
            orders[op.results[0]] = _as_it_comes(graph, op.results[0])
        elif op.kind in KEEPING and op.operands and op.operands[0] in orders and len(op.results) == 1:
            order = _order_after(graph, op, orders[op.operands[0]])
            if order is not None:
                orders[op.results[0]] = order
    return frozenset(value for value, order in orders.items() if order[:1] > (0,) and _is_tiled(graph, value, order))


def _as_it_comes(graph: Graph, value: int) -> tuple[int, ...]:
    return tuple(range(len(graph.shape(value))))


def _order_after(graph: Graph, op: Op, order: tuple[int, ...]) -> tuple[int, ...] | None:
    """A result's dims from the major one on, if they are known: its operand's lie in this ``order``.

    What is reshaped with its first dim inside of others keeps that inside.
    """
    before, after = graph.shape(op.operands[0]), graph.shape(op.results[0])
    if not before:
        return None  # one number for all of an array
    if op.kind == "transpose":
        places = tuple(op.attributes["permutation"])
        return tuple(places.index(dim) for dim in order)
    if before == after:
        return order
    if op.kind != "reshape" or before[:1] != after[:1]:
        return None
    rest = tuple(range(1, len(after)))
    return (0, *rest) if order[0] == 0 else (*rest, 0)


def _is_tiled(graph: Graph, value: int, order: Sequence[int]) -> bool:
    """Whether the first dim is one of the two minor ones."""
    shape = graph.shape(value)
    return 0 in [dim for dim in order if shape[dim] > 1][-TILED_DIMS:]


def turned_stacks(loop: Op, values: Collection[int]) -> frozenset[int]:
    """The arguments of a loop's body that are given these values."""
    places = zip(loop.operands, loop.bodies[0].arguments, strict=False)
    return frozenset(argument for operand, argument in places if operand in values)


def rows_cycles(graph: Graph, kernel: Kernel, stacks: frozenset[int], edge: int) -> float:
    """What taking pieces of these costs a kernel on a chip whose squares have this edge."""
    if not stacks or stacks.isdisjoint(kernel.reads):
        return 0.0
    slices = (op for op in map(graph.ops.__getitem__, kernel.ops) if op.kind == SLICE and op.operands[0] in stacks)
    each = WIDE_ROW_CYCLES if edge >= WIDE_EDGE else ROW_CYCLES
    return sum(each * graph.values[op.results[0]].num_elements / LANES for op in slices)
