"""Images that are cut into parts since they are few: which are, how they lie, and what cutting and shifting them takes.

A batch of fewer images than ``smallest`` is made larger by cutting each into parts (XLA's space-to-batch).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from ...cut_images import (
    FEWEST,
    PARTS,
    cut_convolutions,
    has_whole_steps,
    is_gradient_cut,
    is_of_gaps,
    parts_of,
    smallest_whole,
)
from ...fusion.nature import NORMED
from ...graph import Graph, Op, Value
from ...image_sources import comes_back_whole, of_arguments
from ...images import (
    CONVOLUTION,
    Image,
    images_of,
    is_gradient_of_kernel,
    is_of_one_place,
    laid_elements,
    moves_on,
    own_rows,
    shifts_of,
    tile_rows,
)
from ...kernels import Kernel
from ...kinds import BETWEEN_PARTS, TURNED_COPY
from ..coefficients import Coefficients
from ..manner import manner_of
from ..work import LANES, SUBLANES, padded_elements, round_up
from .parted import (
    EDGED,
    FURTHER,
    GIVEN_EDGED,
    GIVEN_PLACES,
    GIVEN_SHIFTED,
    JOINED,
    JOINED_APART,
    JOINED_SHIFTED,
    NORMED_EDGED,
    NORMED_RETURNED,
    REPEATED,
    RETURNED,
    SHIFTED,
    SHIFTED_ONCE,
    SHIFTED_WIDE,
    TOGETHER,
    WHOLE,
    WIDE_EDGE,
    Steps,
    normed,
    rounds_of,
    steps_cycles,
    widened_cycles,
)

Shape = tuple[int, ...]
TWO_PLACES = 2
NEAREST = 3
"""Of what is cut, shifts are made for the gradient of a kernel, so many from the parts themselves."""


class ImagesInParts:
    """The images of a program that are cut, as its kernels are gone through.

    ``images`` are its images by their shape, of which those ``elsewhere`` are convolved in other programs, ``turned``
    the shapes of which loops have the batch on the lanes: these are not cut, nor what a loop convolves (``in_loop``).
    ``places`` are those of the parts of what other programs make, by its shape, which are cut where they are few.
    """

    def __init__(
        self,
        graph: Graph,
        of: Coefficients,
        edge: int,
        images: Mapping[Shape, Image],
        elsewhere: Collection[Shape],
        turned: Collection[Shape],
        *,
        in_loop: bool,
        places: Mapping[Shape, int] = MappingProxyType({}),
    ) -> None:
        self._graph, self._of, self._edge, self._images = graph, of, edge, images
        smallest = smallest_whole(keeps_near=bool(of.near_total_bytes or of.whole_bytes))
        self._given_images = of_arguments(graph) if images else set[int]()
        self._together = {
            op.results[0]: op.operands[0] for op in graph.of_kind(TURNED_COPY) if BETWEEN_PARTS in op.attributes
        }
        self._normed = normed(graph) if images else frozenset[int]()
        joins = {op.results[0]: op for op in graph.of_kind("concatenate")} if images else {}
        convolutions = graph.of_kind(CONVOLUTION) if joins else []
        self._joined = {op.operands[0] for op in convolutions if own_rows(graph, op, joins) != op.operands[0]}
        self._norms = bool(joins) and any(NORMED in op.attributes for op in graph.ops)
        self._edged = set[tuple[int, tuple[object, ...]]]()
        cuts = bool(images) and not in_loop
        known = {shape: part for shape, part in places.items() if cuts and shape in images}
        made = {shape: part for shape, part in known.items() if shape[images[shape].batch] < smallest}
        self._cut = cut_convolutions(graph, smallest, begins=bool(made)) if cuts else dict[int, Op]()
        self._places = made | parts_of(graph, self._cut)
        self._cut_shapes = (self._shapes_cut(elsewhere, smallest) | {*made}) - {*turned} if cuts else set[Shape]()

    def _shapes_cut(self, elsewhere: Collection[Shape], smallest: int) -> set[Shape]:
        """The shapes of images that are cut: what other programs convolve if it is large enough."""
        cut = {self._graph.shape(v) for op in self._cut.values() for v, _ in images_of(self._graph, op)}
        cut.update(
            s for s in elsewhere if s[self._images[s].batch] < smallest and _last_place(s, self._images[s]) >= FEWEST
        )
        return cut

    def laid_of(self, whole: Value, image: Image, *, turned: bool) -> int:
        """The elements that an image fills where convolutions read or make it, of parts if it is cut."""
        if not self.is_cut(whole.shape):
            return laid_elements(whole, image, turned=turned)
        shape = list(whole.shape)
        shape[image.batch] *= PARTS
        return laid_elements(replace(whole, shape=tuple(shape)), image) // PARTS

    def is_cut(self, shape: Shape) -> bool:
        """Whether images of a shape are cut."""
        return shape in self._cut_shapes

    def cuts(self, op: Op) -> bool:
        """Whether a convolution is of parts of its images; the gradient of a kernel is if what comes back to it is."""
        if is_gradient_of_kernel(self._graph, op):
            is_cut = is_gradient_cut(self._graph, op, self._places)
            return is_cut and not comes_back_whole(self._graph, op, self._cut)
        return op.results[0] in self._cut

    def extra_cycles(self, kernel: Kernel) -> float:
        """What kernels besides take that cut images for a kernel, and shift what is cut for gradients."""
        ops = [self._graph.ops[number] for number in kernel.ops] if self._cut_shapes else []
        convolutions = [op for op in ops if op.kind == CONVOLUTION]
        operations = manner_of(self._of).part_operations
        took = sum(steps_cycles(*each, operations, self._of) for op in convolutions for each in self._parts_steps(op))
        widened = (self._laid_in_parts(op.results[0]) for op in convolutions if self._widens(op))
        return took + sum(widened_cycles(numbers, operations, self._of) for numbers in widened)

    def widened(self, op: Op) -> int:
        """How many numbers of parts that a convolution widens are gone through as they lie."""
        return rounds_of(self._laid_in_parts(op.results[0])) if self._widens(op) else 0

    def _widens(self, op: Op) -> bool:
        """Whether parts of an image with gaps are widened, for windows of one place."""
        has_gaps = math.prod(op.attributes.get("lhs_dilation", ())) > 1
        return has_gaps and is_of_one_place(self._graph, op) and self.cuts(op)

    def _parts_steps(self, op: Op) -> Iterator[tuple[Steps, int]]:
        """The steps that cut images for a convolution, each with the numbers of its image."""
        graph, (value, second) = self._graph, op.operands[:2]
        is_given, is_gradient = value in self._given_images, is_gradient_of_kernel(graph, op)
        image = self._laid_in_parts(value, is_given=is_given)
        if not self.cuts(op):
            if is_gradient and self.is_cut(graph.shape(value)) and not is_given:
                yield (WHOLE, image) if is_of_gaps(op) else (TOGETHER, graph.values[value].num_elements)
        elif is_of_one_place(graph, op):
            if is_given:
                yield GIVEN_PLACES, self._laid_in_parts(value)
            if moves_on(op) and not has_whole_steps(graph, op):
                yield REPEATED, image
        elif is_gradient and value in self._joined and not is_given:
            yield JOINED_SHIFTED, image
            yield JOINED_APART, self._laid_apart(value)
        elif is_gradient:
            yield NORMED_RETURNED if second in self._normed else RETURNED, self._laid_in_parts(second)
            shifted = SHIFTED_WIDE if self._edge >= WIDE_EDGE else SHIFTED
            shifted = SHIFTED_ONCE if shifts_of(graph, op) == TWO_PLACES else shifted
            yield GIVEN_SHIFTED if is_given else shifted, image
            yield from [(FURTHER, self._laid_in_parts(value))] * max(shifts_of(graph, op) - NEAREST, 0)
        elif (value, window := _reach(graph, op)) not in self._edged:
            self._edged.add((value, window))
            if value in self._joined and not is_given:
                yield JOINED, image
                yield JOINED_APART, self._laid_apart(value)
                return
            yield GIVEN_EDGED if is_given else NORMED_EDGED if value in self._normed else EDGED, image

    def _laid_apart(self, value: int) -> int:
        """The numbers of an image between parts: as its features or its rows fill lanes in fewer bytes, few images a
        register; where the columns of a part fill them as well, several images are laid out so between, but in nets
        with norms.
        """
        shape = self._graph.shape(value)
        image = self._images[shape]
        batch, features = shape[image.batch], shape[image.features]
        rows, *others = [size for dim, size in enumerate(shape) if dim not in image]
        columns = others[-1] if others else 1
        places = rows * math.prod(others)
        upright = round_up(features, LANES) * places
        across = round_up(features, SUBLANES) * places * batch * round_up(rows, LANES) // rows
        if across >= upright * round_up(batch, tile_rows(batch, 1)):
            return upright * (round_up(batch, SUBLANES) if batch > 1 else 1)
        part = columns // PARTS + 1
        is_turned = batch > 1 and not self._norms and round_up(part, LANES) * rows <= round_up(rows, LANES) * part
        return 2 * across if is_turned else across

    def _laid_in_parts(self, value: int, *, is_given: bool = False) -> int:
        """The numbers of an image as it is laid out in parts; where it is given with a row of it on the lanes, if that
        pads it less, as where it is put together for all else.
        """
        whole = replace(self._graph.values[self._together.get(value, value)], dtype="bf16")
        image = self._images.get(whole.shape)
        laid = self.laid_of(whole, image, turned=False) if image else padded_elements(whole.shape)
        by_rows = padded_elements((*whole.shape[:-2], whole.shape[-1], whole.shape[-2]))
        return min(laid, by_rows) if is_given else laid


def _reach(graph: Graph, op: Op) -> tuple[object, ...]:
    """What of an image's edges the parts of one need for a convolution: its window, steps and margins."""
    said, kernel = op.attributes, graph.shape(op.operands[1])
    window = tuple(kernel[dim] for dim in said["kernel_spatial_dimensions"])
    names = ("rhs_dilation", "lhs_dilation", "window_strides", "padding")
    return (window, *(str(said.get(name)) for name in names))


def _last_place(shape: Shape, image: Image) -> int:
    """How many places an image has along its last dim, none if it has no other dims."""
    return next((size for dim, size in reversed([*enumerate(shape)]) if dim not in image), 0)
