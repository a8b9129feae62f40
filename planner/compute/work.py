"""What a kernel has to do, counted: multiply-adds, vector operations, bytes; no chip's speed in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from ...dsl.records import record
from ..fusion.nature import (
    ALLOCATE,
    ELEMENTWISE,
    GROUPED,
    JOIN,
    MULTIPLYING,
    REDUCE,
    SLICE,
    UPDATE,
    VIEWS,
    is_padded,
    stands_alone,
)
from ..graph import Graph, Op, Value
from ..kernels import Kernel
from ..kinds import BETWEEN_PARTS, IN_ORDER, ROWS, TILE_ROWS, TURNED_COPY
from .demand import demanded, needed_of
from .products import Product, product_of
from .sides import sides_of
from .written_out import WrittenOut, written_out_of

LANES, SUBLANES, WORD_BYTES = 128, 8, 4
REGISTER_ELEMENTS = LANES * SUBLANES
# How many vector operations one of these takes: what the compiler expands it to, roughly.
EXPANSIONS = {
    "exponential": 8, "exponential_minus_one": 10, "log": 12, "log_plus_one": 12, "tanh": 12, "logistic": 10,
    "sqrt": 6, "rsqrt": 5, "divide": 8, "power": 20, "sine": 30, "cosine": 30, "erf": 20, "erfc": 60, "erf_inv": 30,
    "remainder": 12, "atan2": 30, "cbrt": 10, "tan": 150, "lgamma": 230, "digamma": 400,
}  # fmt: skip
VECTOR_OPERATIONS = 2
"""What a product by a vector takes for each number: the compiler multiplies and adds up, as any fused operations."""
RANKING = 20
"""What finding the place of the largest takes for each number: several comparisons and choices, seen on v3 to v6e."""
NO_WORK = VIEWS | {ALLOCATE}
RUNNING = "reduce_window"
BLOCK, BLOCK_PASSES, PASSES = 128, 1.5, 4.5
"""How many numbers one window adds up, how often a running sum of no more goes over what it reads and writes, and a
longer one, which adds the blocks' sums in another layout: seen on v4 and v5p.
"""
PIECES = "pieces"
HALF_BITS = 16
SEVERAL = 2
TWO_PARTS = 23.0
"""Cycles a register of putting two halves of float32 together on v3, which the others' are counted by."""
FREE, LOOP, PRODUCT, ALONE = "free", "loop", "product", "alone"


@record(frozen=True, slots=True, kw_only=True)
class Work:
    """What a kernel has to do. ``kind`` is that of its cost: ``loop``, ``product``, ``alone`` or ``free``.

    ``reads`` and ``writes`` are the bytes, padded to tiles, of each value it takes from memory and leaves there.
    ``sides`` says on which side of a product each read stands.
    ``spill_bytes`` is what it goes through without keeping it: the full-size result that a reduction adds up or that
    is rounded to a narrower dtype. ``registers`` are vector operations, 1024 numbers each, ``joined`` the registers in
    which arrays are put together. ``result_bytes`` are those of a product of the batch, as float32. ``passes`` is how
    often what stands alone goes over its bytes.
    ``written_out`` says how often what is written out goes over its bytes.
    ``copied`` says that pieces are only put in another order, ``moved`` that they stay in theirs. ``rows`` are those of
    128 numbers that are put into registers one by one. ``turns`` says that an image is put together of its parts, or
    parted. ``windowed`` says that the maximum of each row is taken away from it, in a window as large as the row.
    ``few_row_tiles`` are tiles of two or four rows that are moved one by one; where they are ``rows`` too, many of what
    is near are put into registers as rows are. The compiler gives cycles for what ``is_counted``.
    """

    kind: str
    products: tuple[Product, ...] = ()
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    sides: tuple[int, ...] = ()
    spill_bytes: int = 0
    registers: float = 0.0
    joined: float = 0.0
    space_bytes: int = 0
    single: bool = False
    flops: float = 0.0
    result_bytes: float = 0.0
    passes: float = 1.0
    copied: bool = False
    moved: bool = False
    turns: bool = False
    windowed: bool = False
    rows: float = 0.0
    few_row_tiles: float = 0.0
    written_out: WrittenOut | None = None
    is_counted: bool = True


def work_of(graph: Graph, kernel: Kernel) -> Work:
    """Counts the work of a kernel of this graph."""
    ops = [graph.ops[number] for number in kernel.ops]
    real = [op for op in ops if op.kind not in NO_WORK]
    if not real or kernel.bodies or is_small(graph, kernel):
        return Work(kind=FREE)
    first = real[0].attributes
    rows = rows_of(graph.values[kernel.reads[0]]) if ROWS in first else 0.0
    if ROWS in first and PIECES not in first:
        return only_rows(rows)
    need = demanded(graph, ops, kernel.writes)
    met = tuple(product_of(graph, op) for op in real if op.kind in MULTIPLYING)
    products, summed = of_squares(met)
    space = max(summed, *[_gone_through(op, need) for op in real])
    growth = _growth(graph, real[0]) if len(real) == 1 else 1.0
    made = written(graph, kernel, real)
    tiles = tiles_of_few_rows(graph, real[0]) if len(real) == 1 else 0.0
    return Work(
        kind=LOOP if summed else kind_of_cost(real),
        products=products,
        reads=tuple(int(_part(graph.values[v], need.get(v, 0)) * growth) for v in kernel.reads),
        writes=tuple(int(padded_bytes(value) * growth) for value in made),
        sides=sides_of(graph, ops, kernel.reads) if products else (),
        spill_bytes=int(spilled(made, space, bool(products)) * growth),
        registers=sum([_registers(op, need) for op in real]) + VECTOR_OPERATIONS * summed / REGISTER_ELEMENTS,
        joined=sum(joined_registers(graph, op, alone=len(real) == 1) for op in real if op.kind == JOIN),
        space_bytes=space * WORD_BYTES,
        single=len(real) == 1
        and not met
        and real[0].kind not in (SLICE, UPDATE, JOIN)
        and not is_moved(real)
        and BETWEEN_PARTS not in first,
        flops=sum(2.0 * each.multiply_adds for each in met),
        result_bytes=max((4.0 * each.rows * each.columns for each in products), default=0.0),
        passes=passes_of(graph, real),
        copied=is_copied(real),
        moved=is_moved(real),
        turns=len(real) == 1 and BETWEEN_PARTS in first and real[0].kind != REDUCE,
        windowed=not met and takes_away_most(ops),
        rows=rows or tiles,
        few_row_tiles=tiles,
        written_out=written_out_of(graph, real) if len(real) == 1 else None,
        is_counted=all(op.kind != GROUPED for op in real),
    )


def tiles_of_few_rows(graph: Graph, op: Op) -> float:
    """The tiles of few rows in which an operation makes something, if it does."""
    rows = op.attributes.get(TILE_ROWS, 0)
    return graph.values[op.results[0]].num_elements / (rows * LANES) if rows else 0.0


def rows_of(value: Value) -> float:
    """The rows of a value's numbers that are put into tiles. Of narrow ones the compiler counts nothing."""
    return value.num_elements / LANES if value.bits >= 8 * WORD_BYTES else 0.0


def only_rows(rows: float) -> Work:
    """The work of putting rows into tiles for what takes pieces as they come."""
    return Work(kind=LOOP, reads=(0,), writes=(0,), rows=rows) if rows else Work(kind=FREE)


def is_copied(ops: Sequence[Op]) -> bool:
    """Whether a kernel of these operations only puts pieces in another order."""
    return len(ops) == 1 and ops[0].kind == TURNED_COPY


def is_moved(ops: Sequence[Op]) -> bool:
    """Whether a kernel of these operations copies numbers in their order, in windows as large as fused operations'."""
    return len(ops) == 1 and ops[0].kind == TURNED_COPY and IN_ORDER in ops[0].attributes


def takes_away_most(ops: Sequence[Op]) -> bool:
    """Whether a kernel of these operations finds the maximum of what it makes exponentials of."""
    made = set[int]()  # of maxima
    for op in ops:
        if op.kind == REDUCE and op.attributes.get("reducer") == "maximum":
            made.update(op.results)
        elif not made.isdisjoint(op.operands):
            if op.kind == "exponential":
                return True
            made.update(op.results)
    return False


def of_squares(products: tuple[Product, ...]) -> tuple[tuple[Product, ...], int]:
    """The products of a kernel, or if all are by vectors none, and the numbers that these multiply and add up.

    The compiler makes of them fused operations (a matrix by a vector, seen on v3, v4, v5e, v5p and v6e).
    """
    if all(each.vectors for each in products):
        return (), sum(each.vectors for each in products)
    return products, 0


def _growth(graph: Graph, op: Op) -> float:
    """How many times the bytes of a value its pieces have, where those are copied."""
    if PIECES not in op.attributes:
        return 1.0
    dim, count = op.attributes[PIECES]
    shape = graph.shape(op.operands[0])
    piece = (*shape[:dim], -(-shape[dim] // count), *shape[dim + 1 :])
    return float(count * padded_elements(piece) / padded_elements(shape))


def passes_of(graph: Graph, ops: Sequence[Op]) -> float:
    """How often what stands alone goes over its bytes: a running sum, whose window is all of a dim, several times."""
    for op in (op for op in ops if op.kind == RUNNING):
        for size, whole in zip(op.attributes["window_dimensions"], graph.shape(op.operands[0]), strict=True):
            if size >= whole > 1:
                return BLOCK_PASSES if size <= BLOCK else PASSES
    return 1.0


def kind_of_cost(ops: Sequence[Op]) -> str:
    """The kind of cost of a kernel of these operations."""
    if any(op.kind in MULTIPLYING for op in ops):
        return PRODUCT
    return ALONE if any(stands_alone(op) and op.kind != TURNED_COPY for op in ops) else LOOP


def padded_bytes(value: Value) -> int:
    """Bytes of a value in tiles, in the layout that wastes least: which dims are minor is the compiler's to choose."""
    return -(-padded_elements(value.shape) * value.bits // 8)


@lru_cache(maxsize=4096)
def padded_elements(shape: tuple[int, ...]) -> int:
    """Elements of a shape with one dim padded to whole lanes and another to whole sublanes."""
    large = sorted((size for size in shape if size > 1), reverse=True)
    if len(large) < 2:
        return round_up(large[0] if large else 1, LANES)
    count = math.prod(large)
    return min(
        count // (lane * sublane) * round_up(lane, LANES) * round_up(sublane, SUBLANES)
        for i, lane in enumerate(large)
        for j, sublane in enumerate(large)
        if i != j
    )


def round_up(size: int, to: int) -> int:
    """The least multiple of ``to`` that is no less."""
    return -(-size // to) * to


def is_small(graph: Graph, kernel: Kernel) -> bool:
    """Whether it works on single numbers: scalar code, which takes no time worth counting."""
    return all(graph.values[v].num_elements <= 1 for v in (*kernel.reads, *kernel.writes))


def _gone_through(op: Op, need: dict[int, int]) -> int:
    """Elements that an operation goes through: those of what is reduced, or of what is written over."""
    if op.kind == UPDATE:
        return need.get(op.operands[1], 0)
    made = needed_of(op, need)
    return max(made, need.get(op.operands[0], 0)) if op.kind == REDUCE else made


def written(graph: Graph, kernel: Kernel, ops: Sequence[Op]) -> list[Value]:
    """What a kernel of these operations writes; of what it updates in place, the update."""
    updates = {op.results[0]: op.operands[1] for op in ops if op.kind == UPDATE}
    return [graph.values[updates.get(value, value)] for value in kernel.writes]


def spilled(made: Sequence[Value], space: int, products: bool) -> int:
    """Bytes that a kernel that writes these goes through without keeping them (``Work.spill_bytes``), of so many
    elements.
    """
    whole = [value for value in made if 2 * value.num_elements >= space or products]
    narrow = max((padded_bytes(Value(value.shape, "f32")) for value in whole if value.bits < 32), default=0)
    return narrow if whole else space * WORD_BYTES


def _part(value: Value, elements: int) -> int:
    """The padded bytes of so many of a value's elements."""
    return padded_bytes(value) * elements // max(value.num_elements, 1)


def _registers(op: Op, need: dict[int, int]) -> float:
    value, each = vector_operations(op)
    return each * need.get(value, 0) / REGISTER_ELEMENTS if each else 0.0


def joined_registers(graph: Graph, op: Op, *, alone: bool) -> float:
    """How many registers arrays are put together in, each counted as one of two halves of float32: every part is padded
    to the whole and the largest taken, which takes longer the more parts there are and the smaller the largest is.
    ``alone``, parts of whole tiles of rows are written to their places.

    Two, four and unequal parts of float32 take 23.0, 32.1 and 19.0 cycles a register on v3, 23.9, 32.8 and 19.4 on v5e,
    9.4, 12.9 and 7.7 on v5p; of bfloat16 20.8, 25.4 and 18.8 on v3.
    """
    whole = graph.values[op.results[0]]
    parts = [graph.shape(part)[op.attributes["dimension"]] for part in op.operands]
    if (alone and not is_padded(graph, op, SEVERAL)) or not whole.num_elements:
        return 0.0
    splits = math.log2(sum(parts) / max(parts))
    cycles = 14.4 + 2.3 * len(parts) + 4 * splits if whole.bits > HALF_BITS else 16.4 + 1.2 * len(parts) + 2 * splits
    return cycles / TWO_PARTS * padded_elements(whole.shape) / REGISTER_ELEMENTS


def vector_operations(op: Op) -> tuple[int, int]:
    """The value whose numbers an operation goes through, and how many vector operations it takes for each."""
    if op.kind == REDUCE:
        return op.operands[0], RANKING if len(op.results) > 1 else 1
    return (op.results[0], EXPANSIONS.get(op.kind, 1)) if op.kind in ELEMENTWISE else (-1, 0)
