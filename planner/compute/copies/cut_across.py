"""Gradients of logits that a loop of permutes cuts into parts of no whole lanes: they are copied to lie the other way.

Where the gradient of a weight goes round a ring in parts of its last dim, each turn cuts such parts out of what it
multiplies. Parts of whole lanes are cut as they lie; for others the dim has to lie on rows. Logits lie as their softmax
reads them, so their gradient is copied first, or what a pad makes it of. Seen on v4 and v5e, with parts of 1000 of
32000 columns, in bfloat16 and float32; with 1024 of 32768 nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...fusion.nature import CONVERT, ELEMENTWISE, LANES, REDUCE, SLICE
from ...graph import Graph, Op
from ..coefficients import Coefficients
from ..work import REGISTER_ELEMENTS, padded_bytes

PAD, PRODUCT, LOOP, MAXIMUM = "pad", "dot_general", "while", "maximum"
KEEPING = ELEMENTWISE | {CONVERT, "slice"}

CROSSING_CYCLES, EARLY_CROSSING_CYCLES = 9.6, 7.0
"""What turning 1024 numbers takes besides their bytes, each time that they cross to memory: on v5e, and on v4."""

PARTS_AT_ONCE = 2
"""How many parts a loop's slice takes."""


def cut_across(graph: Graph, of: Coefficients) -> Mapping[int, float]:
    """Cycles of the copies by the values that are copied."""
    cut = set(_cut(graph))
    if not cut:
        return {}
    makers = {value: op for op in graph.ops for value in op.results}
    softmax = [op for op in graph.of_kind(REDUCE) if _is_of_softmax(graph, op)]
    logits = {value for op in softmax for value in _products(graph, makers, op.operands[0])}
    found = dict[int, float]()
    for value in cut:
        maker = makers.get(value)
        is_padded = maker is not None and maker.kind == PAD
        copied = maker.operands[0] if maker is not None and is_padded else value
        for beside in logits.intersection(_products(graph, makers, copied)):
            found[copied] = _cycles(graph, copied, beside, of, is_padded=is_padded)
    return found


def _cut(graph: Graph) -> Iterator[int]:
    """The values of whose last dim loops take parts for products that do not add up along it, none of whole lanes."""
    for loop in graph.nesting:
        if loop.kind != LOOP:
            continue
        body = loop.bodies[0]
        given = dict(zip(body.arguments, loop.operands, strict=False))
        slices = (op for op in body.of_kind(SLICE) if "step" in op.attributes and op.operands[0] in given)
        cutting = {op.results[0]: op for op in slices}
        for product in body.of_kind(PRODUCT) if cutting else ():
            for side, value in zip(("lhs", "rhs"), product.operands, strict=True):
                if value in cutting and _is_across(body, cutting[value], product, side):
                    yield given[cutting[value].operands[0]]


def _is_across(body: Graph, cutting: Op, product: Op, side: str) -> bool:
    whole, part = (body.shape(value) for value in (cutting.operands[0], cutting.results[0]))
    last = len(whole) - 1
    is_summed = last in product.attributes.get(f"{side}_contracting_dimensions", ())
    return whole[:last] == part[:last] and not is_summed and part[last] // PARTS_AT_ONCE % LANES != 0


def _is_of_softmax(graph: Graph, op: Op) -> bool:
    """Whether a reduction finds the largest along the last dim."""
    last = len(graph.shape(op.operands[0])) - 1
    return op.attributes.get("reducer") == MAXIMUM and last in op.attributes.get("dimensions", ())


def _products(graph: Graph, makers: Mapping[int, Op], value: int) -> Iterator[int]:
    """What products make of which a value is computed number by number, all of it as wide."""
    width, seen, waiting = graph.shape(value)[-1:], set[int](), [value]
    while waiting:
        number = waiting.pop()
        maker = makers.get(number)
        if maker is None or number in seen or graph.shape(number)[-1:] != width:
            continue
        seen.add(number)
        if maker.kind == PRODUCT:
            yield number
        elif maker.kind in KEEPING:
            waiting += maker.operands


def _cycles(graph: Graph, value: int, logits: int, of: Coefficients, *, is_padded: bool) -> float:
    """Cycles of a copy: it crosses to memory where it is read, unless the value finds room in fast memory that the
    logits leave, and where it is written, unless it finds room there; what a pad makes of it does instead (v5e).
    """
    copied, room = graph.values[value], of.held_near_bytes
    num_bytes, beside = padded_bytes(copied), padded_bytes(graph.values[logits])
    crossings = (num_bytes + (beside if beside <= room else 0) > room) + (is_padded or num_bytes > room)
    turning = CROSSING_CYCLES if of.near_total_bytes else EARLY_CROSSING_CYCLES
    return max(1, crossings) * (num_bytes * of.byte_cycles + turning * copied.num_elements / REGISTER_ELEMENTS)
