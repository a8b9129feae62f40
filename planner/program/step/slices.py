"""What kernels read little of, apart from what they compute of it.

A dim that half or less is cut out of is no loop with that: a kernel whose values have one layout each could split
neither. A device may have all of what it reads and go on with any part of what it cuts out: so cutting is a kernel of
its own here, which takes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from ...fusion.nature import PRODUCTS, VIEWS
from ...graph import Graph, Op
from ...kernels import Kernel, Program
from .nest import SLICE
from .passing import own_ops, own_reads


def with_slices_apart(program: Program, free: dict[int, Kernel], behind: Collection[int]) -> Program:
    """The program with each such cut apart, and each of one, but for those of products; ``free`` gets these, by
    their ids. What several kernels cut alike is cut once; what is read ``behind`` barriers stays. Loops are not
    entered.
    """
    kernels: list[Kernel] = []
    known: set[int] = set()
    for kernel in program.kernels:
        while cut := next(_slices(program.graph, kernel, behind), None):
            if known.isdisjoint(cut.writes):
                free[id(cut)] = cut
                kernels.append(cut)
                known.update(cut.writes)
            kernel = _handed(program.graph, kernel, *cut.writes)
        kernels.append(kernel)
    return replace(program, kernels=tuple(kernels))


def _slices(graph: Graph, kernel: Kernel, behind: Collection[int]) -> Iterator[Kernel]:
    kinds = {graph.ops[number].kind for number in kernel.ops}
    works = not (kernel.bodies or kinds <= VIEWS | {SLICE}) and kinds.isdisjoint(PRODUCTS)
    for number in kernel.ops if works else ():
        op = graph.ops[number]
        if op.kind != SLICE or op.results[0] in kernel.writes or op.operands[0] not in kernel.reads:
            continue
        if _cuts_few(graph, op) and not {*behind} & {*op.operands, *op.results}:
            yield Kernel(ops=(number,), reads=op.operands, writes=op.results)


def _cuts_few(graph: Graph, op: Op) -> bool:
    """Whether a slice leaves several places of a dim, and so few that it is not the same loop (``nest``)."""
    sizes = zip(graph.shape(op.operands[0]), graph.shape(op.results[0]), strict=True)
    return any(1 < part <= whole // 2 for whole, part in sizes)


def _handed(graph: Graph, kernel: Kernel, value: int) -> Kernel:
    """The kernel that reads a value that it would else cut out."""
    rest = replace(kernel, reads=(*kernel.reads, value))
    rest = replace(rest, ops=own_ops(graph, rest))
    return replace(rest, reads=own_reads(graph, rest))
