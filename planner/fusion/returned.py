"""Copies of donated arguments, and of what would lie where they did but does not.

The next value of a donated argument is written where that was (``input_output_alias``). XLA's copy insertion copies the
argument first and the value last, and leaves out what does no harm. Where the next value is gathered the TPU compiler
leaves both in: weights whose updates are shared out over devices are copied as a step begins, if more than their update
reads them (v3, v4, v5e, v5p and v6e; the copies of what arrives are ``partition``'s), but for those that arrive in
another layout, which the last copy turns (v3, v4 and v5e: columns that are no whole lanes for each device; v6e: what
lies transposed as its gradient does). So it does with an argument that a product reads whose result takes its place,
and with what a loop stacks where an argument that it reads lies.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

from ..graph import Graph, Op
from ..kernels import Kernel, Program
from ..kinds import ALL_GATHER, COPIED_IN_ORDER, TURNED_COPY
from .nature import LANES, PRODUCTS, batch_dims, free_dims
from .operands import MATRIX_RANK

MOST_BEFORE = 64
"""Through how many operations it is looked what an update is made of."""


def with_copies(program: Program, turned: Container[int] = ()) -> Program:
    """A whole step with the copies of its donated arguments, first, and of their next values, last. ``turned`` are the
    values that lie transposed.
    """
    graph = program.graph
    makers = {value: kernel for kernel in program.kernels for value in kernel.writes} if graph.aliases else {}
    made = {value: op for op in graph.ops for value in op.results} if graph.aliases else {}
    first, last = list[int](), list[int]()
    for place, position in graph.aliases.items():
        argument, result = graph.arguments[position], graph.results[place]
        if result not in makers:
            continue
        own = makers[result]
        op = next(graph.ops[number] for number in own.ops if result in graph.ops[number].results)
        gather = _gather(graph, op, makers)
        if gather is not None:
            is_read_again = sum(argument in kernel.reads for kernel in program.kernels) > 1
            if is_read_again and not arrives_turned(graph, gather, made, turned):
                first.append(argument)
        elif op.kind == "while":
            last += [place] if is_stacked_over(op, result, argument) else []
        elif argument in own.reads and any(argument in read for read in _multiplied(graph, own)):
            first.append(argument)
    return _with(program, first, last) if first or last else program


def is_stacked_over(op: Op, result: int, argument: int) -> bool:
    """Whether a loop's result takes the place of an argument that the loop reads, and begins as something else."""
    return op.kind == "while" and argument in op.operands and op.operands[op.results.index(result)] != argument


def _gather(graph: Graph, op: Op, makers: Mapping[int, Kernel]) -> Op | None:
    """What gathers what an operation copies, if that is gathered."""
    while op.kind == TURNED_COPY and op.operands[0] in makers:
        op = graph.ops[makers[op.operands[0]].ops[-1]]
    return op if op.kind == ALL_GATHER else None


def arrives_turned(graph: Graph, gather: Op, makers: Mapping[int, Op], turned: Container[int] = ()) -> bool:
    """Whether what is gathered for a next value arrives in another layout than that has: its lanes in parts that are
    not whole, or the rows of a weight of several heads, whose gradients are made head by head; or ``turned``.
    """
    if gather.results[0] in turned:
        return True
    shape, whole = (graph.shape(values[0]) for values in (gather.operands, gather.results))
    dims = gather.attributes.get("dimensions", ())
    if len(shape) < MATRIX_RANK or len(dims) != 1:
        return False
    last = len(shape) - 1
    lanes = next((dim for dim in (last, *range(last)) if whole[dim] >= LANES), last)
    if dims[0] == lanes:
        return shape[lanes] % LANES > 0
    return lanes == last > 1 and dims[0] == 0 and _is_of_heads(graph, gather.operands[0], makers)


def _is_of_heads(graph: Graph, value: int, makers: Mapping[int, Op]) -> bool:
    """Whether the last product of what an update is made of has columns of several dims, and is no batch."""
    waiting, seen = [value], set[int]()
    while waiting and len(seen) < MOST_BEFORE:
        op = makers.get(waiting.pop(0))
        if op is None or op.results[0] in seen:
            continue
        seen.add(op.results[0])
        if op.kind in PRODUCTS:
            return batch_dims(graph, op) == 0 and any(free_dims(graph, op, side) > 1 for side in (0, 1))
        waiting += op.operands
    return False


def _multiplied(graph: Graph, kernel: Kernel) -> Iterator[tuple[int, ...]]:
    """What the products of a kernel read."""
    return (graph.ops[number].operands for number in kernel.ops if graph.ops[number].kind in PRODUCTS)


def _with(program: Program, first: list[int], last: list[int]) -> Program:
    """A program with copies of arguments, which all read instead, and of the results at these places."""
    graph = program.graph
    values, ops = list(graph.values), list(graph.ops)
    before, after = list[Kernel](), list[Kernel]()

    def copy(value: int, like: Op) -> Kernel:
        values.append(values[value])
        made = (len(values) - 1,)
        ops.append(
            Op(kind=TURNED_COPY, operands=(value,), results=made, attributes=COPIED_IN_ORDER, origin=like.origin)
        )
        return Kernel(ops=(len(ops) - 1,), reads=(value,), writes=made)

    readers = {value: op for op in reversed(graph.ops) for value in op.operands}
    makers = {value: op for op in graph.ops for value in op.results}
    for argument in first:
        before.append(copy(argument, readers[argument]))
    copies = {kernel.reads[0]: kernel.writes[0] for kernel in before}
    for number, op in enumerate(graph.ops):
        if not copies.keys().isdisjoint(op.operands):
            ops[number] = op.moved(tuple(copies.get(value, value) for value in op.operands))
    results = list(graph.results)
    for place in last:
        after.append(copy(results[place], makers[results[place]]))
        results[place] = after[-1].writes[0]
    kernels = [_reading(kernel, copies) for kernel in program.kernels]
    whole = replace(graph, values=tuple(values), ops=tuple(ops), results=tuple(results))
    return replace(program, graph=whole, kernels=(*before, *kernels, *after))


def _reading(kernel: Kernel, copies: dict[int, int]) -> Kernel:
    """A kernel that reads copies of what it read."""
    if copies.keys().isdisjoint(kernel.reads):
        return kernel
    return replace(kernel, reads=tuple(copies.get(value, value) for value in kernel.reads))
