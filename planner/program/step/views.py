"""What kernels read in other dims than it lies in, or little of, apart from what they compute of it.

Of a dim that a reshape makes several of, a kernel whose values have one layout each could split the minor ones only
where the major one is split all the way; of one that half or less is cut out of, it could split neither. A device may
have all of what it reads and go on with any part of what it views: so viewing is a kernel of its own here, which takes
nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from ...fusion.nature import PRODUCTS, VIEWS
from ...graph import Graph, Op
from ...kernels import Kernel, Program
from .nest import SLICE
from .passing import own_ops, own_reads

RESHAPE = "reshape"


def with_views_apart(program: Program, free: dict[int, Kernel], behind: Collection[int]) -> Program:
    """The program with each such view apart, and each view of one, but for those of products; ``free`` gets these, by
    their ids. What several kernels view alike is viewed once; what is read ``behind`` barriers stays. Loops are not
    entered.
    """
    kernels: list[Kernel] = []
    viewed: set[int] = set()
    for kernel in program.kernels:
        while view := next(_views(program.graph, kernel, behind), None):
            if viewed.isdisjoint(view.writes):
                free[id(view)] = view
                kernels.append(view)
                viewed.update(view.writes)
            kernel = _handed(program.graph, kernel, *view.writes)
        kernels.append(kernel)
    return replace(program, kernels=tuple(kernels))


def _views(graph: Graph, kernel: Kernel, behind: Collection[int]) -> Iterator[Kernel]:
    kinds = {graph.ops[number].kind for number in kernel.ops}
    works = not (kernel.bodies or kinds <= VIEWS | {SLICE}) and kinds.isdisjoint(PRODUCTS)
    for number in kernel.ops if works else ():
        op = graph.ops[number]
        if op.kind not in (RESHAPE, SLICE) or op.results[0] in kernel.writes or op.operands[0] not in kernel.reads:
            continue
        is_bound = _cuts_few(graph, op) if op.kind == SLICE else _parts_dims(graph, op)
        if is_bound and not {*behind} & {*op.operands, *op.results}:
            yield Kernel(ops=(number,), reads=op.operands, writes=op.results)


def _cuts_few(graph: Graph, op: Op) -> bool:
    """Whether a slice leaves several places of a dim, and so few that it is not the same loop (``nest``)."""
    sizes = zip(graph.shape(op.operands[0]), graph.shape(op.results[0]), strict=True)
    return any(1 < part <= whole // 2 for whole, part in sizes)


def _parts_dims(graph: Graph, op: Op) -> bool:
    """Whether a reshape makes several dims of one."""
    if op.factors is None:
        return False
    sizes = op.factors.sizes
    return any(sum(sizes[factor] > 1 for factor in dim) > 1 for dim in op.factors.operands[0])


def _handed(graph: Graph, kernel: Kernel, value: int) -> Kernel:
    """The kernel that reads a value that it would else view."""
    rest = replace(kernel, reads=(*kernel.reads, value))
    rest = replace(rest, ops=own_ops(graph, rest))
    return replace(rest, reads=own_reads(graph, rest))
