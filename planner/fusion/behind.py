"""What operations read behind barriers, known after these are gone: alike computations stay apart until then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..graph import Graph
from .nature import BARRIER
from .simplify import merged

At = tuple[int, int]
"""An operation, by its first result, and a place of it: a value that it reads, or the number of a body."""

Waits = tuple[int, ...]
"""All that a barrier takes, and those before it: what reads behind it waits for these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """The values that a graph's operations read behind barriers, with what they wait for, and those inside of loops.

    Values have the numbers that they have in the simplified graph.
    """

    reads: Mapping[At, Waits] = field(default_factory=dict)
    bodies: Mapping[At, Behind] = field(default_factory=dict)


NOTHING = Behind()


def behind(graph: Graph) -> Behind:
    """What the operations of a graph read behind barriers."""
    if not any(op.kind == BARRIER for _, op, _ in graph.walk()):
        return NOTHING
    once = replace(graph, **merged(graph))
    same: dict[int, int] = {}
    after: dict[int, Waits] = {}
    reads: dict[At, Waits] = {}
    bodies: dict[At, Behind] = {}
    for op in once.ops:
        taken = [same.get(value, value) for value in op.operands]
        if op.kind == BARRIER:
            before = (value for operand in op.operands for value in after.get(operand, ()))
            waits = tuple(dict.fromkeys((*taken, *before)))
            same.update(zip(op.results, taken, strict=True))
            after.update(dict.fromkeys(op.results, waits))
        elif op.results:
            pairs = zip(op.operands, taken, strict=True)
            reads.update({(op.results[0], real): after[value] for value, real in pairs if value in after})
            bodies.update({(op.results[0], place): behind(body) for place, body in enumerate(op.bodies)})
    return Behind(reads=reads, bodies={at: inside for at, inside in bodies.items() if inside != NOTHING})
