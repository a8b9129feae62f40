"""The names of what operations read."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .graph import Graph, Op
from .ranked import RANKS

PAIR = 2
TURN = re.compile(r"(.*)/(\d+)$")
OPERAND = re.compile(r"\.in\d+(?=$|/)")
OF_SEVERAL = re.compile(r"(\.\d+)\.\d+$")


def operand_path(path: str, position: int) -> str:
    """The path of an operand of the operation that makes the value at ``path``, as it reads it: of one that makes
    several (``split.0.2``) all of them read the same.
    """
    turn = TURN.match(path)
    stem = OF_SEVERAL.sub(r"\1", path if turn is None else turn[1])
    return f"{stem}.in{position}" if turn is None else f"{stem}.in{position}/{turn[2]}"


def maker_path(path: str) -> str:
    """The path of the operation's value whose operand has this path; any other path as it is."""
    return OPERAND.sub("", path)


def operand_paths(op: Op, place: int, paths: Sequence[str]) -> tuple[str, ...]:
    """The paths of an operand of an operation with these."""
    if op.origin.reads:
        return tuple(filter(None, op.origin.reads[place : place + 1]))
    swapped = op.origin.swapped if len(op.operands) == PAIR else ()
    return tuple(operand_path(path, 1 - place if path in swapped else _place(op, place)) for path in paths)


def readers_of(graph: Graph) -> dict[int, tuple[str, ...]]:
    """The operations that read a place's own operands, with its path and those of others that they compute too.

    A place is one operation, or several of which the last has its path: a gather, and the choice of what it found or,
    where it was asked for what there is not, of something else. What ranks makes several values with a path each, and
    reads the same for all.
    """
    gathers = {op.results[0]: n for n, op in enumerate(graph.ops) if op.kind == "gather" and op.origin.value is None}
    found: dict[int, tuple[str, ...]] = {}
    for number, op in enumerate(graph.ops):
        if op.origin.value is not None:
            of = [gathers[operand] for operand in op.operands if operand in gathers] if op.kind == "select" else []
            found[of[0] if of else number] = (op.origin.value, *op.origin.also)
        elif op.kind in RANKS and op.origin.values:
            found[number] = (op.origin.values[0][1],)
    return dict(sorted(found.items()))


def _place(op: Op, place: int) -> int:
    """Where a step says an operand: it selects by a number, so what an operation takes if true comes last."""
    return 3 - place if op.kind == "select" and place else place
