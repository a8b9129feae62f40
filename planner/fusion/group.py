"""Groups of operations that become kernels."""

from __future__ import annotations

from dataclasses import dataclass

from ..graph import Graph
from .nature import BROADCAST, PRODUCTS, REDUCE, UPDATE, VIEWS, is_constant, stands_alone
from .uses import Uses


@dataclass(slots=True)
class Group:
    """A kernel in the making. ``roots`` are the operations whose results may be written, ``space`` the elements that it
    goes through, ``open`` whether others of the same space may join it.
    """

    ops: set[int]
    roots: set[int]
    reads: set[int]
    space: int
    open: bool
    products: int
    reduces: bool


def groups(graph: Graph, uses: Uses, written: set[int], masks: frozenset[int]) -> list[Group]:
    """One group a written operation, each with all that is computed in passing for it; none joins ``masks``."""
    return [_group(graph, uses, written, number, number in masks) for number in sorted(written)]


def _group(graph: Graph, uses: Uses, written: set[int], root: int, is_mask: bool) -> Group:
    ops, reads, waiting = {root}, set[int](), [root]
    while waiting:
        for value in graph.ops[waiting.pop()].operands:
            maker = uses.makers.get(value)
            if maker is None or maker in written or is_constant(graph.ops[maker]):
                reads.add(value)
            elif maker not in ops:
                ops.add(maker)
                waiting.append(maker)
    products = sum(graph.ops[number].kind in PRODUCTS for number in ops)
    return Group(
        ops=ops,
        roots={root},
        reads=reads,
        space=_space(graph, root),
        open=products > 0 or (not is_mask and _is_open(graph, root)),
        products=products,
        reduces=graph.ops[root].kind == REDUCE,
    )


def _space(graph: Graph, root: int) -> int:
    op = graph.ops[root]
    if op.kind in (REDUCE, UPDATE):
        return graph.values[op.operands[op.kind == UPDATE]].num_elements
    return max((graph.values[value].num_elements for value in op.results), default=0)


def _is_open(graph: Graph, root: int) -> bool:
    op = graph.ops[root]
    fixed = VIEWS | {BROADCAST, "concatenate", "pad", "slice", "iota"}
    return op.kind not in fixed and not stands_alone(op)
