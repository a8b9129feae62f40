"""What the compiler makes before a loop for all its turns: bfloat16 copies of stacked weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..graph import Graph, Op
from ..kernels import Program
from .flow import VIEWS

NARROW = "bf16"
SLICES = frozenset({"dynamic_slice", "slice"})
HANDED_ON = VIEWS | {"convert"} | SLICES


def hoisted_copies(program: Program, buffer: dict[int, int]) -> dict[int, tuple[int, int]]:
    """The float32 values of which loops read slices for products alone, and the first and last loop that do.

    A loop over stacked layers would convert each layer's weights at each turn, forward and backward; the compiler
    converts the whole stack once, before the first loop, and keeps it until the last. What another loop saved for this
    one it saves narrow at once.
    """
    found: dict[int, tuple[int, int]] = {}
    for point, kernel in enumerate(program.kernels):
        op = program.graph.ops[kernel.ops[-1]]
        if op.kind == "while" and kernel.bodies:
            for value in _narrowed(program.graph, op, kernel.bodies[0]):
                held = buffer.get(value, value)
                found[held] = (found.get(held, (point, point))[0], point)
    return found


def _narrowed(graph: Graph, loop: Op, body: Program) -> Iterator[int]:
    """The loop's operands that its turns do not change and of which they only multiply slices."""
    inner = body.graph
    for position, (operand, argument) in enumerate(zip(loop.operands, inner.arguments, strict=False)):
        kept = position >= len(inner.results) or inner.results[position] == argument
        value = graph.values[operand]
        if kept and value.dtype == "f32" and len(value.shape) > 2 and _only_multiplied(body, argument):
            yield operand


def _only_multiplied(body: Program, argument: int) -> bool:
    """Whether slices of a value reach nothing but products, whatever hands them on."""
    ops = [body.graph.ops[number] for kernel in body.kernels for number in kernel.ops]
    reached = _reached(ops, argument)
    if reached is None or not reached.isdisjoint(set(body.graph.results) - {argument}):
        return False
    return any(op.kind in SLICES and not reached.isdisjoint(op.operands) for op in ops)


def _reached(ops: Iterable[Op], value: int) -> set[int] | None:
    """What a value is handed on as, itself included; None if anything but products reads any of it."""
    reached = {value}
    for op in ops:
        if reached.isdisjoint(op.operands) or op.kind == "dot_general":
            continue
        if op.kind == "while" and op.bodies and _multiplies(op, reached):
            continue
        if op.kind not in HANDED_ON:
            return None
        reached.update(r for o, r in zip(op.operands, op.results, strict=False) if o in reached)
    return reached


def _multiplies(loop: Op, values: set[int]) -> bool:
    """Whether a product in a loop of permutes only multiplies by these, which stay as they are."""
    body = loop.bodies[0]
    read = [argument for operand, argument in zip(loop.operands, body.arguments, strict=False) if operand in values]
    still = set(body.arguments[len(body.results) :])
    return still.issuperset(read) and all(_reached(body.ops, argument) is not None for argument in read)
