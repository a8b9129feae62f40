"""Cycles of a kernel: the slowest of the matrix units, the vector units and memory, and what starting windows takes.

The form is that of the compiler's own estimate, which is linear where memory decides (seen by varying one thing at a
time): every value read or written costs its bytes, a full-size result that is only added up or rounded costs as if it
were written too, and each window waits once for memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from .coefficients import Coefficients
from .copies.turning import Side, sides_cycles
from .sides import LEFT, ONCE, RIGHT
from .windowed import windowed_cycles
from .work import ALONE, FREE, PRODUCT, REGISTER_ELEMENTS, WORD_BYTES, Work

MATRIX, VECTOR, MEMORY = "matrix", "vector", "memory"

LEAST_START = 200.0
"""Cycles of starting a kernel that moves next to nothing, seen on v3."""

HIDDEN = 0.15
"""What of an update that takes longer than the product before it goes on meanwhile, seen on v3 and v5e.

Where starting a product is known by what it reads and leaves, an update behind it takes what it moves and no more: on
v5p f32[512,1024] of 2048 under Adam, all read near, 13236 cycles, of which 8188 multiply and 3982 write; on v6e
f32[1024,4096] of 1024 70833, of which 16375 and 53708, on v5e the same of 512 93484, of which 32703 and 61380. Each of
what it reads from memory waits as an operand does: two of f32[2048,512] of 256 on v5p 18025, of which 2047 and 10618.
"""

NEAR_START = 0.45
"""What of a kernel's start a product takes that reads and leaves all in vector memory, seen on v6e."""

UNITED = 0.15
"""What of the shorter one of computing and waiting for memory comes on top of the longer one, seen on v4 and later."""

UPDATED = 3
"""The results of an update behind a product of which none takes time where one is near, if near reads take none (v6e:
weights near, 67 MB each of what is kept of gradients read and written in the 77617 cycles that reading alone takes).
"""

FEW_ROWS, FEW_SHARE = 1024, 0.5
"""How few numbers that lie in rows are put into registers several at a time, and what of their cycles that takes: on
v5e f32[16,1,8192] 11.4 a row, f32[16,1,16384] 23.6; on v5p and v6e twice as many still take a third.
"""

FEW_TILES = 2048
"""How many tiles of two or four rows are moved one by one, more of what is near being put in as rows are: masks of two
experts a device in 2048 take 13638 cycles on v6e, of four in 4096 85792 (6720 of 512 and 92384 of 4096 on v5e).
"""

SPILLED, CONVOLVED, COMPUTED, MOST_KEPT = 1.13, 0.37, 0.25, 4
"""What a convolution takes of what it goes through without keeping it where it waits for that, and what of the matrix
and of the vector units' work comes on top: seen on v5e and v5p, of 8 images of 7 to 56 rows that leave sums beside them
(v5e: 64 to 256 features of 3136 places 62828 cycles, of which 47040 for what is summed, 256 to 1024 of 196 20050, of
which 11760). And how many times as long as for that it waits for memory at most.
"""

UNHIDDEN, UNHIDDEN_LATER = 0.55, 0.2
"""What of the vector units' work goes on while no product does, seen on v3, and on v5e: where both take long."""


class Cycles(NamedTuple):
    """What a kernel takes, in cycles, and which unit it waits for longest. ``far_bytes`` cross to or from memory."""

    total: float
    bound: str
    far_bytes: int


def cycles_of(work: Work, near: Sequence[bool], near_writes: Sequence[bool], edge: int, of: Coefficients) -> Cycles:
    """Cycles of a kernel, given which of its reads and writes are in vector memory."""
    if work.kind == FREE:
        return Cycles(total=0.0, bound=MEMORY, far_bytes=0)
    left = at_hand = 0  # in a common memory, as slow as the large one but for what products read, and slower to write
    if of.common_bytes:
        at_hand = sum(size for size, is_near in zip(work.reads, near, strict=True) if is_near)
        left = sum(size for size, is_near in zip(work.writes, near_writes, strict=True) if is_near)
        makes_image = _convolves(work) and MOST_KEPT * work.spill_bytes >= sum(work.reads)
        near = near if _is_product_of_matrices(work) or makes_image else [False] * len(near)
        near_writes = near_writes if makes_image else [False] * len(near_writes)
    if work.kind == PRODUCT and len(work.writes) >= UPDATED and any(near_writes) and not of.near_read_share:
        near_writes = [True] * len(near_writes) if _behind(work, near, near_writes) else near_writes
    far_reads = sum([size for size, is_near in zip(work.reads, near, strict=True) if not is_near])
    far_writes = sum([size for size, is_near in zip(work.writes, near_writes, strict=True) if not is_near])
    if work.kind == ALONE and work.written_out:
        total = work.written_out.total(sum(work.reads) + sum(work.writes), of.byte_cycles, of.near_total_bytes)
        return Cycles(total=total, bound=MEMORY, far_bytes=far_reads + far_writes)
    if work.kind == ALONE:
        total = work.passes * (sum(work.reads) + far_writes) * of.byte_cycles
        return Cycles(total=total, bound=MEMORY, far_bytes=far_reads + far_writes)
    if work.kind == PRODUCT:
        convolves = _convolves(work)
        if work.spill_bytes and not (far_writes or of.near_read_share or convolves):
            work = replace(work, spill_bytes=0)
        if convolves and (of.near_total_bytes or of.common_bytes) and max(work.writes) >= work.spill_bytes:
            work = replace(work, spill_bytes=0)  # what is rounded is written itself
        behind = _behind(work, near, near_writes)
        if of.scoped_bytes and not _batch(work) and all(each.windows is None for each in work.products):
            waits, is_cut = windowed_cycles(work, near, near_writes, behind, of), True
        else:
            is_cut = bool(of.scoped_bytes) and not _batch(work)
            moved = _streamed(work, near, of) + far_writes - behind
            waits = (moved + work.spill_bytes) * of.byte_cycles
            waits += of.wait_cycles * moved / of.scoped_bytes if is_cut else 0.0
        waits += 0.0 if behind else of.common_write_cycles * left
        start = _product_start(work, near, near_writes, behind, of)
        besides = of.product_read_cycles * min(_far_besides(work, near), 2) if behind else 0.0
        return _product(work, waits, far_reads + far_writes, behind, edge, of, start, besides, is_cut=is_cut)
    if work.moved and any(near) != any(near_writes) and not of.common_bytes:
        return Cycles(total=0.0, bound=MEMORY, far_bytes=far_reads + far_writes)  # moved in passing: nothing is counted
    if work.turns:
        read, made = _side(sum(work.reads)), _side(sum(work.writes))
        total = sides_cycles(read, made, of, read_near=all(near), made_near=all(near_writes))
        return Cycles(total=total, bound=MEMORY, far_bytes=far_reads + far_writes)
    if work.rows and of.row_cycles and not _moves_tiles(work, far_reads - at_hand):
        total = work.rows * of.row_cycles * (FEW_SHARE if work.rows <= FEW_ROWS else 1.0)
        return Cycles(total=total, bound=VECTOR, far_bytes=far_reads + far_writes)
    if work.few_row_tiles and of.few_rows_cycles:
        total = work.few_row_tiles * of.few_rows_cycles + of.start_cycles + of.step_cycles
        far = far_reads + far_writes - (at_hand + left if work.rows else 0)
        total += far * of.byte_cycles + (0.0 if work.rows else of.common_write_cycles * left)
        return Cycles(total=total, bound=VECTOR, far_bytes=far_reads + far_writes)
    return _loop(work, far_reads, far_writes, at_hand + left, of)


def _moves_tiles(work: Work, far_reads: int) -> bool:
    """Whether tiles of few rows are moved and not put together of rows: few of them, or from memory (v5p)."""
    return bool(work.few_row_tiles) and (work.few_row_tiles <= FEW_TILES or far_reads >= sum(work.writes))


def _side(num_bytes: int) -> Side:
    return Side(num_bytes / (WORD_BYTES * REGISTER_ELEMENTS), num_bytes)


def _is_product_of_matrices(work: Work) -> bool:
    return work.kind == PRODUCT and all(each.windows is None for each in work.products)


def _behind(work: Work, near: Sequence[bool], near_writes: Sequence[bool]) -> int:
    """Bytes of an update that follows a product in the same kernel: what it reads besides, and all results, if several.

    It begins when a piece of the product is complete, and the matrix units wait for it (``HIDDEN``).
    """
    if len(work.writes) < 2:
        return 0
    largest = max(work.writes)
    sided = zip(work.reads, near, work.sides, strict=True)
    besides = [(size, is_near) for size, is_near, side in sided if side == ONCE]
    if sum(2 * size >= largest for size in work.writes) < 2 or sum(size for size, _ in besides) < largest:
        return 0
    written = sum(size for size, is_near in zip(work.writes, near_writes, strict=True) if not is_near)
    return written + sum(size for size, is_near in besides if not is_near)


def _far_besides(work: Work, near: Sequence[bool]) -> int:
    """How many arrays as large as a result are read from memory beside a product."""
    largest = max(work.writes)
    sided = zip(work.reads, near, work.sides, strict=True)
    return sum(2 * size >= largest and side == ONCE and not is_near for size, is_near, side in sided)


def _streamed(work: Work, near: Sequence[bool], of: Coefficients) -> float:
    """Bytes that a product reads from memory: its operands once for each piece of the result that is added up at once.

    A result of p pieces, a by p/a of them, takes the left operand p/a times and the right one a times; a is what makes
    that least. An operand that is held whole, or lies in vector memory, lets the other be read once.
    """
    far, whole = [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]
    for size, is_near, side in zip(work.reads, near, work.sides, strict=True):
        whole[side] += size
        far[side] += 0 if is_near else size
    once, left, right = far
    pieces = work.result_bytes / of.tile_bytes
    if pieces <= 1 or min(whole[LEFT], whole[RIGHT]) <= of.held_bytes:
        return sum(far)
    if not left or not right:
        return sum(far)  # the other one costs nothing, however often it is read
    times = min(max(math.sqrt(pieces * left / right), 1.0), pieces)
    return once + left * pieces / times + right * times


def _loop(work: Work, far_reads: int, far_writes: int, common: int, of: Coefficients) -> Cycles:
    """Reads cost their bytes wherever they are (``near_read_share``): most compilers count them before they know.

    ``common`` are the bytes of a common memory, which may take longer than all together. What passes as one window is
    read before and written after (``whole_start_cycles``).
    """
    moved = sum(work.reads) + work.spill_bytes
    at_hand = (1 - of.near_read_share) * (sum(work.reads) - far_reads)
    memory = max((moved - at_hand + far_writes) * of.byte_cycles, common * of.common_cycles)
    vector = work.registers * of.register_cycles
    if not work.single:
        windows = _windows((moved + sum(work.writes)) / of.loop_window_bytes, of)
    elif work.space_bytes <= of.whole_bytes:
        windows = 1.0
    else:
        once = of.copied_window_bytes if work.copied else 0.0
        windows = _windows(work.space_bytes / (once or of.single_window_bytes), of)
    units = memory + vector if work.windowed else max(memory, vector)  # rows as a whole wait for memory
    total = units + windows * of.step_cycles + _start(moved + sum(work.writes), of)
    if of.whole_start_cycles:
        total = min(total, of.whole_start_cycles + memory + max(memory, vector))
    joining = work.joined * of.join_cycles  # waits for no window
    bound = VECTOR if max(vector, joining) > memory else MEMORY
    return Cycles(total=max(total, joining), bound=bound, far_bytes=far_reads + far_writes)


def _windows(filled: float, of: Coefficients) -> float:
    """How many windows wait that are ``filled`` one after the other: the share of one where fewer bytes start sooner.

    Seen on v3, on fused operations of 6 kB to 1.6 MB: the square root of what they fill of the only one.
    """
    return math.sqrt(filled) if of.start_bytes and filled < 1 else float(math.ceil(filled))


def _product(
    work: Work,
    memory: float,
    far: int,
    behind: int,
    edge: int,
    of: Coefficients,
    start: float,
    besides: float,
    *,
    is_cut: bool,
) -> Cycles:
    """A product that waits so many cycles for ``memory``, those for its windows included if it ``is_cut`` by them, and
    so many to ``start``, and ``besides`` for the first windows of what an update reads, but for what multiplying hides.
    """
    squares = sum(each.padded(edge) for each in work.products) * of.multiply_add_cycles
    matrix = max(squares, sum(each.load_cycles for each in work.products))
    apart = sum(each.vector_operations(of) for each in work.products)
    vector = (work.registers + apart) * of.register_cycles
    moved = sum(work.reads) + sum(work.writes)
    share = far / moved if moved and not is_cut else 0.0
    steps = math.ceil(moved / of.product_window_bytes) * (of.near_step_cycles + share * of.step_cycles)
    slowest = max(matrix, memory, vector)
    filled = of.batch_fills * _batch(work) * of.fill_bytes * of.byte_cycles
    fill = max(min(of.fill_share * far, of.fill_bytes) * of.byte_cycles, min(filled, max(matrix, vector), memory))
    if _starts_apart(work, of):
        fill = 0.0  # in what starting takes
    bound = MATRIX if slowest == matrix else VECTOR if slowest == vector else MEMORY
    after = behind * of.byte_cycles
    if behind and _starts_by_sides(work, behind, of):
        united = UNITED * min(max(matrix, vector), memory) if is_cut else 0.0
        total = slowest + united + after + start + besides * max(0.0, 1 - slowest / after)
        return Cycles(total=total, bound=MEMORY if after > slowest else bound, far_bytes=far)
    hidden = HIDDEN * max(0.0, after - slowest)
    units = max(slowest, _unhidden(work, matrix, vector, behind, of))
    units += UNITED * min(max(matrix, vector), memory) if is_cut else 0.0
    if is_cut and _convolves(work) and of.near_read_share:
        units = max(units, _convolved(work, memory, matrix, apart, of))
    total = units + after - hidden + fill + steps + start
    return Cycles(total=total, bound=MEMORY if after > slowest else bound, far_bytes=far)


def _convolved(work: Work, memory: float, matrix: float, apart: float, of: Coefficients) -> float:
    """Cycles of a convolution that waits for what it goes through without keeping it, none if that is little; ``apart``
    are vector operations for what squares make.
    """
    spilled = work.spill_bytes * of.byte_cycles
    if memory >= MOST_KEPT * spilled:
        return 0.0
    adds = any(each.windows is not None and each.windows.adds for each in work.products)
    computed = COMPUTED * work.registers + (1.0 if adds else COMPUTED) * apart
    return memory + (SPILLED - 1) * spilled + CONVOLVED * matrix + computed * of.register_cycles


def _unhidden(work: Work, matrix: float, vector: float, behind: int, of: Coefficients) -> float:
    """What the matrix and the vector units take together: not all that the vector units do goes on meanwhile.

    An update behind a product waits for it anyway.
    """
    if behind or any(each.windows is not None for each in work.products):
        return 0.0
    share = UNHIDDEN_LATER if of.near_total_bytes else UNHIDDEN
    return max(matrix, vector) + share * min(matrix, vector)


def _starts_apart(work: Work, of: Coefficients) -> bool:
    """Whether what starting a convolution takes is known, wherever what it works on is (v5e, v5p)."""
    return _convolves(work) and bool(of.product_start_cycles and of.near_read_share)


def _convolves(work: Work) -> bool:
    return any(each.windows is not None for each in work.products)


def _starts_by_sides(work: Work, behind: int, of: Coefficients) -> bool:
    """Whether what starting a product takes is known by what it reads and leaves: of batches only where an update is
    ``behind`` (v5p: experts f32[2,2048,512] under Adam take what f32[1,1024,2048] does).
    """
    known = of.product_start_cycles and (behind or not _batch(work))
    return bool(known) and all(each.windows is None for each in work.products)


def _product_start(
    work: Work, near: Sequence[bool], near_writes: Sequence[bool], behind: int, of: Coefficients
) -> float:
    """Cycles of starting a product: windows of both operands come before it multiplies, its last one leaves after that,
    where no update is ``behind``.

    Batches of products start as other kernels do, and convolutions but where what is near counts as if it were not
    (v5e, v5p): there they wait for one operand and for what they leave, wherever these are.
    """
    if _starts_apart(work, of):
        return of.product_start_cycles + of.product_read_cycles + max(of.product_write_cycles, of.product_round_cycles)
    if not _starts_by_sides(work, behind, of):
        is_near = all(near) and all(near_writes)
        return _start(sum(work.reads) + sum(work.writes), of) * (NEAR_START if is_near else 1.0)
    far = {side for side, is_near in zip(work.sides, near, strict=True) if not is_near}
    rounds = of.product_round_cycles if work.spill_bytes else 0.0
    left = rounds if all(near_writes) else 0.0 if behind else of.product_write_cycles
    return of.product_start_cycles + len(far & {LEFT, RIGHT}) * of.product_read_cycles + left


def _start(moved: int, of: Coefficients) -> float:
    """Cycles of starting a kernel that moves so many bytes: what the best number of windows leaves over.

    w windows of B bytes wait for B / w bytes before the first and a little for each, at best as the square root of B.
    """
    if moved >= of.start_bytes:
        return of.start_cycles
    least = min(LEAST_START, of.start_cycles)
    return least + (of.start_cycles - least) * math.sqrt(moved / of.start_bytes)


def _batch(work: Work) -> int:
    """How many products a batch has; none if it is one."""
    return max((each.batch for each in work.products if each.batch > 1 and each.windows is None), default=0)
