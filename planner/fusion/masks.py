"""Comparisons of products' results that the compiler keeps as bits for the gradient: its pass ``pred_packing``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from ..graph import Graph, Op
from ..images import CONVOLUTION
from ..kinds import ALL_GATHER, ALL_TO_ALL, COLLECTIVE_PERMUTE, KINDS, TURNED_COPY
from .nature import CONVERT, PRODUCTS, VIEWS
from .operands import beyond_views
from .uses import Uses, read_uses

SELECT = "select"
_MOVED = VIEWS | {TURNED_COPY}
_SENT = frozenset({TURNED_COPY, ALL_TO_ALL, COLLECTIVE_PERMUTE, ALL_GATHER, CONVERT})
PACKED_RANK = 3
PACKED_BITS = 32
PACKED_BATCH = 2
PACKED_DIM = range(2, PACKED_BITS + 1)
PACKED_ELEMENTS = 2**20
IsMask = Callable[[Graph, Uses, Op], bool]


def is_packed_mask(graph: Graph, uses: Uses, op: Op) -> bool:
    """Whether it is a large comparison of a product's result, which the compiler keeps as bits for the gradient."""
    if op.kind != "compare" or not is_mask_of_product(graph, uses, op):
        return False
    shape = graph.shape(op.results[0])
    return is_packed(shape, image_dims(graph, uses, op))


def image_dims(graph: Graph, uses: Uses, op: Op) -> tuple[int, ...]:
    """The dims along which a convolution's window goes in its result, where this is a comparison of that."""
    makers = (graph.ops[uses.makers[value]] for value in op.operands if value in uses.makers)
    said = next((each.attributes for each in makers if each.kind == CONVOLUTION), {})
    return tuple(said.get("output_spatial_dimensions", ()))


def is_packed(shape: Sequence[int], along: Sequence[int] = ()) -> bool:
    """Whether the compiler keeps a comparison of this shape as bits: 32 a word along the third dim from the end.

    Of batches of matrices it does so where there are one or two, in all programs seen, of more only in some; of images,
    whose rows and columns go ``along`` these dims, where there are 32 of either.
    """
    if PACKED_BITS in [shape[dim] for dim in along] and math.prod(shape) >= PACKED_ELEMENTS:
        return True
    *more, packed, _, _ = [1] * PACKED_RANK + [size for size in shape if size > 1]
    batch = math.prod(more)
    fits = packed in PACKED_DIM and (batch == 1 or (packed == PACKED_BITS and batch <= PACKED_BATCH))
    return fits and math.prod(shape) >= PACKED_ELEMENTS


def is_mask_of_product(graph: Graph, uses: Uses, op: Op) -> bool:
    """Whether it compares a product's result that is read besides, and masks what products make for others to read."""
    if op.kind != "compare":
        return False
    made_by = (uses.makers.get(value) for value in op.operands)
    compared = [graph.ops[number] for number in made_by if number is not None]
    if not any(each.kind in PRODUCTS and len(uses.next_ops(each.results[0])) > 1 for each in compared):
        return False
    return all(_masks_product(graph, uses, graph.ops[reader]) for reader in uses.next_ops(op.results[0]))


def fleeting_masks(graph: Graph) -> frozenset[int]:
    """The comparisons of a step that no device keeps as bits, however the step is split: of what they mask one product
    alone reads each (``is_mask_of_product``).
    """
    uses = read_uses(graph)
    compared = (op.results[0] for op in graph.ops if op.kind == "compare")
    return frozenset(mask for mask in compared if _is_fleeting(graph, uses, mask))


def _is_fleeting(graph: Graph, uses: Uses, mask: int) -> bool:
    selections = uses.next_ops(mask)
    masked = [graph.ops[number] for number in selections]
    left = {mask, *(op.results[0] for op in masked)}
    if not masked or any(op.kind != SELECT for op in masked) or not left.isdisjoint(graph.results):
        return False
    read = [[op.kind for op in _beyond_moves(graph, uses, op.results[0])] for op in masked]
    return all(len(kinds) == 1 and kinds[0] in PRODUCTS for kinds in read)


def _masks_product(graph: Graph, uses: Uses, reader: Op) -> bool:
    """Whether a mask's reader is no selection, or one of what is made here, for more than another product alone: of
    what comes from other devices, is sent to others, or ends at the barrier before that one, the compiler compares
    again (seen on v3, v4, v5p and v6e; sent before the product: v3).
    """
    if reader.kind != SELECT:
        return True
    after = [op.kind for op in _beyond_moves(graph, uses, reader.results[0])]
    is_sent = any(_is_sent_here(graph, uses, value) for value in reader.operands[1:])
    return not is_sent and not (len(after) == 1 and after[0] in PRODUCTS)


def _beyond_moves(graph: Graph, uses: Uses, value: int) -> Iterator[Op]:
    """What reads a value, under whatever shape and on whatever device."""
    for op, _ in beyond_views(graph, uses, value):
        if op.kind in _SENT:
            yield from _beyond_moves(graph, uses, op.results[0])
        else:
            yield op


def _is_sent_here(graph: Graph, uses: Uses, value: int) -> bool:
    """Whether a value comes from other devices, under whatever shape."""
    while value in uses.makers and graph.ops[uses.makers[value]].kind in _MOVED:
        (value,) = graph.ops[uses.makers[value]].operands
    return value in uses.makers and graph.ops[uses.makers[value]].kind in KINDS
