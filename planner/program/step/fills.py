"""What is filled with one number, for each operation of a kernel that reads it: so propagation splits it too.

As one value it would be in one layout, and what two operations go along in it be one loop: where a convolution reads
zeros and what comes after it reads as many, its features would be split on both sides or on none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...fusion.nature import BROADCAST
from ...graph import Graph, Op, Value
from ...kernels import Kernel, Program


def is_fill(graph: Graph, op: Op) -> bool:
    """Whether it fills what it makes with one number."""
    return op.kind == BROADCAST and not graph.shape(op.operands[0])


def with_own_fills(program: Program, values: Sequence[Value]) -> tuple[Program, tuple[Value, ...]]:
    """The program in which no two operations of a kernel read what one fill makes, in loops too; ``values`` are its own
    as the step has them, and have those of the new ones then.
    """
    program = _with_bodies(program)
    graph = program.graph
    edge = {value for kernel in program.kernels for value in (*kernel.reads, *kernel.writes)}
    apart = {at for kernel in program.kernels for at in _read_again(graph, kernel) if at[1] not in edge}
    if not apart:
        return program, tuple(values)
    makers = {op.results[0]: op for op in graph.ops if is_fill(graph, op)}
    ops, place = list[Op](), dict[int, int]()
    own: dict[int, dict[int, int]] = {}  # by an operation's number, what it reads apart with the fill of that
    more: list[int] = []
    for number, op in enumerate(graph.ops):
        again = {}
        for value in dict.fromkeys(op.operands):
            if (number, value) in apart:
                own.setdefault(number, {})[value] = len(ops)
                again[value] = len(graph.values) + len(more)
                ops.append(replace(makers[value], results=(again[value],)))
                more.append(value)
        place[number] = len(ops)
        ops.append(op.moved(tuple(again.get(each, each) for each in op.operands)) if again else op)
    whole = replace(graph, ops=tuple(ops), values=(*graph.values, *(graph.values[value] for value in more)))
    kernels = tuple(_moved(graph, kernel, place, own) for kernel in program.kernels)
    return replace(program, graph=whole, kernels=kernels), (*values, *(values[value] for value in more))


def _with_bodies(program: Program) -> Program:
    """The program with the bodies of its loops so."""
    ops, kernels = list(program.graph.ops), list[Kernel]()
    for kernel in program.kernels:
        if kernel.bodies:
            op = ops[kernel.ops[-1]]
            pairs = [with_own_fills(body, wide.values) for body, wide in zip(kernel.bodies, op.bodies, strict=True)]
            wide = tuple(replace(each, values=own) for each, (_, own) in zip(op.bodies, pairs, strict=True))
            ops[kernel.ops[-1]] = replace(op, bodies=wide)
            kernel = replace(kernel, bodies=tuple(body for body, _ in pairs))
        kernels.append(kernel)
    if not any(kernel.bodies for kernel in kernels):
        return program
    return replace(program, graph=replace(program.graph, ops=tuple(ops)), kernels=tuple(kernels))


def _read_again(graph: Graph, kernel: Kernel) -> Iterator[tuple[int, int]]:
    """The operations of a kernel that read what it fills and one before reads too, with that."""
    if kernel.bodies:
        return
    filled = {graph.ops[number].results[0] for number in kernel.ops if is_fill(graph, graph.ops[number])}
    seen = set[int]()
    for number in kernel.ops if filled else ():
        for value in filled.intersection(graph.ops[number].operands):
            if value in seen:
                yield number, value
            seen.add(value)


def _moved(graph: Graph, kernel: Kernel, place: dict[int, int], own: dict[int, dict[int, int]]) -> Kernel:
    """A kernel whose operations stand elsewhere, with the fills of their own, without those that nothing reads now."""
    read = {v for number in kernel.ops for v in graph.ops[number].operands if v not in own.get(number, ())}
    needed = read.union(kernel.writes)
    kept = (n for n in kernel.ops if not is_fill(graph, graph.ops[n]) or not needed.isdisjoint(graph.ops[n].results))
    fills = (fill for number in kernel.ops for fill in own.get(number, {}).values())
    return replace(kernel, ops=tuple(sorted((*(place[number] for number in kept), *fills))))
