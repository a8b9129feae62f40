"""What the tensors around convolutions take in memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from ..chip import Chip
from ..graph import Graph, Value
from ..kernels import Program
from .tiles import LANES, ROWS, aligned, padded_bytes, round_up, tile_rows

SMALLEST_BATCH, SMALLEST_WITHOUT_VMEM = 4, 2
CUT_COPIES = 2
FEW_FEATURES = ROWS


def smallest_batch(chip: Chip | None) -> int:
    """The smallest batch whose images a chip leaves whole: v2 and v3, which keep no buffers near, cut single ones."""
    return SMALLEST_WITHOUT_VMEM if chip is not None and not chip.buffer_vmem_bytes else SMALLEST_BATCH


def convolved_bytes(program: Program, smallest: int) -> Callable[[Value], int]:
    """The bytes of a program's temporaries: those of ``padded_bytes``, but for what convolutions read and make.

    A convolution wants its features on the lanes and its batch on the rows, or the other way round if that pads less (a
    batch of whole lanes does), and all tensors of that shape are laid out alike. A batch below ``smallest`` is made
    larger by cutting the image into parts (XLA's space-to-batch): no row is padded then, but the parts lie there twice
    more in bfloat16, one with the margins that the next convolution reads and one for the gradient of its filter.
    """
    wanted = _wanted(program.graph)

    def num_bytes(value: Value) -> int:
        dims = wanted.get(value.shape)
        return padded_bytes(value) if dims is None else _bytes_beside(value, *dims, smallest)

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


def _bytes_beside(value: Value, features: int, batch: int, may_cut: bool, smallest: int) -> int:
    if not math.prod(value.shape) or value.shape[batch] % LANES == 0:
        return padded_bytes(value)
    cut = may_cut and value.shape[batch] < smallest
    return _laid_bytes(value, features, batch, smallest) * (CUT_COPIES if cut else 1)


def _laid_bytes(value: Value, features: int, batch: int, smallest: int) -> int:
    """Bytes with the features on the lanes and the batch on the rows, or the other way round, as it pads less."""
    many, images = value.shape[features], value.shape[batch]
    packed = 32 // max(value.bits, 1)
    rows = images if images < smallest else round_up(images, max(tile_rows(images, 1), 2 * packed if packed > 1 else 1))
    turned = round_up(many, tile_rows(many, packed)) * round_up(images, LANES)
    padded = value.num_elements // (many * images) * min(round_up(many, LANES) * rows, turned)
    return aligned((padded * value.bits + 7) // 8)


def copied_images(
    program: Program, touches: dict[int, tuple[int, ...]], smallest: int
) -> dict[int, tuple[tuple[int, int], int]]:
    """The arguments that are copied for convolutions, with the first and the last point and the bytes of the copy.

    An argument lies as it pads least, which a convolution does not want where neither its features nor its batch fill
    the lanes. The copy, in bfloat16, is made at the start, and kept for the filter's gradient.
    """
    graph, found = program.graph, dict[int, tuple[tuple[int, int], int]]()
    wanted, loaded = _wanted(graph), set(graph.arguments)
    for kernel in program.kernels:
        if any(graph.ops[op].kind == "convolution" for op in kernel.ops):
            for value in loaded.intersection(kernel.reads):
                image, dims = graph.values[value], wanted.get(graph.shape(value))
                if dims and image.num_elements and _is_relaid(image, *dims, smallest):
                    narrow = replace(image, dtype="bf16")
                    found[value] = ((0, touches[value][-1]), _laid_bytes(narrow, *dims[:2], smallest))
    return found


def _is_relaid(image: Value, features: int, batch: int, may_cut: bool, smallest: int) -> bool:
    """Whether a convolution reads a copy of an argument: not of what it cuts, which it takes as it comes."""
    if may_cut and image.shape[batch] < smallest and image.shape[features] >= FEW_FEATURES:
        return False
    return image.shape[batch] % LANES != 0 and padded_bytes(image) < _laid_bytes(image, features, batch, smallest)
