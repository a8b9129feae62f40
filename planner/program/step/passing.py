"""What a kernel computes in passing for its products and look-ups, apart from it.

Products round what they read, and what is added up in a table, an embedding's gradient, is a sum of several: what is
computed for one in passing is smaller than what it is computed of. It may lie otherwise there than in the product, and
is then what is sent: so computing it is a kernel of its own here, which takes nothing where the product has it as it
lies. The product's kernel still has its operations, and is priced with them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from ...fusion.nature import BROADCAST, ELEMENTWISE, PRODUCTS, VIEWS
from ...graph import Graph
from ...kernels import Kernel, Program
from ...lookups import LOOK_UP
from .nest import CUTS, SLICE

SIMPLE = ELEMENTWISE | VIEWS | {BROADCAST, "iota", "constant"}
HANDED = PRODUCTS | LOOK_UP
"""What is handed a value that its kernel computes in passing."""


def with_passing_apart(program: Program, passing: dict[int, Kernel]) -> Program:
    """The program with what is computed in passing for products and look-ups apart; ``passing`` gets these kernels, by
    their ids.

    A kernel that is handed such a value reads it, though its own operations make it.
    """
    graph = program.graph
    makers = {value: number for number, op in enumerate(graph.ops) for value in op.results}
    num_reads = graph.reads()
    kernels: list[Kernel] = []
    apart: set[int] = set()
    for kernel in program.kernels:
        bodies = tuple(with_passing_apart(body, passing) for body in kernel.bodies)
        handed = () if bodies else tuple(_handed(graph, kernel, makers, num_reads))
        for part in handed:
            (value,) = part.writes
            if value not in apart:
                kernels.append(part)
                passing[id(part)] = part
                apart.add(value)
        reads = dict.fromkeys((*kernel.reads, *(value for part in handed for value in part.writes)))
        changed = bodies or len(reads) > len(kernel.reads)  # others stay the ones that they are known as
        kernels.append(replace(kernel, bodies=bodies, reads=tuple(reads)) if changed else kernel)
    return replace(program, kernels=tuple(kernels))


def with_ends_apart(program: Program, ended: dict[int, tuple[Kernel, Kernel]], kept: Collection[int] = ()) -> Program:
    """The program with what is computed element by element at the end of products apart from them, where that brings in
    other values of their size: an update, a sum. ``ended`` gets the kernels of these products, and what each was part
    of, by their ids. The product may then be resharded before. Kernels with ids in ``kept`` stay.
    """
    graph = program.graph
    kernels: list[Kernel] = []
    for kernel in program.kernels:
        bodies = tuple(with_ends_apart(body, ended, kept) for body in kernel.bodies)
        end = None if bodies or id(kernel) in kept else _end(graph, kernel)
        if end is None:
            kernels.append(replace(kernel, bodies=bodies) if bodies else kernel)
            continue
        (made,) = set(end.reads) - set(kernel.reads)
        product = replace(kernel, writes=(made,))
        product = replace(product, reads=own_reads(graph, product))
        ended[id(product)] = (product, kernel)
        kernels += [product, end]
    return replace(program, kernels=tuple(kernels))


def _end(graph: Graph, kernel: Kernel) -> Kernel | None:
    products = [graph.ops[number] for number in kernel.ops if graph.ops[number].kind in PRODUCTS]
    made = products[0].results[0] if len(products) == 1 else None
    if made is None or made in kernel.writes:
        return None
    rest = replace(kernel, reads=(*kernel.reads, made))
    ops, reads = own_ops(graph, rest), own_reads(graph, rest)
    sizes = [graph.values[value].num_elements for value in reads if value != made]
    simple = {graph.ops[number].kind for number in ops} <= SIMPLE
    if not simple or made not in reads or graph.values[made].num_elements not in sizes:
        return None
    return Kernel(ops=ops, reads=reads, writes=kernel.writes)


def own_ops(graph: Graph, kernel: Kernel) -> tuple[int, ...]:
    """The operations of a kernel but for those that only make what it is handed."""
    wanted, found, handed = set(kernel.writes), list[int](), set(kernel.reads)
    for number in reversed(kernel.ops):
        op = graph.ops[number]
        if wanted.isdisjoint(op.results):
            continue
        found.append(number)
        wanted.update([value for value in op.operands if value not in handed])
    return tuple(reversed(found))


def own_reads(graph: Graph, kernel: Kernel) -> tuple[int, ...]:
    """What those operations read."""
    operands = {value for number in own_ops(graph, kernel) for value in graph.ops[number].operands}
    return tuple(value for value in kernel.reads if value in operands)


def _handed(graph: Graph, kernel: Kernel, makers: dict[int, int], num_reads: Mapping[int, int]) -> Iterable[Kernel]:
    """A kernel for each operand of those that is smaller than what it is simply computed of in passing, padding
    included where it is read once.
    """
    inside = set(kernel.ops)
    operands = (v for n in kernel.ops if graph.ops[n].kind in HANDED for v in graph.ops[n].operands)
    for value in dict.fromkeys(operands):
        if makers.get(value) not in inside or value in kernel.writes:
            continue
        ops, reads = _made_of(graph, value, inside, makers)
        kinds = {graph.ops[number].kind for number in ops}
        is_less = bool(kinds & (ELEMENTWISE | {SLICE})) and _bytes(graph, reads) > _bytes(graph, (value,))
        if is_less and kinds <= SIMPLE | (CUTS if num_reads[value] == 1 else {SLICE}):
            yield Kernel(ops=ops, reads=reads, writes=(value,))


def _made_of(
    graph: Graph, value: int, inside: set[int], makers: dict[int, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    ops, reads, waiting = set[int](), set[int](), [value]
    while waiting:
        here = waiting.pop()
        number = makers.get(here)
        if number is None or number not in inside:
            reads.add(here)
        elif number not in ops:
            ops.add(number)
            waiting += graph.ops[number].operands
    return tuple(sorted(ops)), tuple(sorted(reads))


def _bytes(graph: Graph, values: Iterable[int]) -> int:
    return sum(graph.values[value].num_bytes for value in values)
