"""Products that wait for a permute to run beside: those whose results nothing needs but the end of the step.

v6e's permutes are begun and awaited apart. The latency-hiding scheduler, which goes through a program from its end,
looks for a product to stand between: where what reads the permuted follows at once, it takes the nearest before that
nothing else needs, as a weight's gradient with its update. What that reads lives as long.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..kernels import Program
from ..kinds import COLLECTIVE_PERMUTE
from .deferred import PRODUCTS
from .flow import Flow


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
            free = _nearest_free(program, kinds, read, order[:at])
            if free is not None:
                order.remove(free)
                order.insert(at, free)
    return order


def _nearest_free(
    program: Program, kinds: Sequence[set[str]], read: dict[int, int], before: Sequence[int]
) -> int | None:
    """The last product before a point, behind the last loop there, that nothing reads."""
    for kernel in reversed(before):
        if program.kernels[kernel].bodies:
            return None
        if kinds[kernel] & PRODUCTS and kernel not in read:
            return kernel
    return None
