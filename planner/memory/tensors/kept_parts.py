"""Copies of few images that a step is given and rounds itself, for gradients of kernels of one place.

Such an image is laid out in parts as it is convolved first, and for the gradient once more, from what was rounded for
the first: that lies there from then on (seen on v5e, v5p and v6e, of four images a device). What nobody rounds is
copied for each by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ...cut_images import cut_convolutions, is_gradient_cut, parts_of
from ...graph import Graph, Op, Value
from ...image_sources import comes_back_whole, of_arguments
from ...images import CONVOLUTION, images_of, is_gradient_of_kernel, is_of_one_place
from ...kernels import Program
from .convolved import FEW_FEATURES
from .taken_in_pieces import NARROW, Beside


def kept_parts(program: Program, smallest: int, laid: Callable[[Value], int]) -> Iterator[Beside]:
    """Those of a step's convolutions; ``laid`` has the bytes of an image as it lies.

    Images of few features are copied anyway (``copied_images``). What comes back from an image with gaps has margins,
    and is put together for the gradient (v6e).
    """
    graph, begins = program.graph, dict[int, int]()
    convolutions = graph.of_kind(CONVOLUTION)
    cut = cut_convolutions(graph, smallest) if convolutions else {}
    parts, given = parts_of(graph, cut), of_arguments(graph) - {*graph.arguments} if cut else set[int]()
    widened = _widened(graph, convolutions)
    for point, kernel in enumerate(program.kernels) if cut else ():
        for op in [graph.ops[number] for number in kernel.ops if graph.ops[number].kind == CONVOLUTION]:
            value, back = op.operands[:2]
            begin = begins.setdefault(value, point)
            is_kept = value in given and begin < point and graph.shape(back) not in widened
            if not is_kept or not _takes_parts(graph, op):
                continue
            if is_gradient_cut(graph, op, parts) and not comes_back_whole(graph, op, cut):
                yield Beside(value, (begin, point), laid(replace(graph.values[value], dtype=NARROW)))


def _widened(graph: Graph, convolutions: Sequence[Op]) -> frozenset[tuple[int, ...]]:
    """The shapes of what convolutions make of images with gaps."""
    gaps = (op for op in convolutions if math.prod(op.attributes.get("lhs_dilation", ())) > 1)
    return frozenset(graph.shape(op.results[0]) for op in gaps)


def _takes_parts(graph: Graph, op: Op) -> bool:
    (value, image), *_ = images_of(graph, op)
    is_of_many = graph.shape(value)[image.features] >= FEW_FEATURES
    return is_of_many and is_of_one_place(graph, op) and is_gradient_of_kernel(graph, op)
