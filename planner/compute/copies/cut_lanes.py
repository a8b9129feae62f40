"""Parts of a step's arguments that do not fill the lanes which the whole fills: they are cut out as the whole lies.

An argument lies with that dim on the lanes which wastes least. Its part along this dim would lie otherwise, but a slice
keeps the layout: it goes through whole rows of lanes, however few of them it takes, and what meets other arrays of the
part's shape (results, other arguments, what products make) needs it the other way. There it is cut by a kernel of its
own and copied, once for all that read it. What only adds the part up or multiplies it cuts it in passing, and reads
whole rows of lanes. Seen on v3, v4, v5e, v5p and v6e, of float32 and bfloat16, with 8 to 192 of 128 to 1024 columns of
128 to 65536 rows: 64 of 256 columns of 16384 rows of float32 take 38708 and 29740 cycles on v3, 56977 and 17344 on v4,
22852 and 400 on v5e, 10732 and 7522 on v5p, 5768 and 400 on v6e. A slice that the step itself takes is brought near
while other kernels run if a row of lanes begins with it, and one number of each row is added up to lie with others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ...fusion.nature import ELEMENTWISE, PRODUCTS, SLICE, VIEWS
from ...graph import Graph, Op
from ...kernels import Kernel, Program
from ..coefficients import Coefficients
from ..cycles import cycles_of
from ..manner import PAIRED, manner_of
from ..work import LANES, LOOP, REGISTER_ELEMENTS, SUBLANES, WORD_BYTES, Work, padded_bytes, padded_elements, round_up
from .turning import Side, sides_cycles

KEEPING = ELEMENTWISE | VIEWS
CUT = "slice"

LEAST_ROOM, PAIRED_ROOM = 0.99, 1.25
"""How much of the vector memory that is given to values a part may take beside the whole: on v5e and v6e, on v5p."""


class Cut(NamedTuple):
    """The elements of a part laid as the whole lies, and those that are read for it: where a part may begin anywhere in
    a row of lanes, one more of these.
    """

    laid: int
    read: int


class CutLanes:
    """The ``parts`` of a step's arguments that lie otherwise than these, as its kernels are gone through."""

    def __init__(self, program: Program, of: Coefficients, edge: int) -> None:
        self._graph, self._of, self._edge = program.graph, of, edge
        graph, given = program.graph, frozenset(program.graph.arguments)
        ops = [op for op in graph.of_kind(SLICE, CUT) if op.operands[0] in given and _is_plain(op)]
        found = {op.results[0]: _cut_of(graph.shape(op.operands[0]), graph.shape(op.results[0])) for op in ops}
        self._cuts = {part: cut for part, cut in found.items() if cut is not None}
        self._wholes = {op.results[0]: op.operands[0] for op in ops}
        sliced = [(op, _lanes_of(graph, op)) for op in ops if "start_indices" in op.attributes]
        self._columns = {op.results[0] for op, lanes in sliced if graph.shape(op.results[0])[lanes] == 1}
        self._begins = {op.results[0] for op, lanes in sliced if op.attributes["start_indices"][lanes] % LANES == 0}
        self._multiplied = _only_multiplied(program) if self._cuts else frozenset[int]()
        parts = ((kernel, part) for kernel in program.kernels for part in self._parts(kernel))
        self._turned = {self._key(part) for kernel, part in parts if self._meets_others(kernel, part)}
        self._copied = dict[tuple[int, tuple[int, ...]], bool]()
        self.parts = self._cuts.keys()

    def cycles(self, kernel: Kernel) -> tuple[float, frozenset[int]]:
        """What cutting and copying take for a kernel that is the first to need it, and the arguments whose parts it has
        at hand.
        """
        took, near = 0.0, set[int]()
        for part in self._parts(kernel):
            key = self._key(part)
            if key in self._turned and key not in self._copied:
                cycles, self._copied[key] = self._copy(part, is_left=self.only_cuts(kernel))
                took += cycles
            if self._copied.get(key):
                near.add(self._wholes[part])
        return took, frozenset(near)

    def only_cuts(self, kernel: Kernel) -> bool:
        """Whether a kernel leaves such a part and nothing else."""
        ops = [self._graph.ops[number] for number in kernel.ops] if self._cuts else []
        return bool(ops) and all(op.kind in VIEWS or op.results[0] in self._cuts for op in ops)

    def through_rows(self, kernel: Kernel, work: Work) -> Work:
        """The work of a kernel that cuts in passing, and neither multiplies nor makes what products alone read: it goes
        through whole rows of lanes.
        """
        parts = {self._wholes[part]: part for part in self._parts(kernel) if self._key(part) not in self._turned}
        if not parts or work.kind != LOOP or self._multiplied.issuperset(kernel.writes):
            return work
        read = {whole: self._cuts[part].read * self._graph.values[part].bits // 8 for whole, part in parts.items()}
        sized = zip(kernel.reads, work.reads, strict=True)
        columns = sum(self._cuts[part].laid for part in parts.values() if part in self._columns)
        growth = max(self._cuts[part].laid / padded_elements(self._graph.shape(part)) for part in parts.values())
        return replace(
            work,
            reads=tuple([max(size, read.get(value, 0)) for value, size in sized]),
            spill_bytes=max(int(work.spill_bytes * growth), columns * WORD_BYTES),
            space_bytes=int(work.space_bytes * growth),
            registers=work.registers * growth,
        )

    def _key(self, part: int) -> tuple[int, tuple[int, ...]]:
        return self._wholes[part], self._graph.shape(part)

    def _parts(self, kernel: Kernel) -> Iterator[int]:
        for number in kernel.ops if self._cuts else ():
            results = self._graph.ops[number].results
            if results and results[0] in self._cuts:
                yield results[0]

    def _meets_others(self, kernel: Kernel, part: int) -> bool:
        """Whether what a kernel computes of a part number by number is left for others than products, or computed of
        another array that it reads.
        """
        values, passed = self._graph.values, {part}
        size = values[part].num_elements
        if part in self._columns and size == max(values[part].shape):
            return False  # numbers by themselves are added up to lie otherwise
        for op in map(self._graph.ops.__getitem__, kernel.ops):
            if op.kind in KEEPING and not passed.isdisjoint(op.operands):
                if any(value in kernel.reads and values[value].num_elements == size for value in op.operands):
                    return True
                passed.update(value for value in op.results if values[value].num_elements == size)
        return any(value in passed and value not in self._multiplied for value in kernel.writes)

    def _copy(self, part: int, *, is_left: bool) -> tuple[float, bool]:
        """Cycles of cutting a part out by a kernel of its own and of copying it, and whether it is then near, as what
        the step leaves is not, nor any copy on v5p. The copy takes what one of float32 does, whatever the dtype.
        """
        of, held, cut = self._of, self._graph.values[part], self._cuts[part]
        whole_bytes, num_bytes = padded_bytes(self._graph.values[self._wholes[part]]), cut.laid * held.bits // 8
        is_word = held.bits >= 8 * WORD_BYTES
        work = Work(
            kind=LOOP,
            reads=(cut.read * held.bits // 8,),
            writes=(num_bytes,),
            spill_bytes=0 if is_word else cut.laid * WORD_BYTES,
            space_bytes=cut.laid * WORD_BYTES,
        )
        is_near = _is_near(whole_bytes, num_bytes, of)
        fetched = is_near and whole_bytes <= of.near_total_bytes
        made_near = is_near and not is_left and manner_of(of) is not PAIRED
        is_left_near = is_near and (is_word or not of.common_bytes)
        cutting = cycles_of(work, (fetched,), (is_left_near,), self._edge, of).total
        cutting += of.common_write_cycles * num_bytes * is_left_near  # alone it waits for that memory (v4)
        begins, is_all = part in self._begins, whole_bytes <= num_bytes
        if begins and (is_near or is_all):
            cutting = 0.0  # brought near while others run, or all that lies there
        read_near = is_near and not (begins and is_all)
        copying = sides_cycles(
            _side(cut.laid), _side(padded_elements(held.shape)), of, read_near=read_near, made_near=made_near
        )
        return cutting + copying, made_near


def _lanes_of(graph: Graph, op: Op) -> int:
    """The dim on the lanes of what an operation cuts."""
    return (_tiled(graph.shape(op.operands[0])) or (0, 0))[1]


def _is_plain(op: Op) -> bool:
    """Whether an operation cuts out a part without gaps, in no loop of permutes."""
    return "step" not in op.attributes and max(op.attributes.get("strides", ()), default=1) == 1


def _only_multiplied(program: Program) -> frozenset[int]:
    """What kernels of products alone read."""
    read: tuple[set[int], set[int]] = (set(), set())
    for kernel in program.kernels:
        multiplies = any(program.graph.ops[number].kind in PRODUCTS for number in kernel.ops)
        read[multiplies].update(kernel.reads)
    others, multiplied = read
    return frozenset(multiplied).difference(others, program.graph.results)


def _is_near(whole_bytes: int, num_bytes: int, of: Coefficients) -> bool:
    """Whether a part stands in vector memory, beside the whole where that is fetched, or in a common memory."""
    if not of.near_total_bytes:
        return num_bytes <= of.common_bytes
    if whole_bytes > of.near_total_bytes:
        return num_bytes <= of.near_total_bytes
    return whole_bytes + num_bytes <= of.near_total_bytes * (PAIRED_ROOM if manner_of(of) is PAIRED else LEAST_ROOM)


def _side(elements: int) -> Side:
    return Side(elements / REGISTER_ELEMENTS, elements * WORD_BYTES)


def _cut_of(whole: tuple[int, ...], part: tuple[int, ...]) -> Cut | None:
    """How a part is cut out along the lanes of a whole, if it would lie otherwise."""
    dims = _tiled(whole)
    if dims is None:
        return None
    rows, lanes = dims
    laid = _laid(part, rows, lanes)
    if part[lanes] == whole[lanes] or laid <= padded_elements(part):
        return None
    pieces = -(-part[lanes] // LANES)
    straddles = part[lanes] % LANES != 0 and LANES % part[lanes] != 0
    return Cut(laid, laid // pieces * (pieces + straddles))


def _tiled(shape: tuple[int, ...]) -> tuple[int, int] | None:
    """The dims on rows and lanes of what lies as it wastes least, as it comes if it can."""
    dims = [dim for dim in reversed(range(len(shape))) if shape[dim] > 1]
    pairs = [(rows, lanes) for lanes in dims for rows in dims if rows != lanes]
    return min(pairs, key=lambda pair: _laid(shape, *pair), default=None)


def _laid(shape: tuple[int, ...], rows: int, lanes: int) -> int:
    """The elements of a shape with one of these dims padded to whole rows and the other to whole lanes."""
    elements = round_up(shape[rows], SUBLANES) * round_up(shape[lanes], LANES)
    for dim, size in enumerate(shape):
        elements *= 1 if dim in (rows, lanes) else size
    return elements
