"""What is looked up and scattered into lies row by row, however little of a row's lanes it fills.

Everything else may lie with whichever dim minor wastes least. The tables and results of lookups of whole rows, and what
a scatter adds to what, may not: they, and what is computed of them number by number, are padded to whole rows of lanes.
What something else made is copied into that layout before, and what something else reads is copied back: seen so on v3,
v5e and v5p for embeddings, messages along edges and heads of attention over them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from ...fusion.nature import BROADCAST, CONSTANT, ELEMENTWISE, REDUCE
from ...graph import Graph, Op, Value
from ...kernels import Kernel
from ...kinds import ALL_REDUCE, KINDS, TURNED_COPY
from ...lookups import GATHER, LOOK_UP, SCATTER, added_by, looks_up_rows, row_tiles, tables_of
from ..coefficients import Coefficients
from ..work import REGISTER_ELEMENTS, padded_bytes, padded_elements
from .turning import Side, leaves_near, room_bytes, turning_cycles

WINDOW_BYTES, WIDE_WINDOW_BYTES, WINDOW_PASSES = 2**20, 3 * 2**19, 4.1
"""How large windows are that gathers take in loops of slices, which the compiler counts, on v6e too, and how many times
what is read and written that takes: 2 to 128 of 1 to 8 MiB on v3, v4, v5e, v5p and v6e (3.4 to 5.5 times, 2.9 where few
are 4 MiB or more). Of windows of half a MiB nothing is counted, on v6e of one neither.
"""

_AS_THEY_LIE = ELEMENTWISE | {REDUCE, BROADCAST, CONSTANT, "iota", ALL_REDUCE}
"""What takes numbers as they lie, and leaves those of the same shape so."""


def scattered(graph: Graph) -> set[int]:
    """What a graph scatters into, and what becomes of that. What is computed number by number to be added to lies as
    it wastes least, and is copied for the scatter: seen on v4 and v5e.
    """
    into = {value for op in graph.of_kind(SCATTER) for value in tables_of(op)}
    if not into:
        return into
    made = {value for op in graph.ops if op.kind in ELEMENTWISE for value in op.results}
    return _sums(graph) | (into - made)


def _sums(graph: Graph) -> set[int]:
    return {value for op in graph.of_kind(SCATTER) for value in op.results}


def _summed_for(graph: Graph, edge: Collection[int]) -> Iterator[int]:
    """What is scattered into and then added up over devices for what the step is given or leaves: the sum goes by the
    layout of those, in which less is sent, and so does what is computed of it number by number (v5e), but where these
    have rows looked up in them (``_given_tables``).
    """
    sums, near = _sums(graph), set(edge)
    for op in reversed(graph.ops if sums else ()):
        if op.kind == ALL_REDUCE:
            made = zip(op.operands, op.results, strict=True)
            yield from (value for value, result in made if value in sums and result in near)
        elif op.kind in ELEMENTWISE and not near.isdisjoint((*op.results, *op.operands)):
            near.update(value for value in op.operands if graph.shape(value) == graph.shape(op.results[0]))


def _given_tables(graph: Graph) -> set[Value]:
    """The forms of arguments in which rows are looked up as they are: what is given like these is copied for that, and
    their updates take the copies, and sums for them, as they lie (seen on v4, v5e and v6e, under Adagrad and momentum).
    """
    given = frozenset(graph.arguments)
    gathers = (op for op in graph.of_kind(GATHER) if looks_up_rows(graph, op))
    return {graph.values[value] for op in gathers for value in tables_of(op) if value in given}


class Rowwise:
    """The values that lie so, as the kernels of a program are gone through: what is looked up, what is scattered into
    (``tables``, where kernels are apart from their step and it is known of that), and what becomes of it. ``edge`` has
    what is given to the program's step and left by it.
    """

    def __init__(self, graph: Graph, of: Coefficients, tables: Collection[int] | None, edge: Collection[int]) -> None:
        self._graph, self._of = graph, of
        found = {value for op in graph.of_kind(*LOOK_UP) if looks_up_rows(graph, op) for value in op.results}
        into = scattered(graph)
        met = into if tables is None else {*tables, *_sums(graph)}
        looked_up = _given_tables(graph)
        summed = (value for value in _summed_for(graph, frozenset(edge)) if graph.values[value] not in looked_up)
        self._summed = {value for value in summed if self._is_narrow(value)}
        self._values = {value for value in (*met, *found) if self._is_narrow(value)} - self._summed
        self._updated = {graph.shape(value) for value in into if self._is_narrow(value)}
        self._edge, self._given = frozenset(edge), frozenset(graph.arguments)
        self._free_bytes = room_bytes(of)
        self._copied: set[int] = set()
        self._turned = {value for op in graph.of_kind(TURNED_COPY) for value in (*op.operands, *op.results)}

    def extra_cycles(self, kernel: Kernel) -> float:
        """What a kernel takes more because of it, copies included; of a lookup the copies are all that is counted."""
        op = self._graph.ops[kernel.ops[-1]]
        if op.kind in LOOK_UP:
            left = sum(self._turning_cycles(value, is_result=True) for value in op.results if value in self._summed)
            return left + sum(map(self._copy_cycles, self._brought(op)))
        read = [value for value in kernel.reads if value in self._values]
        if read and op.kind != ALL_REDUCE and not self._takes_rows(kernel):
            return 0.0 if op.kind in KINDS else sum(map(self._copy_cycles, self._new(read)))
        return self._padding(kernel, is_sum=op.kind in KINDS) if self._values else 0.0

    def _padding(self, kernel: Kernel, *, is_sum: bool) -> float:
        """What a kernel takes more that goes through whole rows of lanes, and what it is given otherwise."""
        met = {self._graph.shape(v) for v in (*kernel.reads, *kernel.writes) if v in self._values}
        if not met:
            return 0.0
        whole = [v for v in (*kernel.reads, *kernel.writes) if self._graph.shape(v) in met]
        self._values.update(v for v in kernel.writes if self._graph.shape(v) in met)
        if is_sum:
            return 0.0
        near = self._left_near(whole, kernel)
        more = [self._row_bytes(v) - padded_bytes(self._graph.values[v]) for v in whole if v not in near] or [0]
        single = len(kernel.ops) == 1
        windows = max(more) / self._of.single_window_bytes if single else sum(more) / self._of.loop_window_bytes
        results = (v for v in whole if v in self._edge and v not in self._given)
        copied = sum(self._turning_cycles(v) for v in whole if v in self._edge and v in self._given)
        copied += sum(self._turning_cycles(v, is_result=True, is_near=v in near) for v in results)
        return sum(more) * self._of.byte_cycles + windows * self._of.step_cycles + copied

    def _left_near(self, whole: Collection[int], kernel: Kernel) -> set[int]:
        """Which rows a kernel leaves in vector memory, from where they are copied: what fits beside what it is given
        (v5e: two results beside two tables of 26 MB; v6e, whose memory is smaller, one).
        """
        room = self._of.near_total_bytes - sum(self._row_bytes(v) for v in whole if v in self._given)
        near = set[int]()
        for value in kernel.writes:
            if value in whole and self._row_bytes(value) <= room:
                room -= self._row_bytes(value)
                near.add(value)
        return near

    def _brought(self, op: Op) -> Iterator[int]:
        """What is copied for a lookup or a scatter: its table or what is added to that, if something else made it.

        An argument that is scattered into is copied where it is updated.
        """
        if not looks_up_rows(self._graph, op):
            return
        for value in self._new((*tables_of(op), *added_by(op))):
            copied_later = value in self._edge and self._graph.shape(value) in self._updated
            if value not in self._values and self._is_narrow(value) and not copied_later:
                yield value

    def _takes_rows(self, kernel: Kernel) -> bool:
        return all(self._graph.ops[number].kind in _AS_THEY_LIE for number in kernel.ops)

    def _new(self, values: Collection[int]) -> list[int]:
        """Those of these values that were not copied before."""
        found = [value for value in dict.fromkeys(values) if value not in self._copied]
        self._copied.update(found)
        return found

    def _copy_cycles(self, value: int) -> float:
        held, took = self._graph.values[value], self._turning_cycles(value)
        return max(0.0, took - 2 * padded_bytes(held) * self._of.byte_cycles) if value in self._turned else took

    def _turning_cycles(self, value: int, *, is_result: bool = False, is_near: bool | None = None) -> float:
        """What a copy takes from where a value lies as it wastes least into rows, or back, from rows that are known to
        be near or not.
        """
        held = self._graph.values[value]
        least = Side(padded_elements(held.shape) / REGISTER_ELEMENTS, padded_bytes(held))
        rows = Side(row_tiles(held), self._row_bytes(value))
        read, made = (rows, least) if is_result else (least, rows)
        free = self._free_bytes
        if not is_result and self._of.near_total_bytes and leaves_near(read, made, self._of, free):
            self._free_bytes -= made.num_bytes
        return turning_cycles(read, made, self._of, is_result=is_result, free_bytes=free, came_near=is_near)

    def _is_narrow(self, value: int) -> bool:
        held = self._graph.values[value]
        return len(held.shape) > 1 and self._row_bytes(value) > padded_bytes(held)

    def _row_bytes(self, value: int) -> int:
        held = self._graph.values[value]
        return row_tiles(held) * REGISTER_ELEMENTS * held.bits // 8


def window_cycles(graph: Graph, gather: Op, of: Coefficients, *, is_wide: bool) -> float:
    """Cycles of a gather of large windows, such as whole caches: each is cut out and put in its place."""
    made = graph.values[gather.results[0]]
    window_bytes = math.prod(gather.attributes.get("slice_sizes", (0,))) * made.bits // 8
    is_large = window_bytes >= (WIDE_WINDOW_BYTES if is_wide else WINDOW_BYTES)
    return WINDOW_PASSES * 2 * made.num_bytes * of.byte_cycles if is_large else 0.0
