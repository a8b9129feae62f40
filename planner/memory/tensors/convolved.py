"""What the tensors around convolutions take in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import replace

from ...chip import Chip
from ...cut_images import SMALLEST_WITHOUT_VMEM, cut_anew, cut_convolutions, smallest_whole, with_margins
from ...fusion.nature import BROADCAST, ELEMENTWISE
from ...graph import Graph, Op, Value
from ...image_pieces import lies_turned, pieces_of, turned_shapes, with_lanes
from ...image_sources import of_arguments
from ...images import (
    CONVOLUTION,
    Image,
    batch_on_lanes,
    convolves,
    images,
    images_of,
    is_gradient_of_kernel,
    is_of_one_place,
    laid_elements,
    own_rows,
    shifts_of,
)
from ...kernels import Program
from ...whole_images import added_whole, kept_whole, made_whole
from .gathered_images import turned_for_gradients
from .image_roles import Lying, Reading
from .scattered_images import shapes_in_rows
from .taken_in_pieces import NARROW, Alone, Beside, rounded_fills
from .tiles import ROWS, Sizes, aligned, padded_bytes, round_up, tile_rows

NEAREST, PARTS = 3, 8
FEW_FEATURES, NARROW_BITS, FIRST_ROWS = ROWS, 16, 2


def smallest_batch(chip: Chip | None) -> int:
    """The smallest batch whose images a chip leaves whole."""
    return smallest_whole(keeps_near=chip is None or chip.buffer_vmem_bytes > 0)


def convolved_bytes(program: Program, smallest: int) -> Sizes:
    """The bytes of a program's temporaries: those of ``padded_bytes``, but for what convolutions read and make.

    A convolution wants its features on the lanes and its batch on the rows, or the other way round if that pads less (a
    batch of whole lanes does), and all tensors of that shape are laid out alike. A batch below ``smallest`` is made
    larger by cutting the image into parts (XLA's space-to-batch): no row is padded then. But the parts of what a
    convolution reads lie there twice more in bfloat16, one with the margins that it reads and one for the gradient of
    its filter; for that of a filter of more than ``NEAREST`` places beside each other once for each of these.
    """
    wanted = _wanted(program.graph)
    read = _read_by_convolutions(program, smallest) if wanted else dict[int, Reading]()
    rounded = rounded_fills(program.graph) if wanted else frozenset[int]()
    rows = shapes_in_rows(program.graph) if wanted else frozenset[tuple[int, ...]]()
    tied = dict(turned_for_gradients(program.graph)) if wanted and smallest == SMALLEST_WITHOUT_VMEM else {}
    kept = {**added_whole(program.graph), **kept_whole(program)} if wanted else dict[int, Image]()
    made = {id(program.graph): kept}
    margins = with_margins(program.graph, cut_convolutions(program.graph, smallest)) if wanted else {}
    cut, looped = _cut_beside_loops(program.graph, wanted) if wanted else (frozenset[tuple[int, ...]](), set[int]())

    def num_bytes(graph: Graph, number: int) -> int:
        value = graph.values[number]
        if graph is program.graph and number in rounded:
            value = replace(value, dtype=NARROW)
        lying = wanted.get(value.shape)
        if lying is None or value.shape in rows or not math.prod(value.shape):
            return padded_bytes(value)
        if graph is program.graph and number in tied:
            return _whole_bytes(value, tied[number], turned=True)
        lies_whole = made[id(graph)] if id(graph) in made else made.setdefault(id(graph), made_whole(graph))
        if lying.is_turned and number in lies_whole:
            return _whole_bytes(value, lies_whole[number])
        if graph is program.graph and value.shape in cut and number not in looped:
            lying = lying._replace(may_cut=True)
        laid = _laid_bytes(value, lying, smallest)
        laid, is_few = int(laid * margins.get(value.shape, 1.0)), value.shape[lying.image.batch] < smallest
        if not lying.may_cut or not is_few or (graph is program.graph and (number not in read or number in looped)):
            return laid
        reading = read.get(number, Reading()) if graph is program.graph else Reading()
        if reading.shifts > NEAREST:
            return laid + reading.shifts * laid * NARROW_BITS // value.bits
        copies = reading.copies if value.bits == NARROW_BITS and smallest > SMALLEST_WITHOUT_VMEM else 1
        return laid + copies * laid

    return num_bytes


def _cut_beside_loops(
    graph: Graph, wanted: Mapping[tuple[int, ...], Lying]
) -> tuple[frozenset[tuple[int, ...]], set[int]]:
    """The shapes of images that loops take whole and convolutions outside of them cut, and what loops read and make."""
    looped = {value for op in graph.ops if op.bodies for value in (*op.operands, *op.results)}
    outside = {shape for shape in images(graph) if shape in wanted}
    return frozenset(shape for shape in outside if not (wanted[shape].may_cut or wanted[shape].is_turned)), looped


def laid_bytes(program: Program, smallest: int) -> Callable[[Value], int]:
    """The bytes of a value that lies as images of its shape do around a program's convolutions."""
    wanted = _wanted(program.graph)

    def num_bytes(value: Value) -> int:
        lying = wanted.get(value.shape)
        return _laid_bytes(value, lying, smallest) if lying and value.num_elements else padded_bytes(value)

    return num_bytes


def _read_by_convolutions(program: Program, smallest: int) -> dict[int, Reading]:
    """What lies in memory that convolutions read, or what they read is made of number by number, if that is one array
    and what is spread over it.

    Windows of one place read no copies, nor do gradients of filters of arguments; ``cut_anew`` has others.
    """
    graph = program.graph
    written, sources = {value for kernel in program.kernels for value in kernel.writes}, sources_of(graph)
    found, anew, given = dict[int, Reading](), cut_anew(graph, smallest), _given(graph, smallest)
    for op in graph.ops:
        if op.kind != CONVOLUTION or is_of_one_place(graph, op) or _reads_whole(graph, op, given):
            continue
        shifts, is_gradient = shifts_of(graph, op), is_gradient_of_kernel(graph, op)
        for place, number in enumerate(op.operands):
            if number in anew:
                continue
            value = number
            while value not in written and value in sources:
                value = sources[value]
            is_made_of = value != number and graph.values[number].dtype == NARROW
            found[value] = found.get(value, Reading()).with_also(
                0 if place else shifts, is_made_of=is_made_of, is_gradient=is_gradient
            )
    return found


def sources_of(graph: Graph) -> dict[int, int]:
    """The one array of its shape that each value is computed of number by number, where that is one."""
    spread = {op.results[0] for op in graph.ops if op.kind == BROADCAST}
    sources: dict[int, int] = {}
    for op in graph.ops:
        if op.kind in ELEMENTWISE:
            shape = graph.shape(op.results[0])
            of = {v for v in op.operands if v not in spread and graph.shape(v) == shape}
            if len(of) == 1:
                sources[op.results[0]] = of.pop()
    return sources


def _wanted(graph: Graph) -> dict[tuple[int, ...], Lying]:
    """How the images of a program lie by their shape, as what comes first has them.

    What a loop convolves piece by piece is not cut, and lies as its pieces do.
    """
    wanted: dict[tuple[int, ...], Lying] = {}
    turned = turned_shapes(graph)
    for inner, op, _ in graph.walk() if convolves(graph) else ():
        if op.kind == CONVOLUTION:
            joined = {each.results[0]: each for each in inner.ops if each.kind == "concatenate"}
            for value, image in images_of(inner, op):
                for each in (value, *_put_together(value, joined, inner)):
                    shape = inner.shape(each)
                    image = image if inner is graph else with_lanes(shape, image, inner.values[op.results[0]].bits)
                    wanted.setdefault(shape, Lying(image, inner is graph and shape not in turned, shape in turned))
        for body in op.bodies if op.turns else ():
            for piece in pieces_of(body, fewest=1):
                image = with_lanes(shape := body.shape(piece.whole), piece.image, piece.bits)
                is_turned = shape in turned or (image != piece.image and lies_turned(body, piece))
                wanted.setdefault(shape, Lying(image, False, is_turned))
    return wanted


def _put_together(value: int, joined: Mapping[int, Op], graph: Graph) -> Iterator[int]:
    """What neighbours' rows are put beside, along one dim after the other, before convolutions read it."""
    while value in joined:
        value = max(joined[value].operands, key=lambda part: graph.values[part].num_elements)
        yield value


def _laid_bytes(value: Value, lying: Lying, smallest: int) -> int:
    """Bytes of an image as it lies; what is cut has no row to be padded, and rows of packed dtypes go by twos.

    Whether features or batch fill the lanes better is asked of the parts: as compiled for v5e, those of four images of
    16 features, ``f32[128,32,16,16]``, have the batch there.
    """
    image = lying.image
    batch, packed = value.shape[image.batch], 32 // max(value.bits, 1)
    rows = batch if batch < smallest or packed == 1 else round_up(batch, 2 * packed)
    is_cut = lying.may_cut and batch < smallest and not lying.is_turned
    if is_cut and batch_on_lanes(value.shape[image.features], PARTS * batch, value.bits):
        parts = replace(value, shape=(*value.shape[: image.batch], PARTS * batch, *value.shape[image.batch + 1 :]))
        return aligned((laid_elements(parts, image) // PARTS * value.bits + 7) // 8)
    shape = (*value.shape[: image.batch], rows, *value.shape[image.batch + 1 :])
    elements = laid_elements(replace(value, shape=shape), image, turned=lying.is_turned)
    if batch < smallest and not lying.is_turned:
        elements = elements // tile_rows(batch, packed) * batch
    return aligned((elements * value.bits + 7) // 8)


def copied_images(
    program: Program, touches: dict[int, tuple[int, ...]], smallest: int
) -> dict[int, tuple[tuple[int, int], int]]:
    """The arguments that are copied for convolutions, with the first and the last point and the bytes of the copy.

    An argument lies as it pads least, which a convolution does not want where neither its features nor its batch fill
    the lanes. The copy, in bfloat16, is made at the start, and kept for the filter's gradient.
    """
    graph, found = program.graph, dict[int, tuple[tuple[int, int], int]]()
    wanted, loaded = _wanted(graph), set(graph.arguments)
    rows = shapes_in_rows(graph)
    for kernel in program.kernels if wanted else ():
        if any(graph.ops[op].kind == CONVOLUTION for op in kernel.ops):
            for value in loaded.intersection(kernel.reads):
                image, lying = graph.values[value], wanted.get(graph.shape(value))
                if lying and image.shape not in rows and image.num_elements and _is_relaid(image, lying, smallest):
                    narrow = replace(image, dtype="bf16")
                    found[value] = ((0, touches[value][-1]), _laid_bytes(narrow, lying, smallest))
    return found


def copied_whole(program: Program, smallest: int, *, early: bool) -> Iterator[Beside]:
    """The copies in bfloat16 for gradients of kernels that convolve few images of the step's arguments.

    Those are not cut, as others are: both an argument and what comes back to it lie whole, their features on the lanes
    of two rows at least. The former is copied just before, or ``early``, before what comes back is computed. Seen on
    v4, v5e and v6e; on v3, where the argument's copy has four rows, however few its features are. There nothing is
    copied of what comes back to a single image, if nothing is added up beside it: parts come back whole in one row.
    """
    graph = program.graph
    maker = {value: point for point, kernel in enumerate(program.kernels) for value in kernel.writes}
    wanted = _wanted(graph) if graph.nesting and CONVOLUTION in graph.kinds else {}
    given = _given(graph, smallest) if CONVOLUTION in graph.kinds else set[int]()
    for point, kernel in enumerate(program.kernels) if CONVOLUTION in graph.kinds else ():
        for op in [graph.ops[number] for number in kernel.ops if graph.ops[number].kind == CONVOLUTION]:
            yield from _beside_lanes(graph, op, point, wanted, maker)
            if not _reads_whole(graph, op, given):
                continue
            (argument, image), (back, of) = images_of(graph, op)
            whole = graph.values[argument]
            is_single = smallest == SMALLEST_WITHOUT_VMEM
            is_few = whole.shape[image.batch] < smallest and (is_single or whole.shape[image.features] >= FEW_FEATURES)
            if is_few and padded_bytes(whole) < _whole_bytes(whole, image):
                first, rows = maker.get(back, point) if early else point, FIRST_ROWS if is_single else 1
                yield Beside(argument, (first, point), rows * _whole_bytes(replace(whole, dtype=NARROW), image))
                if not (is_single and whole.shape[image.batch] == 1 and _is_made_alone(program, maker.get(back))):
                    yield Beside(back, (point, point), _whole_bytes(replace(graph.values[back], dtype=NARROW), of))


def _is_made_alone(program: Program, point: int | None) -> bool:
    """Whether a kernel leaves nothing but one array, as those without a bias' gradient do."""
    return point is not None and len(program.kernels[point].writes) == 1


def _beside_lanes(
    graph: Graph, op: Op, point: int, wanted: Mapping[tuple[int, ...], Lying], maker: Mapping[int, int]
) -> Iterator[Beside]:
    """The copies of a single image that loops have with its places on the lanes, for the gradient of a kernel of
    several places: that of what it convolves is made before what comes back is computed (v5p and v6e).
    """
    for value, image in images_of(graph, op) if wanted and is_gradient_of_kernel(graph, op) else ():
        back = op.operands[1]
        first = point if value == back else max(maker.get(value, 0), maker.get(back, point))
        held = graph.values[value]
        lying = wanted.get(held.shape)
        if lying and lying.image not in (image, image[::-1]) and not is_of_one_place(graph, op):
            yield Alone(value, (first, point), _whole_bytes(replace(held, dtype=NARROW), image))


def shifted_images(program: Program, smallest: int, *, early: bool = False, in_one: bool = False) -> Iterator[Beside]:
    """What lies beside an image that is cut while its kernel's gradient shifts it: for each place of the kernel but the
    first, in bfloat16, what the parts begin later and what is cut off for it; or those of all places ``in_one`` array
    (v5p and v4: bf16[256,16,33,256,3], bf16[64,32,9,64,3]; taken so on v5e too, not on v6e), beside what is shifted
    last. ``convolved_bytes`` has those of wider kernels. What is put beside neighbours' rows is shifted just before, or
    ``early``, behind the convolution that reads it (v5e): then as many wait as its kernel has places (``_waiting``).
    """
    graph, wanted = program.graph, _wanted(program.graph)
    first, given = _first_convolved(program) if early else {}, _given(graph, smallest) if wanted else set[int]()
    for point, kernel in enumerate(program.kernels) if wanted else ():
        for op in [graph.ops[number] for number in kernel.ops]:
            if op.kind != CONVOLUTION or is_of_one_place(graph, op) or _reads_whole(graph, op, given):
                continue
            image, shifts = op.operands[0], shifts_of(graph, op)
            lying, value = wanted[graph.shape(image)], replace(graph.values[image], dtype=NARROW)
            is_cut = lying.may_cut and not lying.is_turned and value.shape[lying.image.batch] < smallest
            begins = first.get(image, point)
            if is_cut and begins < point and is_gradient_of_kernel(graph, op):
                yield from _waiting(program, op, (begins, point), lying, smallest)
            elif is_cut and 1 < shifts <= NEAREST:
                laid = _laid_bytes(value, lying, smallest)
                for num_bytes in (shifts * laid, *[laid] * (shifts - 2)) if in_one else [laid] * 2 * (shifts - 1):
                    yield Beside(image, (point, point), num_bytes)


def _first_convolved(program: Program) -> dict[int, int]:
    """Where images that are put beside neighbours' rows are convolved first."""
    graph, found = program.graph, dict[int, int]()
    joined = {op.results[0]: op for op in graph.of_kind("concatenate")}
    for point, kernel in enumerate(program.kernels) if joined else ():
        for op in [graph.ops[number] for number in kernel.ops]:
            if op.kind == CONVOLUTION and not is_gradient_of_kernel(graph, op):
                image = op.operands[0]
                if own_rows(graph, op, joined) != image:
                    found.setdefault(image, point)
    return found


def _waiting(program: Program, op: Op, span: tuple[int, int], lying: Lying, smallest: int) -> Iterator[Beside]:
    """What waits for the gradient of a kernel beside an image that neighbours' rows are put to: a copy for each place
    of the kernel, of which the image itself is one, unless it is read elsewhere too; while they are made as much is cut
    off. Those of a step's argument of few features are one, which lies whole (v5e).
    """
    graph, image = program.graph, op.operands[0]
    begins, ends = span
    value, places = replace(graph.values[image], dtype=NARROW), _places(graph, op)
    own = own_rows(graph, op, {each.results[0]: each for each in graph.of_kind("concatenate")})
    if own in of_arguments(graph) and value.shape[lying.image.features] < FEW_FEATURES:
        yield Beside(image, span, _whole_bytes(value, lying.image))
        return
    laid = _laid_bytes(value, lying, smallest)
    for _ in range(2 * (places - 1)):
        yield Beside(image, (begins, begins), laid)
    reads = [point for point, kernel in enumerate(program.kernels) if begins < point != ends and own in kernel.reads]
    for _ in range(places if reads else places - 1):
        yield Beside(image, (begins + 1, ends), laid)


def _places(graph: Graph, gradient: Op) -> int:
    """How many places along the dim that images are cut along a kernel has whose gradient this is."""
    return graph.shape(gradient.results[0])[int(gradient.attributes["output_spatial_dimensions"][-1])]


def widened_images(program: Program, smallest: int, near_bytes: int) -> Iterator[Beside]:
    """What lies beside what a convolution makes of an image with gaps where both are cut: that is laid out anew and
    widened to the parts of the image that it is masked with, which is there meanwhile. What fits into ``near_bytes``
    passes through fast memory.
    """
    graph, wanted = program.graph, _wanted(program.graph)
    for point, kernel in enumerate(program.kernels) if wanted else ():
        for op in [graph.ops[number] for number in kernel.ops]:
            has_gaps = op.kind == CONVOLUTION and math.prod(op.attributes.get("lhs_dilation", ())) > 1
            if has_gaps and not is_gradient_of_kernel(graph, op):
                made, lying = graph.values[op.results[0]], wanted[graph.shape(op.results[0])]
                laid = _laid_bytes(made, lying, smallest)
                is_cut = lying.may_cut and not lying.is_turned and made.shape[lying.image.batch] < smallest
                for _ in ("laid out anew", "widened") if is_cut and laid > near_bytes else ():
                    yield Beside(op.results[0], (point, point), laid)


def _given(graph: Graph, smallest: int) -> set[int]:
    """A step's arguments, and what is rounded of them, as v5p, v5e and v6e have it."""
    return of_arguments(graph) if smallest > SMALLEST_WITHOUT_VMEM else set(graph.arguments)


def _reads_whole(graph: Graph, op: Op, given: Container[int]) -> bool:
    """Whether a convolution is the gradient of a kernel of several places that convolves what is ``given``."""
    return op.operands[0] in given and is_gradient_of_kernel(graph, op) and not is_of_one_place(graph, op)


def _whole_bytes(value: Value, image: Image, *, turned: bool = False) -> int:
    return aligned(laid_elements(value, image, turned=turned) * value.bits // 8)


def _is_relaid(value: Value, lying: Lying, smallest: int) -> bool:
    """Whether a convolution reads a copy of an argument: not of what it cuts, which it takes as it comes."""
    image = lying.image
    if lying.may_cut and value.shape[image.batch] < smallest and value.shape[image.features] >= FEW_FEATURES:
        return False
    return padded_bytes(value) < _laid_bytes(value, lying, smallest)
