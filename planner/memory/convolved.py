"""What the tensors around convolutions take in memory."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..graph import Graph, Value
from ..kernels import Program
from .tiles import LANES, ROWS, aligned, padded_bytes, round_up, tile_rows

SMALLEST_BATCH = 4
CUT_COPIES = 2
FEW_FEATURES = ROWS


def convolved_bytes(program: Program) -> Callable[[Value], int]:
    """The bytes of a program's temporaries: those of ``padded_bytes``, but for what convolutions read and make.

    A convolution wants its features on the lanes and its batch on the rows (a batch of whole lanes there), and all
    tensors of that shape are laid out alike. A batch of fewer than four is made larger by cutting the image into parts
    (XLA's space-to-batch): no row is padded then, but the parts lie there twice more in bfloat16, one with the margins
    that the next convolution reads and one for the gradient of its filter.
    """
    wanted = _wanted(program.graph)

    def num_bytes(value: Value) -> int:
        dims = wanted.get(value.shape)
        return padded_bytes(value) if dims is None else _bytes_beside(value, *dims)

    return num_bytes


def _wanted(graph: Graph) -> dict[tuple[int, ...], tuple[int, int, bool]]:
    """The feature and the batch dim of each shape that a convolution reads or makes, as the forward pass has them.

    And whether it may be cut: what a loop convolves piece by piece is not.
    """
    wanted: dict[tuple[int, ...], tuple[int, int, bool]] = {}
    for inner, op, _ in graph.walk():
        if op.kind == "convolution":
            for side, value in (("input", op.operands[0]), ("output", op.results[0])):
                features, batch = (op.attributes.get(f"{side}_{role}_dimension") for role in ("feature", "batch"))
                if isinstance(features, int) and isinstance(batch, int):
                    wanted.setdefault(inner.shape(value), (features, batch, inner is graph))
    return wanted


def _bytes_beside(value: Value, features: int, batch: int, may_cut: bool) -> int:
    dims = value.shape
    elements = math.prod(dims)
    if not elements or dims[batch] % LANES == 0:
        return padded_bytes(value)
    cut = may_cut and dims[batch] < SMALLEST_BATCH
    rows = dims[batch] if dims[batch] < SMALLEST_BATCH else round_up(dims[batch], tile_rows(dims[batch], 1))
    padded = elements // (dims[features] * dims[batch]) * round_up(dims[features], LANES) * rows
    return aligned((padded * value.bits + 7) // 8) * (CUT_COPIES if cut else 1)


def copied_images(program: Program, touches: dict[int, tuple[int, ...]]) -> dict[int, tuple[tuple[int, int], int]]:
    """The arguments that are copied for convolutions, with the first and the last point and the bytes of the copy.

    An image of a few colours fills no lanes with them: its copy, in bfloat16, has the batch on the lanes and the
    colours on the rows, however few there are of either. It is made at the start, and kept for the filter's gradient.
    """
    graph, found = program.graph, dict[int, tuple[tuple[int, int], int]]()
    wanted, loaded = _wanted(graph), set(graph.arguments)
    for kernel in program.kernels:
        if any(graph.ops[op].kind == "convolution" for op in kernel.ops):
            for value in loaded.intersection(kernel.reads):
                dims = wanted.get(graph.shape(value))
                if dims and graph.shape(value)[dims[0]] < FEW_FEATURES:
                    found[value] = ((0, touches[value][-1]), _image_bytes(graph.values[value], *dims[:2]))
    return found


def _image_bytes(image: Value, features: int, batch: int) -> int:
    dims = image.shape
    rest = image.num_elements // max(1, dims[features] * dims[batch])
    return aligned(2 * rest * tile_rows(dims[features], 2) * round_up(dims[batch], LANES))
