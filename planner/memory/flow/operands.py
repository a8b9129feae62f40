"""In which order a kernel has its operands, which XLA's schedulers follow: that in which the compiler fused it.

It begins with the operation whose result is written and takes to it, one after another, the operand that stands last in
post-order (``InstructionFusion``): that is an operand no more, and its own come behind those that there are. Of larger
kernels it takes what is spread last (softmax, norms and their gradients, compiled for v3, v4, v5e and v6e), and the
product that they begin with when all else is. Of other large kernels the operands count as they were made: those of
several products, of convolutions, and of what is made of a product that itself reads what is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...fusion.nature import PRODUCTS, VIEWS
from ...graph import Graph, Op
from ...kernels import Kernel

FEWEST, MOST = 2, 2
"""Operands of kernels that were fused in this order wherever compiled programs were looked at."""

ORDER = "order"
DOT = "dot_general"
SPREAD = frozenset({"broadcast_in_dim"})
NOTHING = MappingProxyType[int, int]({})
NOTHING_LAST = frozenset[str]()


def operands(graph: Graph, kernel: Kernel, shaped: Mapping[int, int] = NOTHING) -> tuple[int, ...]:
    """The values that a kernel reads, in the order of its operands; ``shaped`` has the first product that each value is
    the second operand of (``shaped_for``).
    """
    reads, form = kernel.reads, kernel.form
    is_shaped = _is_shaped(graph, kernel, shaped)
    if len(reads) < 2 or form is None:
        return _operands(graph, kernel, is_shaped=is_shaped)
    order = form.get((ORDER, is_shaped))
    if order is None:
        order = tuple(map(reads.index, _operands(graph, kernel, is_shaped=is_shaped)))
        form[ORDER, is_shaped] = order
    return tuple([reads[place] for place in order])


def shaped_for(graph: Graph) -> dict[int, int]:
    """The first product, by its number, of those that each value is the second operand of."""
    found: dict[int, int] = {}
    for number, op in enumerate(graph.ops):
        for second in op.operands[1:] if op.kind == DOT else ():
            found.setdefault(second, number)
    return found


def _is_shaped(graph: Graph, kernel: Kernel, shaped: Mapping[int, int]) -> bool:
    """Whether the second operand of a kernel's product is shaped for another before its first is made in the kernel."""
    product = graph.ops[kernel.ops[-1]]
    since = [shaped.get(second, kernel.ops[-1]) for second in product.operands[1:] if product.kind == DOT]
    return any(product.operands[0] in graph.ops[n].results for first in since for n in kernel.ops if n > first)


def _operands(graph: Graph, kernel: Kernel, *, is_shaped: bool) -> tuple[int, ...]:
    arrays = sum([graph.values[value].num_elements > 1 for value in kernel.reads]) if len(kernel.reads) > 1 else 0
    if arrays < FEWEST:
        return kernel.reads
    makers = {value: number for number in kernel.ops for value in graph.ops[number].results}
    if arrays <= MOST:
        found = _from_results(graph, kernel, makers)
    else:
        found = _of_many(graph, kernel, makers, is_shaped=is_shaped)
    return tuple([value for value in dict.fromkeys((*found, *kernel.reads)) if value in kernel.reads])


def _of_many(graph: Graph, kernel: Kernel, makers: Mapping[int, int], *, is_shaped: bool) -> list[int]:
    """What a kernel without a product reads, or with one: of what is made of a product of values that are given, these
    come last, for it is taken in when all else is; nothing of kernels with several, nor of loops.
    """
    ops = _but_views(graph, kernel)
    products = [op for op in ops if op.kind in PRODUCTS]
    if kernel.bodies:
        return []
    if not products:
        return _from_results(graph, kernel, makers, SPREAD)
    if len(products) > 1 or products[0].kind != DOT:
        return []
    (product,) = products
    if product is ops[-1]:
        return _of_product(graph, product, makers, is_shaped=is_shaped)
    if not makers.keys().isdisjoint(product.operands):
        return []
    rest = {value: number for value, number in makers.items() if value not in product.results}
    return [*_from_results(graph, kernel, rest, SPREAD), *product.operands]


def _of_product(graph: Graph, product: Op, makers: Mapping[int, int], *, is_shaped: bool) -> list[int]:
    """What the product of one value with what is made in its kernel reads.

    The compiler shapes the second operand of a product for it, but once where it does so for several: that is later
    than what is made but if another product came before, and what is later it takes first.
    """
    is_made = [value in makers for value in product.operands]
    if sorted(is_made) != [False, True]:
        return []
    first, second = product.operands
    made = _taken(graph, makers, makers[first if is_made[0] else second], last=SPREAD)
    if second in makers:
        return [first, *made]
    return [*made, second] if is_shaped else [second, *made]


def _but_views(graph: Graph, kernel: Kernel) -> list[Op]:
    """The operations of a kernel but for those at its end that only turn or reshape what it makes."""
    ops = [graph.ops[number] for number in kernel.ops]
    while len(ops) > 1 and ops[-1].kind in VIEWS:
        ops.pop()
    return ops


def _from_results(
    graph: Graph, kernel: Kernel, makers: Mapping[int, int], last: frozenset[str] = NOTHING_LAST
) -> list[int]:
    """What the results of a kernel are made of, those first that are made first."""
    found = list[int]()
    for root in sorted({makers[value] for value in kernel.writes if value in makers}):
        found += _taken(graph, makers, root, last)
    return found


def _taken(graph: Graph, makers: Mapping[int, int], root: int, last: frozenset[str]) -> list[int]:
    found = list(dict.fromkeys(graph.ops[root].operands))
    while inside := [(makers[value], value) for value in found if makers.get(value, root) < root]:
        number, value = max(inside, key=lambda pair: (graph.ops[pair[0]].kind not in last, pair))
        found.remove(value)
        found += [operand for operand in dict.fromkeys(graph.ops[number].operands) if operand not in found]
    return found
