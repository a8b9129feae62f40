"""What repeats numbers between others, and what adds up such repetitions: they stand as kernels of their own.

Heads that share their keys and values, pixels that are made more: an array is spread along a new dim, which a reshape
then joins with the one before or behind it; its gradient is taken apart and added up along that. XLA fuses nothing
across such a reshape, on any TPU (seen on v3, v4, v5e, v5p and v6e): neither what made the array nor what reads it, be
it a product or number by number.
"""

from __future__ import annotations

from ..graph import Graph, Op
from .group import Group
from .nature import BROADCAST, PRODUCTS, REDUCE, VIEWS, batch_dims
from .uses import Uses

RESHAPE = "reshape"
BATCHES = 2
"""The dims of a batch of products of which sums of parts stand alone: matrices of one batch add them up themselves."""


def is_interleaved(graph: Graph, uses: Uses, op: Op) -> bool:
    """Whether an operation repeats numbers between others, or takes apart what is added up so."""
    if op.kind == BROADCAST:
        return _repeats(graph, uses, op)
    if op.kind != RESHAPE:
        return False
    readers = (graph.ops[number] for number in uses.after[op.results[0]])
    return any(_sums_parts(graph, uses, reader) for reader in readers)


def _repeats(graph: Graph, uses: Uses, spread: Op) -> bool:
    """Whether a reshape joins a dim along which this operation spreads an array with one that the array has."""
    kept = {*spread.attributes.get("broadcast_dimensions", ())}
    shape = graph.shape(spread.results[0])
    if not kept or all(size == 1 or dim in kept for dim, size in enumerate(shape)):
        return False
    return any(
        graph.ops[number].kind == RESHAPE and _joins(shape, graph.shape(graph.ops[number].results[0]), kept)
        for number in uses.next_ops(spread.results[0])
    )


def with_sums_apart(graph: Graph, uses: Uses, found: list[Group]) -> list[Group]:
    """The groups, of which no other joins those that add up what lies between others."""
    for group in found:
        group.open &= not (group.reduces and any(_sums_parts(graph, uses, graph.ops[root]) for root in group.roots))
    return found


def _sums_parts(graph: Graph, uses: Uses, reduction: Op) -> bool:
    """Whether it is a reduction along parts of dims that a reshape took apart, and along no others."""
    maker = uses.makers.get(reduction.operands[0]) if reduction.kind == REDUCE else None
    if maker is None or graph.ops[maker].kind != RESHAPE:
        return False
    reshape = graph.ops[maker]
    before, after = (graph.shape(value) for value in (reshape.operands[0], reduction.operands[0]))
    summed = {dim for dim in reduction.attributes.get("dimensions", ()) if after[dim] > 1}
    parts = [dims for dims in _joined(after, before) if not summed.isdisjoint(dims)]
    if not parts or not summed <= set().union(*parts) or any(map(summed.issuperset, parts)):
        return False
    return not _is_of_one_batch(graph, uses, reshape)


def _is_of_one_batch(graph: Graph, uses: Uses, view: Op) -> bool:
    """Whether what a view shows is made by a product that is no batch, or one over a single dim."""
    maker = uses.makers.get(view.operands[0])
    if maker is None:
        return False
    op = graph.ops[maker]
    if op.kind in VIEWS:
        return _is_of_one_batch(graph, uses, op)
    return op.kind in PRODUCTS and batch_dims(graph, op) < BATCHES


def _joins(before: tuple[int, ...], after: tuple[int, ...], kept: set[int]) -> bool:
    """Whether a reshape makes one of a dim that is ``kept`` and one that is not, both larger than one."""
    return any({dim in kept for dim in dims} == {True, False} for dims in _joined(before, after))


def _joined(before: tuple[int, ...], after: tuple[int, ...]) -> list[list[int]]:
    """The dims larger than one that become dims together, by groups of as many numbers."""
    found, at = list[list[int]](), 0
    for size in after:
        dims, had = list[int](), 1
        while had < size and at < len(before):
            had *= before[at]
            dims += [at] if before[at] > 1 else []
            at += 1
        while at < len(before) and before[at] == 1:
            at += 1
        if had != size:
            return []
        found.append(dims)
    return found
