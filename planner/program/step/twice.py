"""What kernels read twice along other loops, as two values: ``x @ x``, ``x @ x.T``, ``x @ w + x``, ``[x, y] @ w + x``.

A kernel has one layout for each of its values, so of one value whose dims are one loop neither could be split; nor
could what comes after a product split what that is made of, where devices need all of it for the product. Here the
product's second operand, and what is computed after the product, is made of copies, each a kernel of its own, which
takes nothing where both lie alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...fusion.nature import PRODUCTS
from ...graph import Factors, Graph, Op, Origin, Value
from ...kernels import Kernel, Program
from .nest import SLICE, nest_of
from .passing import SIMPLE, own_ops, own_reads
from .roles import meet, product_and_rest


class Twice(NamedTuple):
    """A program with second operands as values of their own: the ``program``, its ``values`` as the step has them, the
    kernels that copy, and of what each copy is.
    """

    program: Program
    values: tuple[Value, ...]
    copying: tuple[Kernel, ...] = ()
    copies: Mapping[int, int] = {}


class _Double(NamedTuple):
    """A product's second operand, or what comes after it: the ``kernel`` (its position), the operations there that are
    made anew for it, the values that it reads as others in the kernel do, and those that read all of that: all they do
    after the product (``rest``), or their second operand.
    """

    kernel: int
    made: tuple[int, ...]
    read: tuple[int, ...]
    rest: tuple[int, ...] = ()


def with_second_operands(program: Program, values: Sequence[Value], behind: Collection[int]) -> Twice:
    """The program with such operands apart. ``values`` are its own as the step has them; what is read ``behind``
    barriers stays as it is. Loops are not entered.
    """
    kernels = enumerate(program.kernels)
    found = dict(each for at, kernel in kernels for each in _doubles(program.graph, at, kernel, behind))
    return _Writer(program.graph, values).twice(program, found) if found else Twice(program, tuple(values))


def with_ends_of_copies(twice: Twice, behind: Collection[int]) -> Twice:
    """The same with what comes after products apart, where both read one value along other loops, or devices need all
    of its dims for the product alone.
    """
    program = twice.program
    standing = Counter(number for kernel in program.kernels for number in kernel.ops)
    ends = (each for at, kernel in enumerate(program.kernels) for each in _ends(program.graph, at, kernel, behind))
    found = {first: double for first, double in ends if all(standing[number] == 1 for number in double.rest)}
    if not found:
        return twice
    more = _Writer(program.graph, twice.values).twice(program, found)
    before = {kernel.writes for kernel in twice.copying}
    copying = (kernel for kernel in more.program.kernels if kernel.writes in before)
    return more._replace(copying=(*copying, *more.copying), copies={**twice.copies, **more.copies})


def _doubles(graph: Graph, position: int, kernel: Kernel, behind: Collection[int]) -> Iterator[tuple[int, _Double]]:
    products = [number for number in kernel.ops if graph.ops[number].kind in PRODUCTS]
    if kernel.bodies or len(products) != 1 or not _is_bound(graph, kernel):
        return
    first, second = graph.ops[products[0]].operands[:2]
    made, read = _made_of(graph, kernel, second)
    _, others = _made_of(graph, kernel, first)
    both = tuple(value for value in kernel.reads if value in read & others and graph.values[value].shape)
    is_simple = {graph.ops[number].kind for number in made} <= SIMPLE | {SLICE}
    if both and is_simple and not {*behind} & {*read, second}:
        yield products[0], _Double(position, made, both)


def _ends(graph: Graph, position: int, kernel: Kernel, behind: Collection[int]) -> Iterator[tuple[int, _Double]]:
    parts = () if kernel.bodies else product_and_rest(graph, kernel)
    if not parts:
        return
    product, rest = parts
    read = tuple(value for value in rest.reads if value in product.reads and graph.values[value].shape)
    if not read or not (meet(graph, kernel, product, rest) or _is_blocked(graph, kernel, product, rest)):
        return
    made = tuple(number for number in rest.ops if number in product.ops)
    anew = {*read, *(value for number in made for value in graph.ops[number].results)}
    later = (number for number in rest.ops if number not in product.ops)
    own = tuple(number for number in later if not anew.isdisjoint(graph.ops[number].operands))
    makers = {value: number for number, op in enumerate(graph.ops) for value in op.results}
    is_simple = {graph.ops[number].kind for number in made} <= SIMPLE
    is_there = bool(own) and all(number < own[0] for number in (*made, *(makers.get(value, -1) for value in read)))
    if is_simple and is_there and not {*behind} & {*read}:
        yield own[0], _Double(position, made, read, own)


def _is_blocked(graph: Graph, kernel: Kernel, product: Kernel, rest: Kernel) -> bool:
    """Whether devices need all of some dims for the whole of a kernel and not for one of its parts."""
    whole, *parts = (_blocked(graph, each.ops) for each in (kernel, product, rest))
    return bool(whole.difference(*parts))


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

    def twice(self, program: Program, found: Mapping[int, _Double]) -> Twice:
        """The program with the second operand of each of these products apart."""
        source = self.source
        renamed: dict[int, Mapping[int, int]] = {}
        for number, op in enumerate(source.ops):
            own = self._second(found[number]) if number in found else renamed.get(number, {})
            first = 1
            if number in found and found[number].rest:
                renamed |= dict.fromkeys(found[number].rest, own)
            if number in renamed:
                first = 0
            self.place[number] = len(self.ops)
            operands = (*op.operands[:first], *(own.get(each, each) for each in op.operands[first:]))
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
