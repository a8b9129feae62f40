"""How many bytes the compiled program itself takes in a device's memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..chip import Chip
from ..compute.images.parted import WIDE_EDGE
from ..compute.products import COMPLEX, COMPLEX_PASSES
from ..compute.written_out import WRITTEN_OUT, code_bytes_of, is_written_out
from ..fusion.nature import ALLOCATE, PRODUCTS, UPDATE
from ..graph import Graph, Op, Value
from ..images import CONVOLUTION, ROWS, images_of, is_gradient_of_kernel, is_of_one_place, moves_on
from ..kernels import Kernel, Program
from ..kinds import KINDS
from ..lookups import GATHER, SCATTER, is_looked_up_apart
from ..ranked import SORT, TOP_K
from .fast.accessed import matrix_flops
from .fast.units import Units, units_of
from .tensors.tiles import VECTOR_ELEMENTS

INDEXED = frozenset({GATHER, SCATTER, SORT, TOP_K})
REDUCTIONS = frozenset({"reduce", "reduce_window"})
BASE_BYTES = 30 << 10
PRODUCT_BYTES = 350 << 10
CONVOLUTION_TO_PRODUCT = 2.4
"""Of windows of several places; those of one are products. Large ones with nothing around them take 840 to 1880 KiB on
v5e, small ones 320 to 750, of features apart 160 to 210 (220 to 390 on v3); the convolutions of 18 nets with all around
them, in loops too, 600 on v3 and 1000 to 1200 on v5e and v6e.
"""
COMMON_TO_PRODUCT = 2.0
"""The same on v4, whose cores have a memory in common: three nets take 350 to 500 KiB each."""
LOOPED_TO_WINDOW = 0.5
"""How much of it those in loops take which add up what goes round, where what is added up is not unrolled
(``WholeProduct.rounded``): 350 to 550 KiB in nets for v4 (of many images), v5e and v5p, 240 for TPU7x, but 520 to 770
for v6e.
"""
LOOPED_TO_PRODUCT, FILLING_TO_PRODUCT, LOOPED_GRADIENT_BYTES = 0.75, 0.95, 75 << 10
"""The same of one place in a loop, of one that fills an image, with what is taken apart and put in (6 to 8 thousand
bundles of 64 bytes on v5e and v5p), and of the gradient of a kernel (500 to 1400): nets of six of them in three loops
take 2.9 MiB on v5e, 3.1 and 3.3 on v6e, 3.6 on v4 and 3.7 on v5p, one of sixteen 6.8 on v6e, all told.
"""
LEAST_CONVOLUTION_BYTES, WINDOW_BYTES, SQUARE_BYTES = 60 << 10, 150, 80
"""What a convolution takes at least from v4 on, and more for each cycle of the units that compute it, of windows of
several places and of one: all that a kernel does at once is written out. 22 nets for v4, v5e, v5p and v6e take 45 to
100 bytes for each cycle of one of a kernel's windows, all told.
"""
FIRST_WINDOW_BYTES = 10
"""The same on v3, outside of loops: of 900 to 30000 cycles 70 to 490 KiB each in three nets of one and two images."""
WHOLE_WINDOW_BYTES, WHOLE_SQUARE_BYTES = 2600, 1600
"""The same for the root of the cycles, of images that fill registers. Forward, back and for the kernel, of 8
images on v5e, 3136 places of 64 features take 520 to 850 KiB, 196 of 256 350 to 480, 49 of 512 265; of 32 images the
first 880; windows of one place 180 to 240 KiB.
"""
LEAST_WINDOW_BYTES, GAPS_BYTES, WIDE_GAPS_BYTES = 20 << 10, 500, 2200
"""What a convolution of few images takes at least outside of loops, of windows of several places, and more for the root
of its cycles where it puts gaps between the places of an image, which then lies whole: 200 to 490 bytes in five kernels
for v5e and v5p of 13 to 216 thousand cycles, 1200 to 4000 in seven for v6e, whose squares are wide.
"""
MOST_TO_USUAL = 2
"""How often on v6e and v4 the longest code of such windows is that of others: gradients of kernels take 2.2 and 1.6
MiB.
"""
COMMON_LOOPED_BYTES = 1200
"""What windows of several places take in loops on v4 for the root of their cycles: in eleven nets of one to four images
720 to 2400, of 7 thousand to 3.6 million cycles each; windows of 25 places that fill an image take up to 5.6 MiB.
"""
WIDENED_BYTES, NARROW_WIDENED = 0.11, 0.1
"""What the kernels take that widen parts of images (``widened_cycles``), for each number that they go through, and what
part of that on chips of narrower squares: 0.07 to 0.14 in three nets for v6e, 0.01 in one for v5e.
"""
SUM_TO_PRODUCT, LEAST_SUMMED = 0.04, 8
"""What each sum over an image adds that a kernel leaves beside it, of what a product takes (v5e: 15 to 22 KiB),
and how many numbers such a sum adds up at least.
"""
GFLOP_BYTES, GROWTH, LEAST_PRODUCT_BYTES, LARGEST_PRODUCT = 140 << 10, 0.65, 20 << 10, 1.2
"""What a product of a GFLOP takes, the power of its work that smaller and larger ones take, the least, and how often a
chip's usual the largest does. Alone they take 31 to 54 KiB for 0.13 GFLOP (256 x 512 x 512) on v3 to v6e, 73 to 103 for
0.54, 160 to 280 for 2.1, and then on v3 250 whatever they multiply, on v5p 470 and on v6e 530.
"""
WIDE_FROM_FLOPS = 1e9
"""From how many FLOPs on products that read or write float32 have longer code on some chips
(``Chip.wide_product_code``).
"""
SURE_PRODUCT_BYTES, SURE_LOOP_BYTES = 4 << 10, 8 << 10
"""What each product and each loop of a compiled program took at least: 24 products of 64 x 128 x 128 in 149 KiB on v5e
and 165 to 176 on v3 and v6e with all else, in 6 loops 6 of them in 90 KiB on v5e and 98 on v3.
"""
SURE_PART, SURE_FLOPS, MOST_SURE_FLOPS = 0.6, 1e8, 1.6e9
"""What part of it each product of so many FLOPs on a device took at least, and from how many on it is no more: alone on
v3 to v6e, and in seven training steps of 5 to 23 products on v3, v4, v5e, v5p and v6e, whose whole code was 2.5 to 6
times as long.
"""
COLLECTIVE_BYTES = 34 << 10
GATHER_BYTES, TAKEN_ELSEWHERE_BYTES = 30 << 10, 500 << 10
"""What a lookup takes, and one that a chip's SparseCores make: on v3, v4 and v5e 1 to 75 KiB for 512 to 8192 rows of up
to 2048, 150 for 8192 of 2048 on v5e; on v5p and v6e 500 to 560 for those of 8192 rows, and 4096 single numbers.
"""
SCATTER_BYTES, SORTED_SCATTER_BYTES, SORTED_FROM, SORTED_TABLE_BYTES = 160 << 10, 850 << 10, 4096, 16 << 20
"""What adding rows to a table takes, and where the compiler sorts so many rows of a large one before: 512 to 16384 rows
of small tables, and 2048 of 64 MiB, 80 to 270 KiB on v3 to v6e, 4096 and 8192 of 64 MiB 680 to 1000.
"""
SORT_BYTES, TOP_BYTES = 480 << 10, 90 << 10
"""What a sort takes (8192 numbers 430 to 590 KiB on v3 to v6e), and finding the largest (80 to 110)."""
LOOP_BYTES = 100 << 10
REDUCTION_BYTES = 40 << 10
OTHER_KERNEL_BYTES = 10 << 10
CODE_OF = "code"
RESULT_TO_PRODUCT = 0.2
"""What each further result of a kernel adds, of what a product takes at most by the chip."""
REGISTER_BYTES = 1 << 10
"""What it adds at most, where nothing is multiplied, for each register that it fills: small arrays are not gone through
in a loop. All the code of a net whose kernels have one place and 32 or 64 features takes 1.1 MiB on v5p, Adam with it.
"""


def code_bytes(program: Program, chip: Chip | None = None) -> int:
    """A rough figure: so many bytes a kernel, more where it multiplies, looks up, adds up, communicates or turns.

    How long the code of a product is depends on the chip's matrix units.
    """
    return BASE_BYTES + _kernels_bytes(program, product_code(chip), chip)


class RootBytes(NamedTuple):
    """The bytes of code for the root of the cycles of a convolution of few images, with what cuts and shifts these for
    it: of windows that move on by a place, and by several.
    """

    still: int
    moving: int


NARROW_ROOT, COMMON_ROOT, WIDE_ROOT = RootBytes(8400, 2400), RootBytes(4800, 3600), RootBytes(11500, 5000)
"""On v5e and v5p, on v4 and on v6e: twelve nets of one to four images, whose kernels outside of loops take 400 to 7000
bundles of 64 bytes each on v5e, v5p and v4, and to 36000 on v6e, for 80 to 56000 cycles.
"""


class ProductCode(NamedTuple):
    """The bytes of a kernel that multiplies, how often those of a large one of float32, how much of those of a
    convolution one in a loop takes, and whether other cores look rows up.
    """

    num_bytes: int
    wide: float
    looped: float
    offloads_gathers: bool = False


def product_code(chip: Chip | None) -> ProductCode:
    """The code of a chip's kernels that multiply."""
    if chip is None:
        return ProductCode(PRODUCT_BYTES, 1.0, 1.0)
    looped = 1.0 if chip.whole_product is not None and chip.whole_product.rounded else LOOPED_TO_WINDOW
    return ProductCode(chip.product_code_kib << 10, chip.wide_product_code, looped, chip.offloads_gathers)


def _kernels_bytes(program: Program, product: ProductCode, chip: Chip | None, *, in_loop: bool = False) -> int:
    graph = program.graph
    units = units_of(graph, chip, in_loop=in_loop, near=False) if CONVOLUTION in graph.kinds and chip else None
    found = sum([_kernel_bytes(graph, kernel, product, units, in_loop=in_loop) for kernel in program.kernels])
    bodies = [body for kernel in program.kernels for body in kernel.bodies]
    return found + sum([_kernels_bytes(body, product, chip, in_loop=True) for body in bodies])


def _kernel_bytes(graph: Graph, kernel: Kernel, product: ProductCode, units: Units | None, *, in_loop: bool) -> int:
    form = kernel.form
    if form is None or (units and any(graph.ops[op].kind == CONVOLUTION for op in kernel.ops)):
        return _bytes(graph, kernel, product, units, in_loop=in_loop)
    key = CODE_OF, product, in_loop
    found: int | None = form.get(key)
    if found is None:
        found = form[key] = _bytes(graph, kernel, product, units, in_loop=in_loop)
    return found


def _bytes(graph: Graph, kernel: Kernel, product: ProductCode, units: Units | None, *, in_loop: bool) -> int:
    kinds = {graph.ops[op].kind for op in kernel.ops}
    if not kinds.isdisjoint(WRITTEN_OUT) and (
        found := [op for op in map(graph.ops.__getitem__, kernel.ops) if is_written_out(op)]
    ):
        return sum(code_bytes_of(graph, op) for op in found)
    convolutions = [op for op in map(graph.ops.__getitem__, kernel.ops) if op.kind == CONVOLUTION]
    is_whole = bool(convolutions) and all(_is_of_many(graph, op) for op in convolutions)
    to_product = SUM_TO_PRODUCT if is_whole and _leaves_sums(graph, kernel) else RESULT_TO_PRODUCT
    further = int(to_product * product.num_bytes)
    more = _more_bytes(graph, kernel, further, multiplies=not kinds.isdisjoint(PRODUCTS))
    if convolutions:
        widening = _widening_bytes(convolutions, units) if units and units.is_near else 0
        return widening + _convolution_bytes(graph, kernel, convolutions, product, units, more, in_loop=in_loop)
    if "dot_general" in kinds:
        return more + usual_bytes(graph, kernel, product)
    if kernel.bodies or kinds == {ALLOCATE}:
        return LOOP_BYTES if kernel.bodies else 0
    if kinds & INDEXED:
        return more + max(_indexed_bytes(graph, graph.ops[op], product) for op in kernel.ops)
    if kinds.intersection(KINDS):
        return COLLECTIVE_BYTES
    return more + (REDUCTION_BYTES if kinds & REDUCTIONS else OTHER_KERNEL_BYTES)


def _indexed_bytes(graph: Graph, op: Op, code: ProductCode) -> int:
    """The code of a lookup, of what adds to rows, or of a sort; none of another operation."""
    if op.kind in (SORT, TOP_K):
        return SORT_BYTES if op.kind == SORT else TOP_BYTES
    if op.kind == GATHER:
        is_apart = code.offloads_gathers and is_looked_up_apart(graph, op)
        return TAKEN_ELSEWHERE_BYTES if is_apart else GATHER_BYTES
    if op.kind == SCATTER:
        table, found = graph.values[op.operands[0]], op.operands[len(op.results) : len(op.results) + 1]
        count = max((size for value in found for size in graph.shape(value)[:-1]), default=1)
        is_sorted = count >= SORTED_FROM and table.num_bytes >= SORTED_TABLE_BYTES
        return SORTED_SCATTER_BYTES if is_sorted else SCATTER_BYTES
    return 0


def _more_bytes(graph: Graph, kernel: Kernel, further: int, *, multiplies: bool) -> int:
    """What a kernel's results but the first add, ``further`` each at most: a slice that is put into a stack, and all
    that nothing is multiplied for, as much as its registers.
    """
    if len(kernel.writes) < 2:
        return 0
    put = {op.results[0]: op.operands[1] for op in map(graph.ops.__getitem__, kernel.ops) if op.kind == UPDATE}
    return sum(
        further
        if multiplies and value not in put
        else min(further, REGISTER_BYTES * _registers(graph.values[put.get(value, value)]))
        for value in kernel.writes[1:]
    )


def _registers(value: Value) -> int:
    return -(-value.num_elements // VECTOR_ELEMENTS)


def _convolution_bytes(
    graph: Graph,
    kernel: Kernel,
    convolutions: Sequence[Op],
    product: ProductCode,
    units: Units | None,
    more: int,
    *,
    in_loop: bool,
) -> int:
    """The code of a kernel that convolves; ``more`` are further results."""
    to_product = COMMON_TO_PRODUCT if units and units.has_common else CONVOLUTION_TO_PRODUCT
    is_square = all(is_of_one_place(graph, op) for op in convolutions)
    if not is_square:
        apart = any(int(op.attributes.get("feature_group_count", 1)) > 1 for op in convolutions)
        looped = product.looped if in_loop else 1.0
        usual = more + int(looped * (1.0 if apart else to_product) * product.num_bytes)
    elif in_loop:
        usual = more + _looped_bytes(graph, kernel, convolutions, product)
    else:
        usual = more + (
            int(LARGEST_PRODUCT * product.num_bytes)
            if units is not None and units.is_near
            else usual_bytes(graph, kernel, product)
        )
    if units is None:
        return usual
    cycles = sum(map(units.cycles, convolutions))
    if not units.is_near:
        least = more + LEAST_CONVOLUTION_BYTES + int(FIRST_WINDOW_BYTES * cycles)
        return usual if is_square or in_loop else min(usual, least)
    is_of_many = all(_is_of_many(graph, op) for op in convolutions)
    if not (units.has_common or in_loop) and is_of_many:
        each = WHOLE_SQUARE_BYTES if is_square else WHOLE_WINDOW_BYTES
        return min(usual, more + LEAST_CONVOLUTION_BYTES + int(each * math.sqrt(cycles)))
    if in_loop and units.has_common and not (is_square or is_of_many):
        return more + LEAST_WINDOW_BYTES + int(COMMON_LOOPED_BYTES * math.sqrt(cycles))
    if not (is_square or in_loop):
        most = more + (usual - more) * (MOST_TO_USUAL if units.has_common or units.edge >= WIDE_EDGE else 1)
        return min(most, more + LEAST_WINDOW_BYTES + int(_root_bytes(convolutions, units) * math.sqrt(cycles)))
    each = SQUARE_BYTES if is_square else WINDOW_BYTES
    return min(usual, LEAST_CONVOLUTION_BYTES + int(each * cycles))


def _looped_bytes(graph: Graph, kernel: Kernel, convolutions: Sequence[Op], product: ProductCode) -> int:
    """What windows of one place take in a loop."""
    if all(is_gradient_of_kernel(graph, op) for op in convolutions):
        return LOOPED_GRADIENT_BYTES
    fills = any(graph.ops[number].kind == UPDATE for number in kernel.ops)
    return int((FILLING_TO_PRODUCT if fills else LOOPED_TO_PRODUCT) * product.num_bytes)


def _root_bytes(convolutions: Sequence[Op], units: Units) -> int:
    """What windows of several places of few images take for the root of their cycles, outside of loops."""
    is_wide = units.edge >= WIDE_EDGE
    if any(math.prod(op.attributes.get("lhs_dilation", ())) > 1 for op in convolutions):
        return WIDE_GAPS_BYTES if is_wide else GAPS_BYTES
    root = COMMON_ROOT if units.has_common else WIDE_ROOT if is_wide else NARROW_ROOT
    return root.moving if any(map(moves_on, convolutions)) else root.still


def _widening_bytes(convolutions: Sequence[Op], units: Units) -> int:
    """The code of what widens parts of images for convolutions: whole images are written out, larger ones are not."""
    each = WIDENED_BYTES if units.edge >= WIDE_EDGE else WIDENED_BYTES * NARROW_WIDENED
    return int(each * sum(map(units.widened, convolutions)))


def _is_of_many(graph: Graph, op: Op) -> bool:
    """Whether a convolution is of so many images that they fill registers."""
    (value, image), *_ = images_of(graph, op)
    return graph.shape(value)[image.batch] >= ROWS


def _leaves_sums(graph: Graph, kernel: Kernel) -> bool:
    """Whether all that a kernel leaves but one array are sums over that."""
    sizes = sorted(graph.values[value].num_elements for value in kernel.writes)
    return len(sizes) > 1 and sizes[-1] > LEAST_SUMMED * sizes[-2]


def usual_bytes(graph: Graph, kernel: Kernel, usual: ProductCode) -> int:
    """The code of a kernel that multiplies: the more it multiplies, up to a limit."""
    flops = sum(matrix_flops(graph, graph.ops[op]) for op in kernel.ops)
    wide = usual.wide if usual.wide > 1 and flops > WIDE_FROM_FLOPS and _is_wide(graph, kernel) else 1.0
    narrow = min(LARGEST_PRODUCT * usual.num_bytes, GFLOP_BYTES * (flops / 1e9) ** GROWTH)
    return max(LEAST_PRODUCT_BYTES, int(wide * narrow)) * (COMPLEX_PASSES if _is_complex(graph, kernel) else 1)


def _is_complex(graph: Graph, kernel: Kernel) -> bool:
    """Whether a kernel multiplies complex numbers: three products (v5e: of 4096 x 4096 1.26 MiB)."""
    if all(graph.values[value].dtype not in COMPLEX for value in kernel.reads):
        return False
    products = (graph.ops[op] for op in kernel.ops if graph.ops[op].kind == "dot_general")
    return any(graph.values[op.operands[0]].dtype in COMPLEX for op in products)


def _is_wide(graph: Graph, kernel: Kernel) -> bool:
    """Whether a kernel reads or writes matrices of float32."""
    values = (graph.values[value] for value in (*kernel.reads, *kernel.writes))
    return any(each.dtype == "f32" and len(each.shape) > 1 for each in values)


def least_code_bytes(flops: Iterable[float], loops: int) -> int:
    """What a program takes at least, the compiled one too, that has so many loops and whose products compute so many
    FLOPs each on a device.
    """
    return sum(map(_sure_bytes, flops)) + SURE_LOOP_BYTES * loops


def _sure_bytes(flops: float) -> int:
    if flops < SURE_FLOPS:
        return SURE_PRODUCT_BYTES
    return int(SURE_PART * GFLOP_BYTES * (min(flops, MOST_SURE_FLOPS) / 1e9) ** GROWTH)
