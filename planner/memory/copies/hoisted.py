"""What the compiler makes before a loop for all its turns: bfloat16 copies of weights, stacked or not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...fusion.nature import PRODUCTS
from ...graph import Graph, Op
from ...image_pieces import pieces_of
from ...kernels import Program
from ..flow.flow import VIEWS

NARROW = "bf16"
SLICES = frozenset({"dynamic_slice", "slice"})
HANDED_ON = VIEWS | {"convert"} | SLICES


def hoisted_copies(program: Program, buffer: dict[int, int]) -> dict[int, tuple[int, int]]:
    """The float32 values that loops read, or slices of them, for products alone, and the first and last loop that do.

    A loop over stacked layers would convert each layer's weights at each turn, forward and backward; the compiler
    converts the whole stack once, before the first loop, and keeps it until the last. What another loop saved for this
    one it saves narrow at once.
    """
    found: dict[int, tuple[int, int]] = {}
    for point, kernel in enumerate(program.kernels) if program.graph.nesting else ():
        op = program.graph.ops[kernel.ops[-1]]
        if op.kind == "while" and kernel.bodies:
            for value in _narrowed(program.graph, op, kernel.bodies[0]):
                held = buffer.get(value, value)
                found[held] = (found.get(held, (point, point))[0], point)
    return found


def _narrowed(graph: Graph, loop: Op, body: Program) -> Iterator[int]:
    """The loop's operands that its turns do not change and only multiply, whole or in slices."""
    inner = body.graph
    readers = _readers(inner.ops[number] for kernel in body.kernels for number in kernel.ops)
    given = () if inner.goes_round else graph.arguments  # a product in parts is given them narrow
    cut = {piece.whole for piece in pieces_of(inner)} if not loop.turns else set[int]()
    for position, (operand, argument) in enumerate(zip(loop.operands, inner.arguments, strict=False)):
        kept = position >= len(inner.results) or inner.results[position] == argument
        value = graph.values[operand]
        stacked = len(value.shape) > 2 or (operand in given and len(value.shape) > 1)
        if (
            kept
            and argument not in cut
            and value.dtype == "f32"
            and stacked
            and _only_multiplied(inner, readers, argument)
        ):
            yield operand


def _readers(ops: Iterable[Op]) -> Mapping[int, list[Op]]:
    """The operations that read each value."""
    readers: dict[int, list[Op]] = {}
    for op in ops:
        for value in op.operands:
            readers.setdefault(value, []).append(op)
    return readers


def _only_multiplied(graph: Graph, readers: Mapping[int, Sequence[Op]], argument: int) -> bool:
    """Whether a value reaches nothing but products, whatever hands it or its slices on."""
    reached = _reached(readers, argument)
    if reached is None or not readers.get(argument):
        return False
    return reached.isdisjoint(set(graph.results) - {argument})


def _reached(readers: Mapping[int, Sequence[Op]], value: int) -> set[int] | None:
    """What a value is handed on as, itself included; None if anything but products reads any of it."""
    reached, waiting = {value}, [value]
    while waiting:
        here = waiting.pop()
        for op in readers.get(here, ()):
            if op.kind in PRODUCTS or (op.kind == "while" and op.bodies and _multiplies(op, here)):
                continue
            if op.kind not in HANDED_ON:
                return None
            made = {r for o, r in zip(op.operands, op.results, strict=False) if o == here} - reached
            reached |= made
            waiting += made
    return reached


def _multiplies(loop: Op, value: int) -> bool:
    """Whether a product in a loop of permutes only multiplies by this, which stays as it is."""
    body = loop.bodies[0]
    read = [argument for operand, argument in zip(loop.operands, body.arguments, strict=False) if operand == value]
    still, readers = set(body.arguments[len(body.results) :]), _readers(body.ops)
    return still.issuperset(read) and all(_reached(readers, argument) is not None for argument in read)
