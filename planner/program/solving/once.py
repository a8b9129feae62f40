"""What a step computes once, though products read it twice, each from a copy of its own (``step/twice``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...graph import Graph
from ...partition.layout import extends
from ..wiring.wires import Level

if TYPE_CHECKING:
    from .decode import LaidOut


def computed_once(level: Level, found: LaidOut, copied: Mapping[int, int]) -> tuple[Mapping[int, int], LaidOut]:
    """What is computed of copies, by what it is the same as: a step that has it at one place alone has it once. Then
    who needs less of it cuts its part out of what the other needs, or it is brought from how it lies first.
    """
    if not copied:
        return {}, found
    graph, apart = level.graph, twins(level, copied)
    makers = {value: number for number, op in enumerate(graph.ops) for value in op.results}
    once = {copy: of for copy, of in _computed(graph, makers, copied) if copy not in apart}
    layouts, wanted, nodes = dict(found.layouts), dict(found.wanted), dict(found.nodes)
    for copy, of in once.items():
        own, other = found.layouts.get(of), found.layouts[copy]
        if own is not None and (own == other or not extends(own, other)):
            continue
        layouts[of] = other
        for number, op in enumerate(graph.ops):
            if own is not None and of in op.operands:
                wanted.setdefault((number, of), own)
        first, second = makers[of], makers[copy]
        nodes.setdefault(first, found.nodes[second])
        for read, again in zip(graph.ops[first].operands, graph.ops[second].operands, strict=True):
            wanted[first, read] = found.wanted.get((second, again), found.layouts[again])
    return once, replace(found, layouts=layouts, wanted=wanted, nodes=nodes)


def twins(level: Level, copied: Mapping[int, int]) -> dict[int, int]:
    """What is computed of copies that a step computes itself at another place, as ``f(x) @ f(x).T`` does, and of that:
    XLA has both once where they lie alike. By each the value that it is the same as.
    """
    if not copied:
        return {}
    graph = level.graph
    makers = {value: number for number, op in enumerate(graph.ops) for value in op.results}
    readers: dict[int, set[int]] = {}
    for op in graph.ops:
        for value in op.operands:
            readers.setdefault(value, set()).update(op.results)
    computed = sorted(_computed(graph, makers, copied))
    found = dict[int, int]()
    for copy, of in reversed(computed):  # what is a part of a place has no path
        origin = graph.ops[makers[of]].origin
        if origin.also or (origin.value is None and not found.keys().isdisjoint(readers.get(copy, ()))):
            found[copy] = of
    for copy, of in computed:
        if not found.keys().isdisjoint(graph.ops[makers[copy]].operands):
            found[copy] = of
    return found


def _computed(graph: Graph, makers: Mapping[int, int], copied: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """What is computed of copies, each with what it is the same as."""
    yield from ((copy, of) for copy, of in copied.items() if graph.ops[makers[copy]].kind != "copy")


def unread(graph: Graph, once: Mapping[int, int]) -> frozenset[int]:
    """The operations that make what is computed once already, and copies that nothing else reads."""
    if not once:
        return frozenset()
    left = {number for number, op in enumerate(graph.ops) if op.results and once.keys() >= {*op.results}}
    read = {value for number, op in enumerate(graph.ops) if number not in left for value in op.operands}
    for number in left.copy():
        makers = (at for at, op in enumerate(graph.ops) if not {*op.results}.isdisjoint(graph.ops[number].operands))
        left.update(at for at in makers if graph.ops[at].kind == "copy" and read.isdisjoint(graph.ops[at].results))
    return frozenset(left)
