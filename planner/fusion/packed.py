"""Copies of what a step is given in half words and a loop cuts pieces of, where tiles have more rows.

TPU7x has half words in tiles of sixteen rows where loops take pieces of them, and arguments lie in tiles of eight: a
stack of weights or caches is copied as a whole before the first such loop, but for one whose tiles have no more rows to
take, as weights of eight heads of 128 features (a decoder's layers scanned over, in bfloat16).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..graph import Graph, Op
from ..kernels import Kernel, Program
from ..kinds import COPIED_IN_ORDER, TURNED_COPY
from .nature import LANES, SLICE

HALF_WORD_BITS = 16
ROWS = 16


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
                    Op(kind=TURNED_COPY, operands=(argument,), results=made, attributes=COPIED_IN_ORDER, origin=origin)
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
            held = graph.values[operand]
            if operand in given and held.bits == HALF_WORD_BITS and _fills_rows(held.shape) and _is_cut(body, argument):
                yield operand


def _fills_rows(shape: tuple[int, ...]) -> bool:
    """Whether as many rows lie in a tile: of what does not fill lanes as it comes another dim lies on these."""
    *_, rows, lanes = (1, *shape)
    return (rows if lanes % LANES == 0 else lanes) >= ROWS


def _is_cut(body: Graph, stack: int) -> bool:
    """Whether a turn cuts its piece out of a stack, and nothing else reads it."""
    readers = [op for op in body.ops if stack in op.operands]
    return bool(readers) and all(op.kind == SLICE for op in readers)
