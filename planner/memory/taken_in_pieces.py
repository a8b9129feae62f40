"""Images of which a loop takes, or fills, two devices' features at a time, as their kernel goes round.

A loop of several turns cuts an image inside of its convolution, which so decides how all of it lies: where the features
of one device leave more lanes empty than the batch does, the batch is on the lanes, and few images are padded to whole
lanes of them. A gradient of a kernel, which sums the batch, has it there where both leave as many, and reads a copy. A
loop of one turn is none to the compiler: it cuts the image before, into all that any such loop will take of it, and
each part lies as the image does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import NamedTuple

from ..fusion.nature import SLICE, UPDATE
from ..graph import Graph, Op, Value
from ..images import (
    CONVOLUTION,
    Image,
    batch_on_lanes,
    images_of,
    is_gradient_of_kernel,
    is_of_one_place,
    laid_elements,
)
from ..kernels import Program
from .tiles import aligned, padding_growth

BOTH_WAYS = 2
"""Devices whose parts a product in a loop meets at once: parts go round both ways."""
NARROW, NARROW_BITS = "bf16", 16

CHOOSING = frozenset({"select", "convert"})

Shape = tuple[int, ...]


class Piece(NamedTuple):
    """The features of two devices that a convolution reads or makes of an image: both values, and the image's dims.

    ``is_read`` if it is cut out of the image, else it is written into it.
    """

    part: int
    whole: int
    image: Image
    is_read: bool
    is_of_gradient: bool


class Beside(NamedTuple):
    """What lies beside an image for a loop: the image, the first and the last point, and the bytes."""

    value: int
    span: tuple[int, int]
    num_bytes: int


def pieces_of(body: Graph) -> Iterator[Piece]:
    """What convolutions of a loop's body take of images, or put into them, by their features.

    Those whose windows are one place each are products of matrices, which take what they need in passing. A single
    image is left out: it has no batch for the lanes, and two programs of one (v5e, v6e) hold none of this.
    """
    cut = {op.results[0]: op.operands[0] for op in body.ops if op.kind == SLICE and "step" in op.attributes}
    put = {op.operands[1]: op.results[0] for op in body.ops if op.kind == UPDATE}
    for op in body.ops:
        if op.kind != CONVOLUTION or is_of_one_place(body, op):
            continue
        for part, image in images_of(body, op):
            whole = cut.get(part, put.get(part))
            several = body.shape(part)[image.batch] > 1
            if whole is not None and several and body.shape(part)[image.features] < body.shape(whole)[image.features]:
                yield Piece(part, whole, image, part in cut, is_gradient_of_kernel(body, op))


def turned_shapes(graph: Graph) -> frozenset[Shape]:
    """The shapes of the images that loops of several turns take in pieces which lie with the batch on the lanes."""
    found = set[Shape]()
    for _, loop, _ in graph.walk():
        for body in loop.bodies if loop.turns else ():
            for piece in pieces_of(body):
                if batch_on_lanes(*_features_and_batch(body, piece), NARROW_BITS):
                    found.add(body.shape(piece.whole))
    return frozenset(found)


def beside_loops(program: Program, *, early: bool = False) -> Iterator[Beside]:
    """What lies beside images for loops: parts that are cut out of them before, copies that lie otherwise, and what is
    put into them: what a convolution makes for two devices, which is taken apart before each part is put in.

    Copies are made just before their loop, or ``early``, as soon as they can be, beside what is sent.
    """
    graph, narrow = program.graph, rounded_fills(program.graph)
    turned, points = turned_shapes(graph), _points(program)
    first_cut, found = dict[int, int](), set[tuple[int, int]]()
    for point, loop in enumerate(graph.ops[kernel.ops[-1]] for kernel in program.kernels):
        for body in loop.bodies[:1] if loop.kind == "while" else ():
            given = dict(zip((*body.arguments, *body.results), (*loop.operands, *loop.results), strict=False))
            for piece in pieces_of(body):
                value, part = given.get(piece.whole), body.values[piece.part]
                if value is None or ((value, point) in found and loop.turns):
                    continue
                found.add((value, point))
                whole = graph.values[value]
                if piece.is_read and not loop.turns:
                    first = first_cut.setdefault(value, point)
                    yield Beside(value, (first, point), _part_bytes(whole, part, piece.image.features))
                    before = [each for each in points.get(value, ()) if each < point] if piece.is_of_gradient else []
                    yield Beside(value, (max(before, default=point), point), _both_bytes(part, piece.image))
                elif piece.is_read and whole.shape not in turned and _is_turned_for_gradient(body, piece):
                    before = [0, *(each for each in points.get(value, ()) if each < point)]
                    first = max(before) if early else point
                    copy = replace(whole, dtype=NARROW)
                    yield Beside(value, (first, point), _laid_bytes(copy, piece.image, turned=True))
                elif not piece.is_read and loop.turns:
                    shape = resized(part.shape, piece.image.features, part.shape[piece.image.features] // BOTH_WAYS)
                    made = Value(shape, NARROW if value in narrow else part.dtype)
                    for _ in ("made for both", "taken apart"):
                        yield Beside(value, (point, point), BOTH_WAYS * _laid_bytes(made, piece.image))


def rounded_fills(graph: Graph) -> frozenset[int]:
    """What loops fill with pieces that all readers only choose from and round: it lies in bfloat16 from the start."""
    readers: dict[int, list[Op]] = {}
    for op in graph.ops:
        for value in op.operands:
            readers.setdefault(value, []).append(op)
    found = set[int]()
    for loop in graph.ops:
        for body in loop.bodies[:1] if loop.turns else ():
            filled = {piece.whole for piece in pieces_of(body) if not piece.is_read}
            for result, first, inner in zip(loop.results, loop.operands, body.results, strict=False):
                reading = readers.get(result, ())
                chosen = all(op.kind in CHOOSING and graph.values[op.results[0]].dtype == NARROW for op in reading)
                if inner in filled and reading and chosen and result not in graph.results:
                    found |= {result, first}
    return frozenset(found)


def _points(program: Program) -> dict[int, list[int]]:
    """The points that make or read each value that a program makes."""
    made = {value for kernel in program.kernels for value in kernel.writes}
    found: dict[int, list[int]] = {}
    for point, kernel in enumerate(program.kernels):
        for value in made.intersection((*kernel.reads, *kernel.writes)):
            found.setdefault(value, []).append(point)
    return found


def _is_turned_for_gradient(body: Graph, piece: Piece) -> bool:
    """Whether a gradient of a kernel has a piece's batch on the lanes: it does where both ways pad alike."""
    features, batch = _features_and_batch(body, piece)
    return piece.is_of_gradient and not batch_on_lanes(batch, features, NARROW_BITS)


def _features_and_batch(body: Graph, piece: Piece) -> tuple[int, int]:
    """The features of one device in a piece, and its images."""
    shape = body.shape(piece.part)
    return shape[piece.image.features] // BOTH_WAYS, shape[piece.image.batch]


def _part_bytes(whole: Value, part: Value, features: int) -> int:
    """Bytes of two devices' features of an image in bfloat16, which lie beside each other as the whole does."""
    if not part.num_elements:
        return 0
    dims = resized(part.shape, features, part.shape[features] // BOTH_WAYS)
    usual = sorted(permutations(range(len(dims)), 2), reverse=True)  # the last dim on the lanes, that before on rows
    lies = min(usual, key=lambda pair: padding_growth(whole.shape, pair, 32 // max(whole.bits, 1)))
    growth = padding_growth(dims, lies, 32 // NARROW_BITS)
    return aligned(round(math.prod(dims) * growth) * BOTH_WAYS * NARROW_BITS // 8)


def _both_bytes(part: Value, image: Image) -> int:
    """Bytes of two devices' features as a convolution reads them, in bfloat16: a copy of what was cut out."""
    shape = resized(part.shape, image.features, part.shape[image.features] // BOTH_WAYS)
    return BOTH_WAYS * _laid_bytes(Value(shape, NARROW), image)


def _laid_bytes(value: Value, image: Image, *, turned: bool = False) -> int:
    return aligned(laid_elements(value, image, turned=turned) * value.bits // 8)


def resized(shape: Shape, dim: int, size: int) -> Shape:
    """The shape with another size along one dim."""
    return (*shape[:dim], size, *shape[dim + 1 :])
