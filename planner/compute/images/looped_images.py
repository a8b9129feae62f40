"""What images take in time of which loops take or make two devices' features at a time, as their kernel goes round."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ...fusion.nature import SLICE, UPDATE
from ...graph import Graph, Value
from ...image_pieces import NARROW_BITS
from ...images import Image, batch_on_lanes, laid_elements, moves_on, tile_rows
from ...kernels import Kernel
from ...whole_images import added_whole, taken_whole
from ..coefficients import Coefficients
from ..manner import manner_of
from ..work import REGISTER_ELEMENTS

Shape = tuple[int, ...]

FEW, PAIR = 8, 2
"""Fewer images than so many are few; and so many are half as wide as those that fill half of a register."""

HALVES = 2
"""The parts of an image's features that each turn of a loop has: they are brought to the squares one after the other
for the gradient of a kernel.
"""

PLACE_OPERATIONS, WIDE_OPERATIONS, UNTURNED_OPERATIONS = 30, 37, 17
"""The vector operations that taking apart what a turn has made takes for each place of few images and each of two
devices' features, seen on v4 and v6e; of several images in 32 bits, or with the batch on the lanes, on v5e and v6e; and
in 32 bits on v4, where others are laid out anew as well.
"""

TURNING_CYCLES = 10.0
"""What bringing 1024 numbers into another layout takes besides their bytes, seen on v3 and v5e."""

WHOLE_CYCLES = 11.5
"""The same where either side is moved meanwhile, of an image that a loop takes or makes whole, seen on v5e."""


class LoopedImages:
    """The images of a program that loops take or make whole or in pieces, as its kernels are gone through.

    ``images`` are its images by their shape, ``turned`` the shapes of which loops have the batch on the lanes.
    """

    def __init__(
        self, graph: Graph, of: Coefficients, images: Mapping[Shape, Image], turned: Collection[Shape], *, in_loop: bool
    ) -> None:
        self._graph, self._of, self._images, self._turned_shapes, self._in_loop = graph, of, images, turned, in_loop
        self._taken = taken_whole(graph) if turned else dict[int, Image]()
        self._added = added_whole(graph) if turned else dict[int, Image]()
        self._begun = self._added.keys() - {result for loop in graph.nesting for result in loop.results}
        self._copied = set[int]()

    def lies_turned(self, value: int) -> bool:
        """Whether an image has its batch on the lanes since loops take or make others of its shape in pieces; what they
        begin to add up with has not, what they added up is copied so.
        """
        return self._graph.shape(value) in self._turned_shapes and value not in self._begun

    def whole_cycles(self, kernel: Kernel) -> float:
        """What copies take of images that loops take whole, where they are computed, and of those that loops make
        whole, where they are first read.
        """
        made = self._taken.keys() & {*kernel.writes} if not kernel.bodies else set[int]()
        read = self._added.keys() & {*kernel.reads} - self._copied if not kernel.bodies else set[int]()
        self._copied |= read
        took = 0.0
        for value in (*made, *read):
            held, image = self._graph.values[value], self._taken[value] if value in made else self._added[value]
            laid = laid_elements(held, image, turned=True)
            took += max(WHOLE_CYCLES * laid / REGISTER_ELEMENTS, laid * held.bits / 8 * self._of.byte_cycles)
        return took

    def slices_cycles(self, kernel: Kernel) -> float:
        """What taking some features of images takes for a loop's turns: two parts, written on lanes of their own.

        Compilers that keep values near take those of few images in passing, but of a single one where windows move on
        by several, and then put apart what a turn makes of some features; all do what has the batch on the lanes.
        """
        ops, took = [self._graph.ops[number] for number in kernel.ops] if self._images else [], 0.0
        packs, steps = manner_of(self._of).packs_all, any(map(moves_on, ops))
        for op in ops:
            if op.kind == SLICE and "step" in op.attributes:
                passes = packs and not (steps and self._batch(op.results[0]) == 1)
                if not (self._is_few(op.results[0]) and (passes or self._is_turned_piece(op.results[0]))):
                    took += self._parts_cycles(whole=op.operands[0], piece=op.results[0])
            elif op.kind == UPDATE and self._in_loop and manner_of(self._of).ring_operations:
                took += self._parts_cycles(whole=op.operands[0], piece=op.operands[1], is_made=True)
        return took

    def _is_few(self, value: int) -> bool:
        """Whether images are so few that they would be cut outside of loops."""
        return 0 < self._batch(value) < FEW

    def _batch(self, value: int) -> int:
        """How many images a value has, none if it is none of images."""
        shape = self._graph.shape(value)
        image = self._images.get(shape)
        return shape[image.batch] if image is not None else 0

    def _is_turned_piece(self, value: int) -> bool:
        """Whether two devices' features of several images have the batch on the lanes, or might as well."""
        shape = self._graph.shape(value)
        image = self._images[shape]
        batch, features = shape[image.batch], shape[image.features] // HALVES
        return batch > 1 and not batch_on_lanes(batch, features, NARROW_BITS)

    def _parts_cycles(self, *, whole: int, piece: int, is_made: bool = False) -> float:
        """What it takes to write two halves of some features of an image on lanes of their own; of few images that a
        turn has made, to take them apart place by place.
        """
        part = self._graph.values[piece]
        image = self._images.get(part.shape)
        if image is None or not 1 < part.shape[image.features] < self._graph.shape(whole)[image.features]:
            return 0.0
        batch = part.shape[image.batch]
        if is_made and batch < FEW:
            places = part.num_elements // max(batch * part.shape[image.features], 1)
            manner = manner_of(self._of)
            is_wide = batch > PAIR and (part.bits > NARROW_BITS or self._graph.shape(whole) in self._turned_shapes)
            operations: float = WIDE_OPERATIONS if is_wide else PLACE_OPERATIONS
            operations = (manner.apart_operations or operations) if batch == 1 else operations
            operations = UNTURNED_OPERATIONS if part.bits > NARROW_BITS and not manner.packs_all else operations
            return 2 * operations * self._of.register_cycles * places
        laid = 2 * laid_elements(_halved(part, image.features), image)
        if batch == 1:  # rows of places fill registers
            laid //= tile_rows(batch, 32 // max(part.bits, 1))
        return laid * part.bits / 8 * self._of.byte_cycles + TURNING_CYCLES * laid / REGISTER_ELEMENTS


def _halved(value: Value, dim: int) -> Value:
    return replace(value, shape=(*value.shape[:dim], -(-value.shape[dim] // 2), *value.shape[dim + 1 :]))
