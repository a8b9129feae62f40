"""Products that wait for a permute to run beside: those whose results what is sent does not need.

From v4 on permutes are begun and awaited apart. The latency-hiding scheduler, which goes through a program from its
end, looks for a product to stand between: where what reads the permuted follows at once, it takes the nearest before
that it may, as a weight's gradient with its update. What that reads lives as long.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels import Program
from ...kinds import COLLECTIVE_PERMUTE
from ..flow.flow import Flow
from .deferred import PRODUCTS


def beside_permutes(program: Program, flow: Flow) -> list[int]:
    """The order in which each permute that no product stands behind has the nearest free one there."""
    if COLLECTIVE_PERMUTE not in program.graph.kinds:
        return list(range(len(program.kernels)))
    kinds = [{program.graph.ops[op].kind for op in kernel.ops} for kernel in program.kernels]
    read: dict[int, int] = {}
    for kernel, values in enumerate(flow.operands):
        for value in values:
            read.setdefault(flow.maker[value], kernel)
    order = list(range(len(kinds)))
    for permute in (kernel for kernel in reversed(order.copy()) if COLLECTIVE_PERMUTE in kinds[kernel]):
        at = order.index(permute)
        after = order.index(read[permute]) if permute in read else at
        if after > at and not any(kinds[kernel] & PRODUCTS for kernel in order[at:after]):
            free = _nearest_free(program, flow, kinds, order, at)
            if free:
                before = [kernel for kernel in order[:at] if kernel not in free]
                order = [*before, permute, *(kernel for kernel in order[:at] if kernel in free), *order[at + 1 :]]
    return order


def _nearest_free(program: Program, flow: Flow, kinds: Sequence[set[str]], order: Sequence[int], at: int) -> set[int]:
    """The last product before a point, behind the last loop there, that what is sent there does not need, with all
    before it that needs the product.
    """
    needed = {flow.maker[value] for value in flow.operands[order[at]]}
    for position in reversed(range(at)):
        kernel = order[position]
        if program.kernels[kernel].bodies:
            return set()
        if kernel in needed:
            needed.update(flow.maker[value] for value in flow.operands[kernel])
        elif kinds[kernel] & PRODUCTS:
            return _with_readers(flow, kernel, order[position + 1 : at])
    return set()


def _with_readers(flow: Flow, kernel: int, behind: Sequence[int]) -> set[int]:
    """A kernel with those behind it that need it."""
    found = {kernel}
    for other in behind:
        if any(flow.maker[value] in found for value in flow.operands[other]):
            found.add(other)
    return found
