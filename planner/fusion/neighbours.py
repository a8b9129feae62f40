"""What products and convolutions read of several arrays, as rows of a device's own beside its neighbours'."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..graph import Graph, Op
from ..images import CONVOLUTION, images_of
from .nature import JOIN, LANES, PRODUCTS, is_constant, joins_windows
from .uses import Uses


def put_together(graph: Graph, uses: Uses, written: Collection[int]) -> Iterator[int]:
    """The parts of what products put together as they read it: these lie in memory, but for neighbours' rows.

    And what convolutions do not put together themselves.
    """
    for number, op in enumerate(graph.ops):
        if op.kind == JOIN and number not in written:
            readers = uses.readers[op.results[0]]
            if not any(graph.ops[reader].kind in PRODUCTS for reader, _ in readers):
                continue
            if any(_is_turned(graph, graph.ops[reader], op) for reader, _ in readers):
                yield number
            elif not all(joins_windows(graph.ops[reader], position, op) for reader, position in readers):
                parts = (uses.makers[value] for value in op.operands if value in uses.makers)
                yield from (part for part in parts if not is_constant(graph.ops[part]))


def _is_turned(graph: Graph, convolution: Op, joined: Op) -> bool:
    """Whether images are put together for a convolution along the last dim of its window, and copied for it then.

    What is computed number by number lies with that dim on the lanes where features pad more: two images of 64 columns
    and 32 features are copied, eight too, those of 32 columns or 64 features are put together as they are read (v3).
    """
    for value, image in images_of(graph, convolution) if convolution.kind == CONVOLUTION else ():
        if value == joined.results[0]:
            inner = max(dim for dim in range(len(graph.shape(value))) if dim not in image)
            columns = max(graph.shape(part)[inner] for part in joined.operands)
            features = graph.shape(value)[image.features]
            return joined.attributes["dimension"] == inner and _filled(features) < _filled(columns)
    return False


def _filled(size: int) -> float:
    """The share of the lanes that a dim fills."""
    return size / (-(-size // LANES) * LANES)
