"""In which order a kernel has its operands, which XLA's schedulers follow: that in which the compiler fused it.

It begins with the operation whose result is written and takes to it, one after another, the operand that stands last in
post-order (``InstructionFusion``): that is an operand no more, and its own come behind those that there are. Of larger
kernels the compiler fuses parts before others, which is not followed: their operands count as they were made.
"""

from __future__ import annotations

from ...graph import Graph
from ...kernels import Kernel

MOST = 3
"""Operands of kernels that were fused in this order wherever compiled programs were looked at."""


ORDER = "order"


def operands(graph: Graph, kernel: Kernel) -> tuple[int, ...]:
    """The values that a kernel reads, in the order of its operands."""
    reads, form = kernel.reads, kernel.form
    if len(reads) < 2 or form is None:
        return _operands(graph, kernel)
    order = form.get(ORDER)
    if order is None:
        order = form[ORDER] = tuple(map(reads.index, _operands(graph, kernel)))
    return tuple([reads[place] for place in order])


def _operands(graph: Graph, kernel: Kernel) -> tuple[int, ...]:
    arrays = sum([graph.values[value].num_elements > 1 for value in kernel.reads]) if len(kernel.reads) > 1 else 0
    if not 1 < arrays <= MOST:
        return kernel.reads
    makers = {value: number for number in kernel.ops for value in graph.ops[number].results}
    found = list[int]()
    for root in sorted({makers[value] for value in kernel.writes if value in makers}):
        found += _taken(graph, makers, root)
    return tuple([value for value in dict.fromkeys((*found, *kernel.reads)) if value in kernel.reads])


def _taken(graph: Graph, makers: dict[int, int], root: int) -> list[int]:
    found = list(dict.fromkeys(graph.ops[root].operands))
    while inside := [(makers[value], value) for value in found if makers.get(value, root) < root]:
        number, value = max(inside)
        found.remove(value)
        found += [operand for operand in dict.fromkeys(graph.ops[number].operands) if operand not in found]
    return found
