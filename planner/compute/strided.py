"""What a scan takes of arrays that lie another way: of each piece a row of every register."""

from __future__ import annotations

from collections.abc import Collection

from ..fusion.nature import ELEMENTWISE
from ..graph import Graph, Op
from ..kernels import Kernel
from ..kinds import KINDS
from .work import LANES

KEEPING = {*KINDS, *ELEMENTWISE, "transpose", "dynamic_slice", "slice", "reshape"}
SLICE, PRODUCT = "dynamic_slice", "dot_general"

ROW_CYCLES, WIDE_ROW_CYCLES, WIDE_EDGE = 15.0, 7.0, 256
"""What taking one row out of a register takes, seen on v3, v5e and v5p; and where squares are as wide as on v6e."""


def strided(graph: Graph, given: Collection[int]) -> frozenset[int]:
    """The values whose first dim is not the one that is major in memory: transposes of what is given or multiplied.

    A transpose before a loop moves no numbers, nor does the product before that write what it makes as a loop reads it.
    """
    major = dict.fromkeys(given, 0)
    for op in graph.ops:
        if op.kind == PRODUCT:
            major[op.results[0]] = 0
        elif op.kind in KEEPING and op.operands and op.operands[0] in major and len(op.results) == 1:
            if op.kind == "reshape" and graph.shape(op.operands[0])[:1] != graph.shape(op.results[0])[:1]:
                continue
            dim = major[op.operands[0]]
            major[op.results[0]] = tuple(op.attributes["permutation"]).index(dim) if op.kind == "transpose" else dim
    return frozenset(value for value, dim in major.items() if dim)


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
