"""What of a loop is done or brought once for all of its turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..fusion.nature import VIEWS
from ..graph import Graph
from ..kernels import Kernel, Program
from .work import padded_bytes

STACKED = frozenset({"dynamic_slice", "dynamic_update_slice", "gather", "scatter"})


def unchanged(body: Graph) -> frozenset[int]:
    """What every turn of a loop is given alike: what it reads from outside, and what it hands on as it came."""
    carried = dict(zip(body.arguments, body.results, strict=False))
    return frozenset(value for value in body.arguments if carried.get(value, value) == value)


def is_hoisted(graph: Graph, kernel: Kernel) -> bool:
    """Whether the compiler takes a kernel out of a loop whose turns give it the same: a conversion to fewer bits."""
    kinds = {graph.ops[number].kind for number in kernel.ops}
    before, after = (sum(graph.values[v].num_bytes for v in values) for values in (kernel.reads, kernel.writes))
    return "convert" in kinds and kinds <= VIEWS | {"convert"} and after <= before


class Staying(NamedTuple):
    """A value that stays, with those that take its place in the next turn if it ``changes``."""

    values: tuple[int, ...]
    changes: bool


def staying(body: Program) -> Iterator[Staying]:
    """What the compiler would keep in vector memory throughout a loop, that most worth it first.

    That is what turns are given alike, or what was converted of it before the loop, and what each turn hands on to the
    next one, whose place its own takes. Of what is read only part by part nothing is kept.
    """
    graph = body.graph
    alike = unchanged(graph)
    fixed, uses = set(alike), dict.fromkeys(range(len(graph.values)), 0)
    for kernel in body.kernels:
        if kernel.reads and fixed.issuperset(kernel.reads) and is_hoisted(graph, kernel):
            fixed.update(kernel.writes)
            continue
        parts = {graph.ops[op].operands[0] for op in kernel.ops if graph.ops[op].kind in STACKED}
        for value in set(kernel.reads) - parts:
            uses[value] += 1
    carried = {(a, r) for a, r in zip(graph.arguments, graph.results, strict=False) if a not in alike}
    found = [*((value,) for value in sorted(fixed)), *sorted(carried)]
    sized = [(uses[values[0]], padded_bytes(graph.values[values[0]]), values) for values in found]
    for count, _, values in sorted(sized, key=lambda each: (-each[0], each[1])):
        if count:
            yield Staying(values, len(values) > 1)


def renamed(stays: Iterable[Staying], numbers: Sequence[int]) -> tuple[Staying, ...]:
    """What stays of a part that has these values, by their places there."""
    place = {number: position for position, number in enumerate(numbers)}
    found = (Staying(tuple(place[v] for v in values if v in place), changes) for values, changes in stays)
    return tuple(each for each in found if each.values)
