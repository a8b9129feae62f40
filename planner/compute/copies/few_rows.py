"""What a loop takes of stacks, and puts into them, that lie as they come: of weights and caches of whole heads.

Arguments whose last dim fills lanes and whose last but one fills rows lie as they come, and so do those of two or four
rows, in tiles of so many. No product cuts its own piece out of such a stack if what it sums lies outside of its tiles:
it reads what another kernel cut (seen on all chips, of features of a layer by heads by 128). Tiles of few rows are
moved one by one, however little is in them (``few_rows_cycles``): seen on v4, v5e, v5p, v6e and TPU7x; v3 has none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from ...fusion.nature import ALLOCATE, SLICE, UPDATE
from ...graph import Graph, Op, Value
from ...kernels import PRODUCTS, Kernel
from ...kinds import TURNED_COPY
from ..coefficients import Coefficients
from ..work import LANES, LOOP, SUBLANES, WORD_BYTES, Work, padded_bytes, spilled

FEW_ROWS = (2, 4)
TILED_DIMS = 2


def lying_whole(graph: Graph, given: Collection[int], of: Coefficients) -> frozenset[int]:
    """What lies so of a step's arguments, and of what its loops fill and leave."""
    filled = {value for op in graph.of_kind(ALLOCATE) for value in op.results}
    left = {value for op in graph.nesting for value in op.results}
    return frozenset(value for value in {*given, *filled, *left} if _lies_whole(graph.values[value], of))


def tile_by_tile(graph: Graph, kernel: Kernel, work: Work, whole: frozenset[int]) -> Work:
    """The work of a kernel that moves some or all of these, and does not multiply."""
    if whole.isdisjoint(kernel.reads) or work.kind != LOOP:
        return work
    tiles = sum(_few_row_tiles(graph.values[piece]) for _, piece in _moved(graph, kernel, whole))
    return replace(work, few_row_tiles=tiles) if tiles else work


def cut_for_products(graph: Graph, kernel: Kernel, whole: frozenset[int]) -> dict[int, Work]:
    """The stacks of which a kernel's product reads pieces, and what cutting these out is."""
    if whole.isdisjoint(kernel.reads):
        return {}
    products = [op for op in (graph.ops[number] for number in kernel.ops) if op.kind in PRODUCTS]
    moved = ((stack, graph.values[piece]) for stack, piece in _moved(graph, kernel, whole) if products)
    return {stack: _cutting(piece) for stack, piece in moved if any(_sums_outside(graph, op, piece) for op in products)}


def _cutting(piece: Value) -> Work:
    size, narrow = padded_bytes(piece), spilled([piece], piece.num_elements, products=False)
    return Work(
        kind=LOOP,
        reads=(size,),
        writes=(size,),
        spill_bytes=narrow,
        space_bytes=piece.num_elements * WORD_BYTES,
        few_row_tiles=_few_row_tiles(piece),
    )


def _sums_outside(graph: Graph, product: Op, piece: Value) -> bool:
    """Whether a product takes a layer's piece and sums only dims outside of its tiles."""
    for value, side in zip(product.operands, ("lhs", "rhs"), strict=False):
        shape, summed = graph.shape(value), product.attributes.get(f"{side}_contracting_dimensions", ())
        if shape == piece.shape[1:] and summed and max(summed) < len(shape) - TILED_DIMS:
            return True
    return False


def _moved(graph: Graph, kernel: Kernel, whole: frozenset[int]) -> Iterator[tuple[int, int]]:
    """Of each piece that a kernel moves what it is of, and the piece."""
    for op in (graph.ops[number] for number in kernel.ops):
        if op.kind in (SLICE, UPDATE, TURNED_COPY) and op.operands[0] in whole:
            yield op.operands[0], op.operands[1] if op.kind == UPDATE else op.results[0]


def _lies_whole(value: Value, of: Coefficients) -> bool:
    *outer, rows, lanes = (1, 1, *value.shape)
    fills_rows = rows % SUBLANES == 0 or (rows in FEW_ROWS and of.few_rows_cycles > 0)
    return len(outer) > TILED_DIMS and fills_rows and lanes % LANES == 0


def _few_row_tiles(value: Value) -> float:
    """How many tiles of few rows a value fills that lies so."""
    rows = value.shape[-2]
    return value.num_elements / (rows * LANES) if rows in FEW_ROWS else 0.0
