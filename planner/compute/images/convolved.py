"""What convolutions take besides: images padded as they lie, copied into that layout.

``images`` says how images lie. An argument lies as it pads least and is copied before it is convolved. Few images
are cut (``images_in_parts``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ...cut_images import PARTS
from ...fusion.grouped import is_across, parts_lanes
from ...fusion.nature import CONVERT
from ...graph import Graph, Op, Value
from ...image_pieces import is_turned_for_gradient, looped_images, pieces_of, turned_shapes
from ...images import CONVOLUTION, ROWS, Image, batch_on_lanes, images, images_of, is_gradient_of_kernel, laid_elements
from ...kernels import Kernel
from ...kinds import ALL_GATHER
from ..coefficients import Coefficients
from ..copies.turning import Side, leaves_near, turning_cycles
from ..manner import manner_of
from ..products import Product, product_of
from ..windows import windows_of
from ..work import FREE, LANES, LOOP, REGISTER_ELEMENTS, Work, padded_bytes, padded_elements, round_up
from .gathered_features import features_cycles, is_gathered_turned
from .given_parts import GivenParts
from .group_sums import GroupSums
from .images_in_parts import ImagesInParts
from .looped_images import HALVES, TURNING_CYCLES, LoopedImages
from .place_sums import PlaceSums
from .ring_windows import ring_windows_of

RESHAPE, MATRIX_RANK = "reshape", 2
KEEPING = frozenset({"convert", "reverse"})
"""What leaves a kernel as it lies."""

Shape = tuple[int, ...]
IsNear = Callable[[int], bool]
HALF_EMPTY = 2.0
"""How much of registers is empty of images that fill half: what is filled alone takes as many as if it filled them, of
four images (v5e, v5p, v6e) and not of two (v6e).
"""

FILLED = 0.87
"""What moving a register takes that few images leave empty in part, of one that is full, where fused operations move
them: on v3 f32[4,64,64,64] is normed in 96500 cycles, read twice and written once, and reduced in 58600, of
bf16[2,128,128,64] in 190500.
"""


class Convolved:
    """The images of a program, as its kernels are gone through; of chips without matrix units none.

    What a loop convolves piece by piece is not cut (``in_loop``). ``given`` are the values that are a step's arguments:
    where images, they are copied. ``known`` are images of other programs, by their shape, ``across`` the kernels that
    lie so, gathered elsewhere, ``places`` those of the parts of images made elsewhere that are cut where they are few.
    """

    def __init__(
        self,
        graph: Graph,
        of: Coefficients,
        edge: int,
        *,
        in_loop: bool = False,
        given: Collection[int] = (),
        known: Mapping[tuple[int, ...], Image] | None = None,
        across: Collection[int] = (),
        places: Mapping[Shape, int] = MappingProxyType({}),
        left: Collection[int] = (),
    ) -> None:
        self._graph, self._of, self._edge = graph, of, edge
        self._looped, outside = (looped_images(graph), images(graph)) if edge > 1 else ({}, {})
        self._turned_shapes = turned_shapes(graph) if self._looped else frozenset[Shape]()
        self._images = {**(known or {}), **self._looped, **outside} if edge > 1 else {}
        self._in_loop = in_loop
        elsewhere = self._images.keys() - outside - self._looped.keys()
        self._in_parts = ImagesInParts(
            graph, of, edge, self._images, elsewhere, self._turned_shapes, in_loop=in_loop, places=places
        )
        ranks = set() if in_loop else {len(shape) for shape in self._images}
        self._given = {value for value in given if len(graph.shape(value)) in ranks}  # and no biases
        self._left = {value for value in left if len(graph.shape(value)) in ranks}
        self._given_parts = GivenParts(graph, self._given)
        self._turned, self._made, self._across = set[int](), set[int](), set(across)
        self._parted = self._parted_shapes() if self._images else dict[Shape, Shape]()
        by_features = {part: whole for part, whole in self._parted.items() if not is_across(whole, self._images[whole])}
        self._sums = GroupSums(graph, by_features, self._images, of)
        self._place_sums = PlaceSums(graph, self._images)
        self._convolved, self._regrouped = set[int](), set[int]()
        self._before_next = 0.0
        self._loops = LoopedImages(graph, of, self._images, self._turned_shapes, in_loop=in_loop)

    def _parted_shapes(self) -> dict[Shape, Shape]:
        """The shapes of images whose features are parted into groups, with those that they have whole."""
        found: dict[Shape, Shape] = {}
        for op in self._graph.ops:
            if op.kind == RESHAPE:
                before, after = self._graph.shape(op.operands[0]), self._graph.shape(op.results[0])
                for whole, parted in ((before, after), (after, before)):
                    if parts_lanes(whole, parted, self._images):
                        found[parted] = whole
        return found

    def gathered(self, op: Op) -> None:
        """Takes notice of a gather: what pieces with the batch on the lanes make is brought to lie as they do, and
        narrow ones are copied to be sent, which is counted with the next kernel. Rows of kernels come onto the lanes
        where that pads their pieces less.
        """
        if op.kind == ALL_GATHER and lies_across(self._graph.shape(op.operands[0])):
            self._across.add(op.results[0])
        image = self._images.get(self._graph.shape(op.results[0])) if op.kind == ALL_GATHER else None
        if image is None:
            return
        piece, whole = (self._graph.values[values[0]] for values in (op.operands, op.results))
        self._before_next += features_cycles(piece, whole, image, self._of)
        if is_gathered_turned(piece, whole, image):
            self._turned.add(op.results[0])
            self._given.update({op.results[0]} if op.operands[0] not in self._made else ())

    def looped(self, loop: Op) -> None:
        """Takes notice of a loop: of copies of the images that it takes in pieces, of arguments and, for gradients of
        kernels, with the batch on the lanes. They are counted with the next kernel.
        """
        for body in loop.bodies[:1] if loop.turns and self._looped else ():
            given = dict(zip(body.arguments, loop.operands, strict=False))
            for value, piece in {given.get(piece.whole): piece for piece in pieces_of(body) if piece.is_read}.items():
                whole = self._graph.values[value] if value is not None else None
                if whole is None:
                    continue
                is_shape, turned = whole.shape in self._turned_shapes, is_turned_for_gradient(body, piece)
                if (turned and not is_shape) or value in self._given:
                    laid = laid_elements(replace(whole, dtype="bf16"), piece.image, turned=turned or is_shape)
                    self._before_next += 2 * laid * self._of.byte_cycles + TURNING_CYCLES * laid / REGISTER_ELEMENTS
                if not turned or is_shape:
                    self._given.discard(value)

    def counted(self, kernel: Kernel, work: Work) -> Work:
        """The work of a kernel with its images as they lie."""
        if not self._images or work.kind == FREE:
            return work
        graph = self._graph
        cut = self._given_parts.counted(kernel, work) if self._given else None
        if cut is not None:
            self._given.update(kernel.writes)
            return cut
        if self._rounds_given(kernel):
            self._given.update(kernel.writes)
            return work
        for op in (graph.ops[number] for number in kernel.ops) if self._across else ():
            if op.kind in KEEPING and op.operands[0] in self._across:
                self._across.add(op.results[0])
        ops = [graph.ops[number] for number in kernel.ops if graph.ops[number].kind == CONVOLUTION]
        self._made.update(kernel.writes if ops else ())
        reads = tuple(int(size * self._lies(v)) for v, size in zip(kernel.reads, work.reads, strict=True))
        writes = tuple(int(size * self._lies(v)) for v, size in zip(kernel.writes, work.writes, strict=True))
        around = (*kernel.reads, *kernel.writes)
        growth, spread = self._whole_growth(around), max(map(self._spread, around), default=1.0)
        spilled = min(growth, self._whole_growth(kernel.writes)) if ops else growth
        moved = max(FILLED * spread, 1.0) if work.kind == LOOP and not self._of.held_near_bytes else 1.0
        return replace(
            work,
            reads=tuple(int(size * moved) for size in reads),
            writes=tuple(int(size * moved) for size in writes),
            spill_bytes=int(work.spill_bytes * spilled * moved) + self._place_sums.moved_bytes(around),
            registers=work.registers * growth * spread,
            space_bytes=int(work.space_bytes * growth * (spread if work.single and spread == HALF_EMPTY else 1.0)),
            products=tuple(self._product(op) for op in ops) if ops else work.products,
        )

    def _rounds_given(self, kernel: Kernel) -> bool:
        """Whether a kernel only rounds images that are given, as they lie: what convolves them copies that."""
        ops = [self._graph.ops[number] for number in kernel.ops]
        return all(op.kind == CONVERT for op in ops) and self._given.issuperset(kernel.reads)

    def copies_cycles(self, kernel: Kernel, is_near: IsNear | None = None) -> float:
        """What copying the arguments takes that a kernel is the first to convolve, and what loops before it read.

        ``is_near`` says which values have their copies in fast memory there, for who knows.
        """
        graph = self._graph
        took = self._before_next + self._loops.whole_cycles(kernel) + self._loops.slices_cycles(kernel)
        self._before_next = 0.0
        took += sum(map(self._left_cycles, self._left.intersection(kernel.writes))) if self._left else 0.0
        if self._given.isdisjoint(kernel.reads):
            return took
        for op in (graph.ops[number] for number in kernel.ops):
            for value, image in images_of(graph, op) if op.kind == CONVOLUTION else ():
                given = self._given & _behind(graph, kernel, value) if value in op.operands else None
                if given:
                    parts = given & self._given_parts.laid.keys()
                    left_near = None if is_near is None else any(map(is_near, given))
                    took += self._copy_cycles(min(parts, default=value), image, left_near)
                    self._given -= given
        return took

    def _left_cycles(self, value: int) -> float:
        """What copying an image takes that a step leaves: it lies as it comes where that pads no more, as images of
        whole rows of places do. f32[8,56,56,512] takes 230972 cycles on v3, 233136 on v4, 131908 on v5e.
        """
        whole = self._graph.values[value]
        image = self._images.get(whole.shape)
        if image is None or len(whole.shape) <= MATRIX_RANK or image.batch == len(whole.shape) - MATRIX_RANK:
            return 0.0
        *_, rows, lanes = whole.shape
        as_it_comes = whole.num_elements // (rows * lanes) * round_up(rows, ROWS) * round_up(lanes, LANES)
        laid = self._laid(value, image)
        if as_it_comes > laid:
            return 0.0
        read, made = (Side(each / REGISTER_ELEMENTS, each * whole.bits / 8) for each in (laid, as_it_comes))
        is_near = read.num_bytes <= self._of.held_near_bytes
        return turning_cycles(read, made, self._of, is_result=True, came_near=is_near)

    def grouped_cycles(self, kernel: Kernel) -> float:
        """What copies take of images whose features are parted into groups: what convolutions make of them or read so,
        and what they made that is parted where it is read; and what adding up groups takes besides.
        """
        if not self._parted:
            return 0.0
        graph, ops = self._graph, [self._graph.ops[number] for number in kernel.ops]
        if any(op.kind == CONVOLUTION for op in ops):
            self._convolved.update(kernel.writes)
            found = [v for v in (*kernel.reads, *kernel.writes) if graph.shape(v) in self._parted]
        else:
            parts = {graph.shape(op.operands[0]) for op in ops if op.kind == RESHAPE and self._parts(op)}
            found = [v for v in kernel.reads if v in self._convolved and graph.shape(v) in parts]
        copied = [value for value in found if value not in self._regrouped and self._is_across(value)]
        self._regrouped.update(copied)
        return sum(map(self._regrouped_cycles, copied)) + self._sums.extra_cycles(kernel)

    def _is_across(self, value: int) -> bool:
        shape = self._graph.shape(value)
        whole = self._parted.get(shape, shape)
        return is_across(whole, self._images[whole])

    def _parts(self, op: Op) -> bool:
        return self._graph.shape(op.results[0]) in self._parted

    def _regrouped_cycles(self, value: int) -> float:
        held = self._graph.values[value]
        whole = replace(held, shape=self._parted.get(held.shape, held.shape))
        return self._turning(value, whole, self._images[whole.shape])

    def _copy_cycles(self, value: int, image: Image, left_near: bool | None) -> float:
        whole = self._graph.values[value]
        laid, least = self._laid(value, image), padded_bytes(whole) * 8 // whole.bits
        if laid <= least and value not in self._turned:
            return 0.0
        return self._turning(value, whole, image, left_near)

    def _turning(self, value: int, whole: Value, image: Image, left_near: bool | None = None) -> float:
        """Cycles of a copy of an image between where it pads least and where convolutions want it."""
        laid = self._in_parts.laid_of(whole, image, turned=value in self._turned)
        registers = laid * self._emptied(whole, image)
        lies = self._given_parts.laid.get(value, padded_elements(whole.shape))
        read = Side(lies / REGISTER_ELEMENTS, lies * whole.bits / 8)
        made = Side(registers / REGISTER_ELEMENTS, laid * whole.bits / 8)
        took = turning_cycles(read, made, self._of, leaves=left_near)
        left_near = leaves_near(read, made, self._of, None) if left_near is None else left_near
        of_few = batch_on_lanes(whole.shape[image.features], whole.shape[image.batch], whole.bits) and registers > laid
        is_narrow = of_few and (self._of.common_bytes > 0 or (bool(self._of.near_total_bytes) and not left_near))
        return max(took, manner_of(self._of).tile_cycles * made.registers) if is_narrow else took

    def _emptied(self, whole: Value, image: Image) -> float:
        """How much of a register's rows so few images leave empty, or so few features with the batch on the lanes."""
        many, batch = whole.shape[image.features], whole.shape[image.batch]
        if batch_on_lanes(many, batch, whole.bits):
            return _emptied(many, is_cut=False)
        return _emptied(batch, self._in_parts.is_cut(whole.shape))

    def _growth(self, value: int) -> float:
        """How much larger than where it pads least a value is."""
        whole = self._graph.values[value]
        image = self._images.get(whole.shape)
        if image is None or not whole.num_elements:
            return 1.0
        return max(1.0, self._laid(value, image) * whole.bits / 8 / padded_bytes(whole))

    def _lies(self, value: int) -> float:
        """The same of what is known of an image's places too."""
        return self._growth(value) * self._place_sums.growth(value)

    def _whole_growth(self, around: Sequence[int]) -> float:
        """How much larger what a kernel reads and writes is all told: what it computes are numbers of all of these."""
        sizes = [(padded_bytes(self._graph.values[value]), self._growth(value)) for value in around]
        return sum(size * growth for size, growth in sizes) / max(sum(size for size, _ in sizes), 1)

    def _spread(self, value: int) -> float:
        """How many more registers than its numbers fill an image takes: few images leave rows of each empty."""
        whole = self._graph.values[value]
        image = self._images.get(whole.shape)
        if image is None or self._loops.lies_turned(value):
            return 1.0
        if batch_on_lanes(whole.shape[image.features], whole.shape[image.batch], whole.bits):
            return 1.0
        return _emptied(whole.shape[image.batch], self._in_parts.is_cut(whole.shape))

    def _laid(self, value: int, image: Image) -> int:
        whole = self._graph.values[value]
        return self._in_parts.laid_of(whole, image, turned=value in self._turned or self._loops.lies_turned(value))

    def _product(self, op: Op) -> Product:
        cut, turned = self._in_parts.cuts(op), op.operands[0] in self._turned
        manner = manner_of(self._of)
        ring = ring_windows_of(self._graph, op, manner) if self._in_loop else None
        windows = ring or windows_of(
            self._graph, op, manner, PARTS if cut else 1, turned=turned, across=op.operands[1] in self._across
        )
        if self._in_loop and is_gradient_of_kernel(self._graph, op):
            windows = replace(windows, loads=HALVES * windows.loads)
        return replace(product_of(self._graph, op), windows=windows)

    def units_cycles(self, op: Op) -> float:
        """Cycles of the slowest of the units that compute a convolution, in its kernel."""
        product, of = self._product(op), self._of
        squares, vectors = product.padded(self._edge), product.vector_operations(of)
        return max(squares * of.multiply_add_cycles, product.load_cycles, vectors * of.register_cycles)

    def widened(self, op: Op) -> int:
        """How many numbers of parts of images a convolution has widened by kernels that go through them as they lie."""
        return self._in_parts.widened(op)

    def parts_cycles(self, kernel: Kernel) -> float:
        """What kernels besides take that cut images for a kernel, and shift what is cut for gradients."""
        return self._in_parts.extra_cycles(kernel)


def lies_across(shape: Shape) -> bool:
    """Whether an array is padded less with its last dim but one on the lanes."""
    return len(shape) > 1 and batch_on_lanes(shape[-1], shape[-2])


def _emptied(batch: int, is_cut: bool) -> float:
    """How much of a register's rows so few images leave empty."""
    rows = 1 << max(batch - 1, 0).bit_length()
    return 1.0 if is_cut or rows >= ROWS else ROWS / rows


def _behind(graph: Graph, kernel: Kernel, value: int) -> set[int]:
    """What a kernel computes a value from, itself included."""
    makers = {made: graph.ops[number] for number in kernel.ops for made in graph.ops[number].results}
    waiting, found = [value], set[int]()
    while waiting:
        value = waiting.pop()
        if value not in found:
            found.add(value)
            waiting.extend(makers[value].operands if value in makers else ())
    return found
