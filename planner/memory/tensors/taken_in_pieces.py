"""Images of which a loop takes, or fills, two devices' features at a time, as their kernel goes round.

A loop of several turns cuts an image inside of its convolution, which so decides how all of it lies: where the features
of one device leave more lanes empty than the batch does, the batch is on the lanes, and few images are padded to whole
lanes of them. A gradient of a kernel, which sums the batch, has it there where both leave as many, and reads a copy. A
loop of one turn is none to the compiler: it cuts the image before, into all that any such loop will take of it, and
each part lies as the image does.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from dataclasses import replace
from itertools import permutations
from typing import NamedTuple

from ...fusion.nature import UPDATE
from ...graph import Graph, Op, Value
from ...image_pieces import (
    BOTH_WAYS,
    NARROW_BITS,
    Piece,
    Shape,
    is_turned_for_gradient,
    lies_turned,
    pieces_of,
    turned_shapes,
    with_lanes,
)
from ...images import (
    CONVOLUTION,
    Image,
    batch_on_lanes,
    images_of,
    is_gradient_of_kernel,
    laid_elements,
    longest_window,
)
from ...kernels import Program
from .tiles import aligned, padded_bytes, padding_growth

NARROW = "bf16"
MOVED = 5
"""How often what is made for two devices is moved: written, read and written apart, read and written into the image."""

FEW_ROWS = 2
"""The rows of a tile of bfloat16, which few features fill."""

CHOOSING = frozenset({"select", "convert"})


class Beside(NamedTuple):
    """What lies beside an image for a loop: the image, the first and the last point, and the bytes."""

    value: int
    span: tuple[int, int]
    num_bytes: int


class Alone(Beside):
    """What a convolution makes of its own, or a copy, which no other kernel computes (``Chip.products_into_vmem``)."""


def beside_loops(program: Program, *, early: bool = False, in_turn: int = 0) -> Iterator[Beside]:
    """What lies beside images for loops: parts that are cut out of them before, copies that lie otherwise, and what is
    put into them: what a convolution makes for two devices, beside what it and those before it made, taken apart.

    Copies are made just before their loop, or ``early``, as soon as they can be, beside what is sent, but of what comes
    back; none of parts of arguments that have their features on the lanes already. Where windows have at most
    ``in_turn`` places a dim, a product is put in before the next is made (``Chip.put_in_turn_window``).
    """
    graph, narrow = program.graph, rounded_fills(program.graph)
    if not graph.nesting:
        return
    turned, points = turned_shapes(graph), _points(program)
    first_cut, found = dict[int, int](), set[tuple[int, int]]()
    for point, loop in enumerate(graph.ops[kernel.ops[-1]] for kernel in program.kernels):
        for body in loop.bodies[:1] if loop.kind == "while" else ():
            given = dict(zip((*body.arguments, *body.results), (*loop.operands, *loop.results), strict=False))
            for single, image in _singles_read(body).items() if loop.turns else ():
                copy = replace(body.values[single], dtype=NARROW)
                yield Alone(given[single], (point, point), _laid_bytes(copy, image))
            for piece in pieces_of(body, fewest=1):
                value, part = given.get(piece.whole), body.values[piece.part]
                is_single = part.shape[piece.image.batch] == 1 and (piece.is_read or not loop.turns)
                if value is None or ((value, point) in found and loop.turns):
                    continue
                found.add((value, point))
                if is_single:
                    yield from _beside_single(body, piece, value, point) if loop.turns else ()
                    continue
                whole = graph.values[value]
                if piece.is_read and not loop.turns:
                    first = first_cut.setdefault(value, point)
                    lying, wanted = _part_bytes(whole, part, piece.image.features), _both_bytes(part, piece.image)
                    yield Beside(value, (first, point), lying)
                    waits = early and piece.is_of_gradient
                    before = [each for each in points.get(value, ()) if each < point] if waits else []
                    if wanted > lying or value not in graph.arguments:
                        yield Beside(value, (max(before, default=point), point), wanted)
                elif piece.is_read and whole.shape not in turned and is_turned_for_gradient(body, piece):
                    before = [0, *(each for each in points.get(value, ()) if each < point)]
                    first = max(before) if early and not piece.comes_back else point
                    copy = replace(whole, dtype=NARROW)
                    yield Beside(value, (first, point), _laid_bytes(copy, piece.image, turned=True))
                elif not piece.is_read and loop.turns:
                    shape = resized(part.shape, piece.image.features, part.shape[piece.image.features] // BOTH_WAYS)
                    num_bytes = _laid_bytes(Value(shape, NARROW if value in narrow else part.dtype), piece.image)
                    taken_apart = whole.shape not in turned
                    if with_lanes(whole.shape, piece.image, piece.bits) != piece.image and lies_turned(body, piece):
                        yield Alone(value, (point, point), BOTH_WAYS * num_bytes)
                        sizes = [BOTH_WAYS * num_bytes]
                    elif not 0 < _longest_window(body) <= in_turn:
                        sizes = [BOTH_WAYS * num_bytes] * (_num_made(body) + taken_apart)
                    else:
                        sizes = [BOTH_WAYS * num_bytes] + [num_bytes] * BOTH_WAYS * taken_apart
                    for size in sizes:
                        yield Beside(value, (point, point), size)


def _beside_single(body: Graph, piece: Piece, value: int, point: int) -> Iterator[Beside]:
    """What lies beside a single image that a loop takes in pieces: the pieces of two devices, and the product.

    For the gradient of a kernel the pieces are copied, two rows for each place (v5p); so are those of ``FEW_ROWS``
    features at most that are convolved. Of more the features are on the lanes. What is made of these in bfloat16 has
    two rows for each place too; that of the turn before waits for it where it is added up so.
    """
    part, image = body.values[piece.part], piece.image
    features = part.shape[image.features] // BOTH_WAYS
    one = Value(resized(part.shape, image.features, features), NARROW)
    if features < FEW_ROWS or (features == FEW_ROWS and not piece.is_of_gradient):
        yield Alone(value, (point, point), BOTH_WAYS * _laid_bytes(one, image))
    else:
        for _ in range(BOTH_WAYS):
            yield Beside(value, (point, point), BOTH_WAYS * _laid_bytes(one, image) // FEW_ROWS)
    for op in body.ops if not piece.is_of_gradient else ():
        if op.kind == CONVOLUTION and op.operands[0] == piece.part:
            _, (made, of) = images_of(body, op)
            shape, lying = body.shape(made), with_lanes(body.shape(made), of, piece.bits)
            waits = lying == of or not batch_on_lanes(shape[lying.features], shape[lying.batch], NARROW_BITS)
            for _ in range(1 + waits):
                yield Alone(value, (point, point), _laid_bytes(Value(shape, NARROW), of))
            return


def _singles_read(body: Graph) -> dict[int, Image]:
    """The single images that a loop's turns convolve whole, and copy for it: those that have their places on lanes."""
    found = dict[int, Image]()
    for op in body.ops:
        for value, image in images_of(body, op) if op.kind == CONVOLUTION else ():
            lying = with_lanes(body.shape(value), image, body.values[op.results[0]].bits)
            is_read = lying != image and value in body.arguments and not is_gradient_of_kernel(body, op)
            shape = body.shape(value)
            if is_read and batch_on_lanes(shape[lying.features], shape[lying.batch], NARROW_BITS):
                found[value] = image
    return found


def more_bytes(loop: Op, narrow: Container[int]) -> Iterator[int]:
    """How much more a turn goes through of images than what reads and writes all of them: what is made for two devices
    is written, taken apart and put in, the rest of the image being left alone; what pieces are cut out of is read
    whole, with the batch on the lanes where it lies so. ``narrow`` are the ``rounded_fills`` around it.
    """
    (body,) = loop.bodies[:1]
    outside = dict(zip(body.results, loop.results, strict=False))
    for op in reversed(body.ops):  # of several pieces that a turn puts in the first is filled further
        if op.kind == UPDATE and op.results[0] in outside:
            outside.setdefault(op.operands[0], outside[op.results[0]])
    for piece in pieces_of(body, fewest=1):
        whole, part = body.values[piece.whole], body.values[piece.part]
        if not piece.is_read:
            shape = resized(part.shape, piece.image.features, part.shape[piece.image.features] // BOTH_WAYS)
            filled = replace(whole, dtype=NARROW) if outside.get(piece.whole) in narrow else whole
            made = BOTH_WAYS * _laid_bytes(Value(shape, filled.dtype), piece.image)
            yield MOVED * made - 2 * padded_bytes(whole)
        else:
            turned = is_turned_for_gradient(body, piece)
            lying = (
                _laid_bytes(replace(whole, dtype=NARROW), piece.image, turned=True) if turned else padded_bytes(whole)
            )
            yield lying - padded_bytes(part)


def _longest_window(body: Graph) -> int:
    return max(longest_window(body, op) for op in body.ops if op.kind == CONVOLUTION)


def _num_made(body: Graph) -> int:
    """How many products of a turn are put into an image: all are made, and taken apart, before the first is put in.
    One that has the batch on the lanes is taken apart as it is put in.
    """
    return sum(not piece.is_read for piece in pieces_of(body, fewest=1))


def rounded_fills(graph: Graph) -> frozenset[int]:
    """What loops fill with pieces that all readers only choose from and round: it lies in bfloat16 from the start."""
    readers: dict[int, list[Op]] = {}
    for op in graph.ops if graph.nesting else ():
        for value in op.operands:
            readers.setdefault(value, []).append(op)
    found = set[int]()
    for loop in graph.nesting:
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
