"""Operations that propagation adds to a shorter step stand for as many as what they belong to."""

from __future__ import annotations

from dataclasses import replace

from ....planner.graph import Graph


def inherited(graph: Graph) -> Graph:
    """The graph, each operation of no place in the model repeated as what makes its operand, else as its readers are.

    Propagation brings results, and arguments, into their layouts by such operations.
    """
    nowhere = [number for number, op in enumerate(graph.ops) if op.origin.scope is None and op.operands]
    if not nowhere:
        return graph
    ops = list(graph.ops)
    maker = {value: number for number, op in enumerate(ops) for value in op.results}
    readers: dict[int, set[int]] = {}
    for op in ops:
        for value in op.operands:
            readers.setdefault(value, set()).add(op.origin.repeats)
    for number in nowhere:
        op = ops[number]
        made = [ops[maker[value]].origin.repeats for value in op.operands if value in maker]
        read = set[int]().union(*(readers.get(value, set()) for value in op.results))
        repeats = max(made) if made else (read.pop() if len(read) == 1 else 1)
        ops[number] = replace(op, origin=replace(op.origin, repeats=repeats))
    return replace(graph, ops=tuple(ops))
