"""What kernels of products read twice along other loops, as two values: ``x @ x``, ``x @ x.T``, ``[x, y] @ w + x``.

A kernel has one layout for each of its values, so of one value whose dims are one loop neither could be split; nor
could what a product is added to that it is made of, where devices need all of that for the product. Here the second
operand, or what comes after the product, is made of copies, each a kernel of its own, which takes nothing where both
lie alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...fusion.nature import PRODUCTS
from ...graph import Factors, Graph, Op, Origin, Value
from ...kernels import Kernel, Program
from .nest import nest_of
from .passing import SIMPLE, own_ops, own_reads


class Twice(NamedTuple):
    """A program with second operands as values of their own: the ``program``, its ``values`` as the step has them, the
    kernels that copy, and of what each copy is.
    """

    program: Program
    values: tuple[Value, ...]
    copying: tuple[Kernel, ...] = ()
    copies: Mapping[int, int] = {}


class _Double(NamedTuple):
    """A product's second operand: the ``kernel`` (its position), the operations that make it there, and the values that
    these read as others in the kernel do. Of what comes ``after`` a product, these values alone.
    """

    kernel: int
    made: tuple[int, ...]
    read: tuple[int, ...]
    after: bool = False


def with_second_operands(program: Program, values: Sequence[Value], behind: Collection[int]) -> Twice:
    """The program with such operands apart, and what is read after products. ``values`` are its own as the step has
    them; what is read ``behind`` barriers stays as it is. Loops are not entered.
    """
    kernels = enumerate(program.kernels)
    found = dict(each for at, kernel in kernels for each in _doubles(program.graph, at, kernel, behind))
    return _Writer(program.graph, values).twice(program, found) if found else Twice(program, tuple(values))


def _doubles(graph: Graph, position: int, kernel: Kernel, behind: Collection[int]) -> Iterator[tuple[int, _Double]]:
    products = [number for number in kernel.ops if graph.ops[number].kind in PRODUCTS]
    if kernel.bodies or len(products) != 1:
        return
    if not _is_bound(graph, kernel):
        yield from _after(graph, position, kernel, products[0], behind)
        return
    first, second = graph.ops[products[0]].operands[:2]
    made, read = _made_of(graph, kernel, second)
    _, others = _made_of(graph, kernel, first)
    both = tuple(value for value in kernel.reads if value in read & others and graph.values[value].shape)
    is_simple = {graph.ops[number].kind for number in made} <= SIMPLE
    if both and is_simple and not {*behind} & {*read, second}:
        yield products[0], _Double(position, made, both)


def _after(
    graph: Graph, position: int, kernel: Kernel, product: int, behind: Collection[int]
) -> Iterator[tuple[int, _Double]]:
    """The operations after a product that read what it is made of, where dims are not to be split for that alone."""
    before, read = _made_of(graph, kernel, *graph.ops[product].results)
    rest = [number for number in kernel.ops if number not in before]
    own = {value for number in rest for value in graph.ops[number].operands}
    both = tuple(value for value in kernel.reads if value in read & own and graph.values[value].shape)
    computed = {value for number in before[:-1] for value in graph.ops[number].results}
    if not both or own & computed or {*behind} & {*both}:
        return
    if _blocked(graph, kernel.ops) - _blocked(graph, before) - _blocked(graph, rest):
        double = _Double(position, (), both, after=True)
        yield from ((number, double) for number in rest if not set(both).isdisjoint(graph.ops[number].operands))


def _blocked(graph: Graph, ops: Sequence[int]) -> set[tuple[int, int]]:
    """The dims, each of a value, of which devices need all for some of these operations."""
    nest = nest_of(graph, ops)
    dims = ((value, place, loops) for value, each in nest.dims.items() for place, loops in enumerate(each))
    return {(value, place) for value, place, loops in dims if any(nest.blocked[loop] for loop in loops)}


def _is_bound(graph: Graph, kernel: Kernel) -> bool:
    """Whether two dims of a value go along one loop."""
    loops = ([loop for dim in dims for loop in dim] for dims in nest_of(graph, kernel.ops).dims.values())
    return any(len(set(each)) < len(each) for each in loops)


def _made_of(graph: Graph, kernel: Kernel, value: int) -> tuple[tuple[int, ...], set[int]]:
    """The operations of a kernel that make one of its values, and what these read that it does not make."""
    wanted, found = {value}, list[int]()
    for number in reversed(kernel.ops):
        if not wanted.isdisjoint(graph.ops[number].results):
            found.append(number)
            wanted.update(graph.ops[number].operands)
    made = {each for number in found for each in graph.ops[number].results}
    return tuple(reversed(found)), wanted - made


@dataclass(slots=True)
class _Writer:
    """Writes a graph with more operations before some. ``place`` is where each of the old ones stands, ``more`` has by
    kernel those that copy and those that compute of copies, ``copies`` of what each new value is one.
    """

    source: Graph
    known: Sequence[Value]
    ops: list[Op] = field(default_factory=list)
    copies: dict[int, int] = field(default_factory=dict)
    place: dict[int, int] = field(default_factory=dict)
    more: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    own: dict[int, dict[int, int]] = field(default_factory=dict)

    def twice(self, program: Program, found: Mapping[int, _Double]) -> Twice:
        """The program with the second operand of each of these products apart."""
        source = self.source
        for number, op in enumerate(source.ops):
            own = self._read(found[number]) if number in found else {}
            self.place[number] = len(self.ops)
            first = op.operands[: 0 if number in found and found[number].after else 1]
            operands = (*first, *(own.get(each, each) for each in op.operands[len(first) :]))
            self.ops.append(op.moved(operands) if own else op)
        of = [self.copies[number] for number in sorted(self.copies)]
        values = (*source.values, *(source.values[number] for number in of))
        graph = replace(source, ops=tuple(self.ops), values=values)
        kernels = list[Kernel]()
        copying = list[Kernel]()
        for position, kernel in enumerate(program.kernels):
            kernel = replace(kernel, ops=tuple(self.place[number] for number in kernel.ops))
            if position in self.more:
                made = [self._copying(number) for number in self.more[position][0]]
                kernels += made
                copying += made
                kernel = self._reading(graph, kernel, position)
            kernels.append(kernel)
        known = (*self.known, *(self.known[number] for number in of))
        return Twice(replace(program, graph=graph, kernels=tuple(kernels)), known, tuple(copying), self.copies)

    def _read(self, double: _Double) -> dict[int, int]:
        """What an operation reads of copies, which are written before the first one that does."""
        if double.kernel not in self.own:
            self.own[double.kernel] = self._second(double)
        return self.own[double.kernel]

    def _second(self, double: _Double) -> dict[int, int]:
        """Writes what makes a second operand of copies; the copy of each value that it is made of, and its own."""
        own = {value: self._copy(value) for value in double.read}
        copying, computing = list[int](), list[int]()
        for value, copy in own.items():
            copying.append(len(self.ops))
            self.ops.append(Op(kind="copy", operands=(value,), results=(copy,), factors=_alike(self.source, value)))
        for number in double.made:
            op = self.source.ops[number]
            own |= {value: self._copy(value) for value in op.results}
            computing.append(len(self.ops))
            moved = op.moved(tuple(own.get(v, v) for v in op.operands), tuple(own[v] for v in op.results))
            self.ops.append(replace(moved, origin=Origin(scope=op.origin.scope, repeats=op.origin.repeats)))
        self.more[double.kernel] = copying, computing
        return own

    def _copy(self, value: int) -> int:
        number = len(self.source.values) + len(self.copies)
        self.copies[number] = value
        return number

    def _copying(self, number: int) -> Kernel:
        op = self.ops[number]
        return Kernel(ops=(number,), reads=op.operands, writes=op.results)

    def _reading(self, graph: Graph, kernel: Kernel, position: int) -> Kernel:
        """The product's kernel, which reads copies too."""
        copying, computing = self.more[position]
        copies = tuple(self.ops[number].results[0] for number in copying)
        ops = tuple(sorted((*kernel.ops, *computing)))
        whole = replace(kernel, ops=ops, reads=(*kernel.reads, *copies))
        return replace(whole, ops=own_ops(graph, whole), reads=own_reads(graph, whole))


def _alike(graph: Graph, value: int) -> Factors:
    """The loops of a copy."""
    dims = tuple((dim,) for dim in range(len(graph.shape(value))))
    return Factors(sizes=graph.shape(value), operands=(dims,), results=(dims,))
