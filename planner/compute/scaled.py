"""The work of a kernel in other shapes: counted once, then scaled with the elements of its values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping

from ...dsl.records import record
from ..fusion.nature import GROUPED, JOIN, MULTIPLYING, REDUCE, SLICE, UPDATE
from ..graph import Graph, Op
from ..kernels import Kernel
from ..kinds import ROWS
from .demand import demanded
from .products import product_of
from .sides import sides_of
from .work import (
    FREE,
    LOOP,
    NO_WORK,
    REGISTER_ELEMENTS,
    RUNNING,
    VECTOR_OPERATIONS,
    WORD_BYTES,
    Work,
    is_copied,
    is_small,
    joined_registers,
    kind_of_cost,
    of_squares,
    only_rows,
    padded_bytes,
    passes_of,
    rows_of,
    spilled,
    takes_away_most,
    vector_operations,
)
from .written_out import is_written_out, written_out_of

Alike = Callable[[int], Hashable]
Shares = tuple[tuple[int, float], ...]  # values, and for each a factor of its elements


@record(frozen=True, slots=True, kw_only=True)
class Scaled:
    """What of a kernel's work scales with which value: ``work`` counts it for a graph of the same kernel.

    ``reads`` has the share of each value that the kernel takes, ``writes`` the values whose bytes it leaves,
    ``registers`` the vector operations for each element of some values, ``spaces`` the shares of the values that it
    goes through most of, ``running`` its running sums, ``in_rows`` that it puts rows of a value into tiles,
    ``written_out`` what the compiler writes out, ``joins`` what puts arrays together, which ``is_alone`` or fused with
    others; ``windowed`` is as of ``Work``.
    """

    kernel: Kernel
    kind: str
    products: tuple[Op, ...] = ()
    reads: Shares = ()
    writes: tuple[int, ...] = ()
    sides: tuple[int, ...] = ()
    registers: Shares = ()
    spaces: Shares = ()
    single: bool = False
    copied: bool = False
    windowed: bool = False
    running: tuple[Op, ...] = ()
    in_rows: bool = False
    written_out: tuple[Op, ...] = ()
    joins: tuple[Op, ...] = ()
    is_alone: bool = False

    @property
    def values(self) -> frozenset[int]:
        """The values whose shapes matter."""
        ends = (*self.kernel.reads, *self.kernel.writes, *self.writes)
        of_products = (
            value for op in (*self.products, *self.written_out, *self.joins) for value in (*op.operands, *op.results)
        )
        return frozenset((*ends, *of_products, *(v for v, _ in (*self.reads, *self.registers, *self.spaces))))

    def work(self, graph: Graph) -> Work:
        """The work in the shapes of this graph."""
        if self.kind == FREE or is_small(graph, self.kernel):
            return Work(kind=FREE)
        values = graph.values
        if self.in_rows:
            return only_rows(rows_of(values[self.kernel.reads[0]]))
        met = tuple(product_of(graph, op) for op in self.products)
        products, summed = of_squares(met)
        space = max(summed, int(max([share * values[v].num_elements for v, share in self.spaces], default=0)))
        more = VECTOR_OPERATIONS * summed
        return Work(
            kind=LOOP if summed else self.kind,
            products=products,
            reads=tuple([int(padded_bytes(values[v]) * share) for v, share in self.reads]),
            writes=tuple([padded_bytes(values[v]) for v in self.writes]),
            sides=self.sides,
            spill_bytes=spilled([values[v] for v in self.writes], space, bool(products)),
            registers=(more + sum([each * values[v].num_elements for v, each in self.registers])) / REGISTER_ELEMENTS,
            joined=sum([joined_registers(graph, op, alone=self.is_alone) for op in self.joins]),
            space_bytes=space * WORD_BYTES,
            single=self.single,
            copied=self.copied,
            windowed=self.windowed,
            flops=sum(2.0 * each.multiply_adds for each in met),
            result_bytes=max((4.0 * each.rows * each.columns for each in products), default=0.0),
            passes=passes_of(graph, self.running),
            written_out=written_out_of(graph, self.written_out),
            is_counted=not any(op.kind == GROUPED for op in self.products),
        )


def scaled(graph: Graph, kernel: Kernel, alike: Alike, *, may_be_single: bool = True) -> Scaled:
    """Counts a kernel once. Values that are ``alike`` have as many elements as each other in all shapes asked for. A
    single operation counts as one of several unless it ``may_be_single``.
    """
    ops = [graph.ops[number] for number in kernel.ops]
    real = [op for op in ops if op.kind not in NO_WORK]
    if not real or kernel.bodies:
        return Scaled(kernel=kernel, kind=FREE)
    if ROWS in real[0].attributes:
        return Scaled(kernel=kernel, kind=LOOP, in_rows=True)
    need = demanded(graph, ops, kernel.writes)
    share = {value: count / max(graph.values[value].num_elements, 1) for value, count in need.items()}
    products = tuple(op for op in real if op.kind in MULTIPLYING)
    updates = {op.results[0]: op.operands[1] for op in real if op.kind == UPDATE}
    vectors = ((v, each * share.get(v, 0.0)) for v, each in map(vector_operations, real) if each)
    return Scaled(
        kernel=kernel,
        kind=kind_of_cost(real),
        products=products,
        reads=tuple((value, share.get(value, 0.0)) for value in kernel.reads),
        writes=tuple(updates.get(value, value) for value in kernel.writes),
        sides=sides_of(graph, ops, kernel.reads) if products else (),
        registers=_merged(vectors, alike, lambda one, other: one + other),
        spaces=_merged((pair for op in real for pair in _gone_through(op, share)), alike, max),
        single=may_be_single and len(real) == 1 and not products and real[0].kind not in (SLICE, UPDATE, JOIN),
        joins=tuple(op for op in real if op.kind == JOIN),
        is_alone=len(real) == 1,
        copied=is_copied(real),
        windowed=not products and takes_away_most(ops),
        running=tuple(op for op in real if op.kind == RUNNING),
        written_out=tuple(real) if len(real) == 1 and is_written_out(real[0]) else (),
    )


def _gone_through(op: Op, share: Mapping[int, float]) -> Shares:
    if op.kind == UPDATE:
        return ((op.operands[1], share.get(op.operands[1], 0.0)),)
    read = op.operands[:1] if op.kind == REDUCE else ()
    return tuple((value, share.get(value, 0.0)) for value in (*op.results, *read))


def _merged(shares: Iterable[tuple[int, float]], alike: Alike, join: Callable[[float, float], float]) -> Shares:
    """The shares of values that are alike as those of the first."""
    first: dict[Hashable, int] = {}
    found: dict[int, float] = {}
    for value, share in shares:
        value = first.setdefault(alike(value), value)
        found[value] = join(found[value], share) if value in found else share
    return tuple((value, share) for value, share in found.items() if share)
