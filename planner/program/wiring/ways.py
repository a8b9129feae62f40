"""Ways: layouts in between, by which what several readers share is brought on once for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...fusion.nature import VIEWS
from ...graph import Sharding, Value
from .wires import Level, Port, Sharing, Wiring, only_to

QUICKER = 0.98
"""What part of the time at once a way in two steps takes at most to be one."""
TWICE = 1e-2
"""What part of a solution's costs its readers have to pay for second steps that others pay too for ways to be opened.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Into a layout ``to`` by way of one, with what the second step takes."""

    by: Sharding
    to: Sharding
    then_s: float


def ways_to(wiring: Wiring, known: Value, sources: Sequence[Sharding], offered: Sequence[Sharding]) -> list[Way]:
    """The ways by which offered layouts are reached from some source in less time than at once, in a second step that
    takes some.
    """
    ours, theirs = list(dict.fromkeys(sources)), list(dict.fromkeys(offered))
    at_once, then = wiring.reshards.table(known, ours, theirs), wiring.reshards.table(known, theirs, theirs)
    found: dict[tuple[int, int], None] = {}
    for start in at_once:
        by_way = start[:, None] + then
        best = by_way.argmin(axis=0)
        quicker = np.flatnonzero(by_way.min(axis=0) < start * QUICKER)
        found |= {(int(best[to]), int(to)): None for to in quicker}
    ways = (Way(by=theirs[by], to=theirs[to], then_s=float(then[by, to])) for by, to in found)
    return [way for way in ways if way.then_s > 0]


def in_vain(
    wiring: Wiring, known: Value, sources: Sequence[Sharding], fixed: int, ways: Sequence[Way]
) -> NDArray[np.float64]:
    """Forbids ways that from where a value is made take no less than going there at once: behind ``fixed`` choices."""
    then, table = np.array([way.then_s for way in ways]), wiring.reshards.table
    by_way = table(known, sources, [way.by for way in ways]) + then
    is_quicker = by_way < table(known, sources, [way.to for way in ways]) * QUICKER
    return np.concatenate([np.zeros((len(sources), fixed)), np.where(is_quicker, 0.0, np.inf)], axis=1)


def can_be_left(level: Level, value: int) -> bool:
    """Whether a plan can leave a value in another layout than it is made in: it has a path, of which a plan with holes
    says nothing, and is only another one turned, which has one too and no other use. Behind barriers values have no
    paths: where a level has some, none can be left.
    """
    graph = level.graph
    maker = next((op for op in graph.ops if value in op.results), None)
    if maker is None or maker.kind not in VIEWS or level.behind:
        return False
    before = maker.operands[0]
    if value in level.pinned or any(read == value for _, read in level.asked) or {value, before} & {*graph.results}:
        return False
    own = {each for op in graph.ops for each, _ in op.named}
    return own.issuperset((value, before)) and sum(before in op.operands for op in graph.ops) == 1


def open_ways(wiring: Wiring, leader: NDArray[np.int64], choices: Sequence[int], cost_s: float) -> bool:
    """Adds ways, as choices of their own, to what is shared where a solution pays second steps of several readers that
    are the same, if that is much of what it costs and a plan can say it; whether any were. Nodes and choices keep their
    numbers. What has ways is no more among what may get some (``sharing``).
    """
    twice = {
        node: again_s
        for node, sharing in wiring.sharing.items()
        if (again_s := _paid_again_s(wiring, node, choices)) > 0
        and can_be_left(wiring.levels[wiring.nodes[node].level], sharing.value)
    }
    if sum(twice.values()) < TWICE * cost_s:
        return False
    opened = {int(leader[node]) for node in twice}
    several: dict[int, list[int]] = defaultdict(list)
    for node in sorted(wiring.sharing):
        if leader[node] in opened:
            several[int(leader[node])].append(node)
    return sum(_open(wiring, nodes) for nodes in several.values()) > 0


def _paid_again_s(wiring: Wiring, node: int, choices: Sequence[int]) -> float:
    """What the readers of what is shared pay that another of them pays too."""
    sharing, by_want = wiring.sharing[node], defaultdict[Sharding, list[float]](list)
    lies = sharing.layouts[choices[node]]
    for port in sharing.ports:
        want, ends = port.layouts[choices[port.node]], (min(node, port.node), max(node, port.node))
        if want != lies and ends in wiring.tables:
            by_want[want].append(float(wiring.tables[ends][choices[ends[0]], choices[ends[1]]]))
    return sum(sum(each) - max(each) for each in by_want.values())


def _open(wiring: Wiring, nodes: Sequence[int]) -> bool:
    """Adds the same ways to nodes that decide as one."""
    every = [wiring.sharing[node] for node in nodes]
    sources = [layout for each in every for layout in each.source.layouts]
    known = every[0].known
    ways = ways_to(wiring, known, sources, every[0].offered)
    if not ways:
        return False
    for node, sharing in zip(nodes, every, strict=True):
        fixed, own = len(sharing.layouts), wiring.nodes[node]
        own.costs = np.concatenate([own.costs, [sharing.times * way.then_s for way in ways]])
        own.layouts = {value: [*several, *(way.by for way in ways)] for value, several in own.layouts.items()}
        first = fixed - len(sharing.offered)  # of those that are offered, behind what is as it is made
        _widen(wiring, node, [first + sharing.offered.index(way.by) for way in ways])
        wiring.ways[node] = tos = [*wiring.ways.get(node, [None] * fixed), *(way.to for way in ways)]
        shared = Port(node, tuple(own.layouts[sharing.value]))
        for ends, table in list(_with_readers(wiring, node, sharing, tos, shared)):
            wiring.tables[ends] = table
        wiring.hand_on(sharing.source, shared, in_vain(wiring, known, sharing.source.layouts, fixed, ways))
        del wiring.sharing[node]
    return True


def _widen(wiring: Wiring, node: int, like: Sequence[int]) -> None:
    """More choices of a node, that are with others as these of its choices are."""
    for tables in (wiring.tables, wiring.together):
        for ends, table in tables.items():
            if node in ends:
                axis = ends.index(node)
                tables[ends] = np.concatenate([table, np.take(table, like, axis)], axis)


def _with_readers(
    wiring: Wiring, node: int, sharing: Sharing, ways: Sequence[Sharding | None], shared: Port
) -> Iterator[tuple[tuple[int, int], NDArray[np.float64]]]:
    """The tables of what is shared with its readers, by ways."""
    for port in sharing.ports:
        ends = min(node, port.node), max(node, port.node)
        if ends in wiring.tables:
            table = wiring.tables[ends]
            by_rows = only_to(ways, shared, port, table if node < port.node else table.T)
            yield ends, by_rows if node < port.node else by_rows.T
