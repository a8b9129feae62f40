"""What is copied across for loops that multiply as sums go round: what a weight's gradient is of lies with what it sums
on the lanes.

Such a loop sums over the batch and the places of a sequence; the compiler lays the operand whose features are the
gradient's rows out across (``bf16[2,1024,4096]{1,2,0}``), and nothing else has it so. Where the gradient is transposed
behind the loop, as a tied head's is, its columns are the rows. The copy is there for all loops that read it. What is
padded for one, as that head's scores are, is copied before. Seen on v5e and v5p.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...fusion.nature import SLICE
from ...graph import Graph, Op
from ...kernels import Program
from ...kinds import COLLECTIVE_PERMUTE
from .taken_in_pieces import NARROW, Beside
from .tiles import padded_bytes

FEWEST_SUMMED = 2
PASSING = frozenset({"add", "convert", COLLECTIVE_PERMUTE})


def copied_across(program: Program, *, early: bool) -> Iterator[Beside]:
    """The copies: each made before the first loop that reads it, what is to be padded before that, or ``early``, as
    soon as it is there.
    """
    graph = program.graph
    makers = {value: point for point, kernel in enumerate(program.kernels) for value in kernel.writes}
    read: dict[int, list[int]] = {}
    turned = _turned(graph) if graph.nesting else frozenset[int]()
    for point, kernel in enumerate(program.kernels) if graph.nesting else ():
        loop = graph.ops[kernel.ops[-1]]
        for value in _laid_across(loop, not turned.isdisjoint(loop.results)):
            read.setdefault(value, []).append(point)
    for value, points in read.items():
        maker = makers.get(value, -1)
        padded = _padded(graph, program.kernels[maker].ops) if maker >= 0 else None
        if padded is None:
            yield _copy(graph, value, (points[0], points[-1]))
        else:
            yield _copy(graph, padded, (makers.get(padded, maker) if early else maker, maker))


def _copy(graph: Graph, value: int, span: tuple[int, int]) -> Beside:
    return Beside(value, span, padded_bytes(replace(graph.values[value], dtype=NARROW)))


def _turned(graph: Graph) -> frozenset[int]:
    """What is transposed in the end, though it may be sent, added up and rounded before."""
    found = set[int]()
    for op in reversed(graph.ops):
        turns = op.kind == "transpose" and op.attributes.get("permutation") == (1, 0)
        if turns or (op.kind in PASSING and not found.isdisjoint(op.results)):
            found.update(op.operands)
    return frozenset(found)


def _laid_across(loop: Op, is_turned: bool) -> Iterator[int]:
    """The operands of a loop of several turns of which products make the rows of sums that go round, or the columns of
    what ``is_turned`` behind it.
    """
    for body in loop.bodies[:1] if loop.kind == "while" and loop.turns else ():
        if body.goes_round:
            given = dict(zip(body.arguments, loop.operands, strict=False))
            sliced = {op.results[0]: op.operands[0] for op in body.ops if op.kind == SLICE}
            rows = (op.operands[is_turned] for op in body.of_kind("dot_general") if _sums_several(op))
            yield from dict.fromkeys(given[v] for v in (sliced.get(v, v) for v in rows) if v in given)


def _sums_several(product: Op) -> bool:
    """Whether a product sums over several dims, the first of both operands, and is no batch."""
    said = product.attributes
    summed, batch = said.get("lhs_contracting_dimensions", ()), said.get("lhs_batching_dimensions", ())
    return not batch and len(summed) >= FEWEST_SUMMED and 0 in summed


def _padded(graph: Graph, ops: tuple[int, ...]) -> int | None:
    """What a kernel pads that does nothing else but round it."""
    pads = [graph.ops[number] for number in ops if graph.ops[number].kind == "pad"]
    return pads[0].operands[0] if len(pads) == len(ops) == 1 else None
