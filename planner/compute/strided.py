"""What a scan takes of arrays that lie another way: of each piece a row of every register."""

from __future__ import annotations

from collections.abc import Collection

from ..graph import Graph, Op
from ..kernels import Kernel
from ..kinds import KINDS
from .work import LANES

KEEPING = {*KINDS, "convert", "transpose", "dynamic_slice", "slice"}
SLICE = "dynamic_slice"

ROW_CYCLES = 15.0
"""What taking one row out of a register takes, seen on v3, v5e and v5p."""


def strided(graph: Graph, given: Collection[int]) -> frozenset[int]:
    """The values whose first dim is not the one that is major in memory: transposes of what is given.

    A transpose before a loop moves no numbers; products and other kernels write what they make as loops read it.
    """
    major = dict.fromkeys(given, 0)
    for op in graph.ops:
        if op.kind in KEEPING and op.operands and op.operands[0] in major and len(op.results) == 1:
            dim = major[op.operands[0]]
            major[op.results[0]] = tuple(op.attributes["permutation"]).index(dim) if op.kind == "transpose" else dim
    return frozenset(value for value, dim in major.items() if dim)


def turned_stacks(loop: Op, values: Collection[int]) -> frozenset[int]:
    """The arguments of a loop's body that are given these values."""
    places = zip(loop.operands, loop.bodies[0].arguments, strict=False)
    return frozenset(argument for operand, argument in places if operand in values)


def rows_cycles(graph: Graph, kernel: Kernel, stacks: frozenset[int]) -> float:
    """What taking pieces of these costs a kernel."""
    if not stacks or stacks.isdisjoint(kernel.reads):
        return 0.0
    slices = (op for op in map(graph.ops.__getitem__, kernel.ops) if op.kind == SLICE and op.operands[0] in stacks)
    return sum(ROW_CYCLES * graph.values[op.results[0]].num_elements / LANES for op in slices)
