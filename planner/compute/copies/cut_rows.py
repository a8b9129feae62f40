"""Slices along the rows of an argument's tiles: whole tiles are read for them, however few of their rows are taken.

An argument lies with those dims on rows and lanes which waste least, two or four rows in tiles of so many. A slice
along its rows brings every tile that it touches. What keeps its form or only adds it up takes it in passing; where it
is to lie otherwise (a row of each that others read as a matrix, operands of products with more rows along another dim)
it is cut by a kernel of its own, which goes through its windows one by one, or where several are the argument is copied
whole to lie otherwise: seen on v3, v4, v5e, v5p and v6e, of float32 and bfloat16. A row of 8 of f32[1024,8,512], where
2 MB are left, takes 90592 cycles on v3, 95616 on v4, 130656 on v5e, one of 4 rows 72224 on v3 and 113600 on v5e; in
passing, to be added up, 77188 on v4 and 76772 on v5e.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import NamedTuple

from ...fusion.nature import VIEWS
from ...graph import Graph, Op, Value
from ...kernels import PRODUCTS, Kernel, Program
from ..coefficients import Coefficients
from ..cycles import cycles_of
from ..manner import FIRST, PAIRED, manner_of
from ..work import FREE, LANES, LOOP, PRODUCT, REGISTER_ELEMENTS, SUBLANES, WORD_BYTES, Work, padded_elements, round_up
from .turning import Side, sides_cycles

CUT, RESHAPE = "slice", "reshape"
BEGIN, END = "start_indices", "limit_indices"

WHOLE_BYTES = 7_100_000
"""How much a slice reads and leaves that passes as one window, seen on v4 and v5e."""


class Rows(NamedTuple):
    """The elements of the tiles that a slice reads, of those it fills as the whole lies, and of the registers;
    ``filled`` is how often a tile of the whole fits into a register.
    """

    read: int
    laid: int
    held: int
    filled: float


class CutRows:
    """The slices of a step's arguments, ``given``, along their rows, as its kernels are gone through, and ``wholes``,
    what they are of; those that are cut along ``lanes``, too, are gone through as these are. Of kernels priced
    ``apart`` from others no slice stands alone, which several may share.
    """

    def __init__(
        self,
        program: Program,
        of: Coefficients,
        given: Collection[int],
        *,
        apart: bool,
        lanes: Collection[int] = (),
    ) -> None:
        self._graph, self._of, self._apart, self._lanes = program.graph, of, apart, lanes
        self._least = least = 2 if manner_of(of) is FIRST else 1
        self._takes_whole = manner_of(of) is PAIRED or not of.near_read_share
        ops = [op for op in program.graph.of_kind(CUT) if op.operands[0] in given and BEGIN in op.attributes]
        found = {op.results[0]: (op, rows_cut(program.graph, op, least)) for op in ops}
        self._cuts = {part: (op, rows) for part, (op, rows) in found.items() if rows is not None}
        self.wholes = frozenset(op.operands[0] for op, _ in self._cuts.values())
        self._done = set[tuple[object, ...]]()
        self._alone = dict[int, set[tuple[object, ...]]]()
        for kernel in () if apart else program.kernels:
            for op, _ in self._parts(kernel):
                if self._stands_alone(kernel, op):
                    self._alone.setdefault(op.operands[0], set()).add(_key(op))

    def cycles(self, kernel: Kernel) -> tuple[float, frozenset[int]]:
        """What cutting by kernels of their own takes for a kernel that is the first to need it, or turning an argument
        of which several slices are needed so, and the arguments whose parts it has at hand.
        """
        took, near = 0.0, set[int]()
        for op, rows in () if self._apart or self.only_cuts(kernel) else self._parts(kernel):
            if _key(op) not in self._alone.get(op.operands[0], ()):
                continue
            near.add(op.operands[0])
            is_turned = len(self._alone[op.operands[0]]) > 1
            key = _key(op)[:1] if is_turned else _key(op)
            if key not in self._done:
                took += self._turning(op) if is_turned else self._cutting_cycles(op, rows)
                self._done.add(key)
        return took, frozenset(near)

    def only_cuts(self, kernel: Kernel) -> bool:
        """Whether a kernel leaves such a part and nothing else."""
        return bool(self._cuts) and all(self._graph.ops[number].kind in VIEWS | {CUT} for number in kernel.ops)

    def through_tiles(self, kernel: Kernel, work: Work, near: Collection[int]) -> Work:
        """The work of a kernel that cuts in passing: it goes through all tiles that the slice touches."""
        if work.kind == FREE or not any(True for _ in self._parts(kernel)):
            return work
        if self.only_cuts(kernel):
            return max((self._cutting(*each) for each in self._parts(kernel)), key=lambda cut: cut.space_bytes)
        reads, growth = dict[int, int](), 1.0
        for op, rows in self._parts(kernel):
            whole, part = (self._graph.values[value] for value in (op.operands[0], op.results[0]))
            if op.operands[0] not in near and op.results[0] not in self._lanes:
                reads[op.operands[0]] = max(reads.get(op.operands[0], 0), rows.read * whole.bits // 8)
                growth = max(growth, rows.held / padded_elements(part.shape))
        if not reads:
            return work
        sizes = zip(kernel.reads, work.reads, strict=True)
        read = tuple(max(size, reads.get(value, 0)) for value, size in sizes)
        if work.kind == PRODUCT:
            return replace(work, reads=read)
        space = int(work.space_bytes * growth)
        spilled = max(work.spill_bytes * growth, space if growth > 1 else 0)
        return replace(work, reads=read, space_bytes=space, spill_bytes=int(spilled), registers=work.registers * growth)

    def _parts(self, kernel: Kernel) -> Iterator[tuple[Op, Rows]]:
        for number in kernel.ops if self._cuts else ():
            results = self._graph.ops[number].results
            if results and results[0] in self._cuts:
                yield self._cuts[results[0]]

    def _stands_alone(self, kernel: Kernel, op: Op) -> bool:
        """Whether a kernel needs a slice to lie otherwise than it is cut: a product of more rows along another dim, but
        where whole tiles become rows of a matrix, or what is computed of one row.
        """
        values, ops = self._graph.values, [self._graph.ops[number] for number in kernel.ops]
        part = values[op.results[0]]
        dim, lanes = tiled(values[op.operands[0]], self._least) or (0, 0)
        if any(each.kind in PRODUCTS for each in ops):
            others = [size for at, size in enumerate(part.shape) if at not in (dim, lanes)]
            is_merged = any(each.kind == RESHAPE and each.operands[0] in op.results for each in ops)
            return part.shape[dim] < max(others, default=0) and not (is_merged and part.shape[dim] % SUBLANES == 0)
        keeps = any(2 * values[value].num_elements >= part.num_elements for value in kernel.writes)
        return keeps and part.shape[dim] == 1

    def _turning(self, op: Op) -> float:
        """Cycles of copying an argument whole to lie with another dim on rows."""
        whole = self._graph.values[op.operands[0]]
        rows, lanes = tiled(whole, self._least) or (0, 0)
        read = _laid(whole, rows, lanes, self._least)
        made = padded_elements(whole.shape)
        one, other = (Side(each / REGISTER_ELEMENTS, each * WORD_BYTES) for each in (read, made))
        is_near = made * whole.bits // 8 <= self._of.held_near_bytes
        return sides_cycles(one, other, self._of, read_near=False, made_near=is_near)

    def _cutting_cycles(self, op: Op, rows: Rows) -> float:
        """Cycles of a slice that others than the step read."""
        work = self._cutting(op, rows)
        is_near = work.writes[0] <= self._of.held_near_bytes
        return cycles_of(work, (False,), (is_near,), LANES, self._of).total

    def _cutting(self, op: Op, rows: Rows) -> Work:
        """The work of a slice by itself, taken whole if it may be: what is read counts as it lies on v5p and v6e, as
        whole registers beside what is left on v4 and v5e.
        """
        whole, part = (self._graph.values[value] for value in (op.operands[0], op.results[0]))
        read, space = rows.read * whole.bits // 8, rows.held * WORD_BYTES
        in_words = part.bits >= 8 * WORD_BYTES and rows.laid == rows.held
        return Work(
            kind=LOOP,
            reads=(read,),
            writes=(rows.laid * part.bits // 8,),
            spill_bytes=0 if in_words else space,
            space_bytes=1 if self._is_whole(rows, read, rows.laid * part.bits // 8) else space,
            single=True,
        )

    def _is_whole(self, rows: Rows, read: int, left: int) -> bool:
        """Whether a slice passes as one window."""
        if self._takes_whole:
            return read <= self._of.whole_bytes
        return bool(self._of.whole_bytes) and int(read * rows.filled) + left <= WHOLE_BYTES


def _key(op: Op) -> tuple[object, ...]:
    return op.operands[0], op.attributes[BEGIN], op.attributes[END]


def rows_cut(graph: Graph, op: Op, least: int) -> Rows | None:
    """What a slice along rows goes through, of tiles of ``least`` rows at least, if that is more than its own: of a
    matrix it is one tile more at most, which is nothing (s32[2,2048] takes 0.51 us on v3, 1.35 us on v5e as without).
    """
    whole, part = (graph.values[value] for value in (op.operands[0], op.results[0]))
    if any(step > 1 for step in op.attributes.get("strides", ())):
        return None
    dims = tiled(whole, least)
    if dims is None or part.shape[dims[0]] == whole.shape[dims[0]]:
        return None
    rows, lanes = dims
    tall, made = (_height(value.shape[rows], value.bits, least) for value in (whole, part))
    outer = math.prod(size for dim, size in enumerate(part.shape) if dim not in dims)
    if outer == 1:
        return None
    wide = round_up(part.shape[lanes], LANES)
    read = outer * _touched(op, part, rows, tall) * wide
    laid, held = (outer * round_up(part.shape[rows], high) * wide for high in (made, SUBLANES))
    return Rows(read, laid, held, SUBLANES / tall) if read > padded_elements(part.shape) else None


def tiled(value: Value, least: int) -> tuple[int, int] | None:
    """The dims on rows and lanes of what lies as it wastes least, as it comes if it can."""
    shape = value.shape
    dims = [dim for dim in reversed(range(len(shape))) if shape[dim] > 1]
    pairs = [(rows, lanes) for lanes in dims for rows in dims if rows != lanes]
    return min(pairs, key=lambda pair: _laid(value, pair[0], pair[1], least), default=None)


def _laid(value: Value, rows: int, lanes: int, least: int) -> int:
    shape = value.shape
    others = math.prod(size for dim, size in enumerate(shape) if dim not in (rows, lanes))
    return others * round_up(shape[rows], _height(shape[rows], value.bits, least)) * round_up(shape[lanes], LANES)


def _height(rows: int, bits: int, least: int) -> int:
    """The rows of a tile: eight, or the power of two that holds fewer."""
    packed = max(8 * WORD_BYTES // max(bits, 1), 1)
    return min(SUBLANES, max(least * packed, 1 << max(rows - 1, 0).bit_length()))


def _touched(op: Op, part: Value, dim: int, tall: int) -> int:
    """The rows of the tiles that a slice touches."""
    first, last = (int(op.attributes[name][dim]) for name in (BEGIN, END))
    if last - first != part.shape[dim]:
        first, last = 0, part.shape[dim]
    return round_up(last, tall) - first // tall * tall
