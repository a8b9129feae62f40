"""A solution by the paths of a plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..graph import Op, Sharding
from .decode import ended, laid_out
from .wires import Wiring

TURN = re.compile(r"(.*)/(\d+)$")


def operand_path(path: str, position: int) -> str:
    """The path of an operand of the operation that makes the value at ``path``, as it reads it."""
    turn = TURN.match(path)
    return f"{path}.in{position}" if turn is None else f"{turn[1]}.in{position}/{turn[2]}"


def named_layouts(wiring: Wiring, choices: Sequence[int]) -> dict[str, Sharding]:
    """The layouts of arguments and results, of every value that has a path, and of operands that are read otherwise."""
    found: dict[str, Sharding] = {}
    for level in wiring.levels:
        solved = laid_out(wiring, level, choices)
        graph = level.graph
        results = solved.layouts | (ended(wiring, choices) if not level.number else {})
        for path, value in _named(graph.names, graph.arguments):
            found[path] = solved.layouts[value]
        for path, value in _named(graph.result_names, graph.results):
            if value in results:
                found[path] = results[value]
        for number, op in enumerate(graph.ops):
            own = op.origin.value
            if own is None or number not in solved.nodes:
                continue
            found[own] = solved.layouts[op.results[0]]
            for place, operand in enumerate(op.operands):
                if (number, operand) in solved.wanted:
                    product = op.origin.exchanged
                    path = operand_path(own, _place(op, place)) if product is None else operand_path(product, 1 - place)
                    found[path] = solved.wanted[number, operand]
    return found


def _place(op: Op, place: int) -> int:
    """Where a step says an operand: it selects by a number, so what an operation takes if true comes last."""
    return 3 - place if op.kind == "select" and place else place


def _named(names: Sequence[str], values: Sequence[int]) -> Iterator[tuple[str, int]]:
    return zip(names, values, strict=False)
