"""Images of which devices hold features each, where they are put together or added up."""

from __future__ import annotations

from collections.abc import Iterator

from ...fusion.nature import SLICE
from ...graph import Graph, Value
from ...images import (
    CONVOLUTION,
    Image,
    batch_on_lanes,
    images,
    is_gradient_of_kernel,
    is_of_one_place,
    laid_elements,
)
from ...kinds import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from .tiles import LANES, aligned, round_up, tile_rows

NARROW_BITS, THIN_ROWS, SMALLEST_TURNED = 16, 4, 2


def turned_bytes(graph: Graph) -> dict[int, int]:
    """The bytes of images of which devices hold features each, where they are put together or added up into those.

    They lie as their pieces do: with the batch on the lanes, where that pads a piece less.
    """
    found: dict[int, int] = {}
    lie = images(graph)
    for piece, wholes in _pieces(graph) if lie else ():
        for whole in wholes:
            value, part, image = graph.values[whole], graph.values[piece], lie.get(graph.shape(whole))
            if image and part.shape[image.features] < value.shape[image.features] and _is_turned(part, image):
                found[whole] = aligned((laid_elements(value, image, turned=True) * value.bits + 7) // 8)
    return found


def _pieces(graph: Graph) -> Iterator[tuple[int, tuple[int, ...]]]:
    """What a device holds of something, and the values that are all of it: of a sum of which it keeps a part both what
    is added up and what comes out.
    """
    sums: dict[int, int] = {}
    for op in graph.ops:
        if op.kind == ALL_GATHER:
            yield op.operands[0], op.results[:1]
        elif op.kind == REDUCE_SCATTER:
            yield op.results[0], op.operands[:1]
        elif op.kind == ALL_REDUCE:
            sums.update(zip(op.results, op.operands, strict=True))
        elif op.kind == SLICE and "axes" in op.attributes and op.operands[0] in sums:
            yield op.results[0], (op.operands[0], sums[op.operands[0]])


def turned_for_gradients(graph: Graph) -> Iterator[tuple[int, Image]]:
    """The images that v2 and v3 gather by features for gradients of kernels, which sum the batch and have it on the
    lanes where that pads what a device holds no more, in bfloat16, whose tiles have four rows there at least.

    As compiled for v3 of two images of four features, and of eight of eight; of 16 of 16 not so for v5p.
    """
    lie = images(graph)
    summed = [op for op in graph.ops if op.kind == CONVOLUTION and is_gradient_of_kernel(graph, op)]
    read = {op.operands[0] for op in summed if not is_of_one_place(graph, op)}
    for op in graph.ops:
        image = lie.get(graph.shape(op.results[0])) if op.kind == ALL_GATHER and op.results[0] in read else None
        if image is not None:
            part, whole = graph.shape(op.operands[0]), graph.shape(op.results[0])
            features, batch = part[image.features], part[image.batch]
            is_part = features < whole[image.features] and batch >= SMALLEST_TURNED
            if is_part and _thin_tiles(batch, features) <= _thin_tiles(features, batch):
                yield op.results[0], image


def _thin_tiles(lanes: int, rows: int) -> int:
    """The numbers in tiles of bfloat16 that have four rows at least."""
    return round_up(lanes, LANES) * round_up(rows, max(THIN_ROWS, tile_rows(rows, 32 // NARROW_BITS)))


def _is_turned(value: Value, image: Image) -> bool:
    return batch_on_lanes(value.shape[image.features], value.shape[image.batch], value.bits)
