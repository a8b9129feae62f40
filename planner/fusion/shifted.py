"""A product's result shifted row by row, as ``logits - max``: written where part of what is made of it is read."""

from __future__ import annotations

from ..graph import Graph, Op
from .nature import BROADCAST, ELEMENTWISE, IN_PASSING, PRODUCTS, widens
from .uses import Uses


def is_shared_shift(graph: Graph, uses: Uses, op: Op) -> bool:
    """Whether it shifts or scales a product's result row by row, as ``logits - max``, and is read more than once."""
    if len(op.operands) != 2 or op.kind not in ELEMENTWISE or len(uses.next_ops(op.results[0])) < 2:
        return False
    kinds = {_before_widening(graph, uses, value) for value in op.operands}
    shifts = BROADCAST in kinds and not PRODUCTS.isdisjoint(kinds) and not _is_uniform(graph, uses, op)
    return shifts and _is_cut(graph, uses, op)


def _before_widening(graph: Graph, uses: Uses, value: int) -> str | None:
    """What kind of operation makes a value, before it is made wider."""
    maker = uses.makers.get(value)
    while maker is not None and widens(graph, graph.ops[maker]):
        maker = uses.makers.get(graph.ops[maker].operands[0])
    return None if maker is None else graph.ops[maker].kind


def _is_cut(graph: Graph, uses: Uses, op: Op) -> bool:
    """Whether a part is read of what is computed of an operation's result."""
    near = [graph.ops[number] for number in uses.next_ops(op.results[0])]
    beyond = [graph.ops[n] for each in near if each.kind in ELEMENTWISE for n in uses.next_ops(each.results[0])]
    return any(each.kind == "slice" for each in (*near, *beyond))


def _is_uniform(graph: Graph, uses: Uses, op: Op) -> bool:
    """Whether an operand is one number everywhere."""
    makers = (graph.ops[uses.makers[value]] for value in op.operands if value in uses.makers)
    return any(each.kind == BROADCAST and graph.values[each.operands[0]].num_elements == 1 for each in makers)


def is_made_wider_again(graph: Graph, uses: Uses, op: Op, root: Op) -> bool:
    """Whether what reads a shared shift of a narrow product's result computes it again from that: all but its parts."""
    made = (graph.ops[uses.makers[value]] for value in op.operands if value in uses.makers)
    part = graph.values[root.results[0]].num_elements < graph.values[op.results[0]].num_elements
    return not (part and root.kind in IN_PASSING) and any(widens(graph, each) for each in made)
