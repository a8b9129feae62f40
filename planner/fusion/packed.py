"""Copies of what a step is given in half words and a loop cuts pieces of for products, where their tiles have more rows.

TPU7x's matrix unit reads tiles of sixteen rows of half words, and arguments lie in tiles of eight: a stack of weights is
copied as a whole before the first loop that cuts its layers out in passing. What is cut out by itself, as weights are
of which a product sums only dims outside of the tiles, is not (a decoder's layers scanned over, in bfloat16).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..graph import Graph, Op
from ..kernels import Kernel, Program
from ..kinds import TURNED_COPY
from .nature import PRODUCTS, SLICE, VIEWS
from .returned import IN_THEIR_ORDER

HALF_WORD_BITS = 16
TILED_DIMS = 2
SIDES = ("lhs", "rhs")


def with_packed(program: Program) -> Program:
    """A whole step with such copies, each before the first kernel that reads it."""
    graph = program.graph
    packed = dict.fromkeys(_packed(graph)) if graph.nesting else {}
    if not packed:
        return program
    values, ops = list(graph.values), list(graph.ops)
    copies, kernels = dict[int, int](), list[Kernel]()
    for kernel in program.kernels:
        number = kernel.ops[-1]
        if kernel.bodies and graph.ops[number].turns:
            for argument in (value for value in kernel.reads if value in packed and value not in copies):
                copies[argument] = len(values)
                values.append(values[argument])
                made, origin = (copies[argument],), graph.ops[number].origin
                kernels.append(Kernel(ops=(len(ops),), reads=(argument,), writes=made))
                ops.append(
                    Op(kind=TURNED_COPY, operands=(argument,), results=made, attributes=IN_THEIR_ORDER, origin=origin)
                )
            ops[number] = ops[number].moved(_instead(ops[number].operands, copies))
            kernel = replace(kernel, reads=_instead(kernel.reads, copies))
        kernels.append(kernel)
    return replace(program, graph=replace(graph, values=tuple(values), ops=tuple(ops)), kernels=tuple(kernels))


def _instead(values: tuple[int, ...], copies: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(copies.get(value, value) for value in values)


def _packed(graph: Graph) -> Iterator[int]:
    """The arguments that are copied."""
    given = frozenset(graph.arguments)
    for loop in (op for op in graph.nesting if op.turns):
        body = loop.bodies[0]
        for operand, argument in zip(loop.operands, body.arguments, strict=False):
            if operand in given and graph.values[operand].bits == HALF_WORD_BITS and _is_cut(body, argument):
                yield operand


def _is_cut(body: Graph, stack: int) -> bool:
    """Whether products cut their pieces out of a stack, and nothing else reads it."""
    readers = [op for op in body.ops if stack in op.operands]
    return bool(readers) and all(op.kind == SLICE and _is_multiplied(body, op.results[0]) for op in readers)


def _is_multiplied(body: Graph, value: int) -> bool:
    """Whether only products read a piece, and sum dims of its tiles."""
    readers = [op for op in body.ops if value in op.operands]
    return bool(readers) and all(
        _is_multiplied(body, op.results[0]) if op.kind in VIEWS else _sums_within(body, op, value) for op in readers
    )


def _sums_within(body: Graph, op: Op, value: int) -> bool:
    """Whether an operation is a product that sums one of the two minor dims of what it reads."""
    if op.kind not in PRODUCTS:
        return False
    summed = op.attributes.get(f"{SIDES[op.operands.index(value)]}_contracting_dimensions", ())
    return bool(summed) and max(summed) >= len(body.shape(value)) - TILED_DIMS
