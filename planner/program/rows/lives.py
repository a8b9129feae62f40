"""What is live over the step, as its kernels stand: the points of the rows of memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...fusion.nature import PRODUCTS, VIEWS
from ...graph import Graph, Value
from ...kernels import Kernel
from ...memory.tensors.tiles import stored_bytes
from ...partition.layout import local_shape
from ..step.nest import SLICE
from ..step.passing import own_reads
from ..wiring.reading import rounded_reads
from ..wiring.wires import Level, Node, Port, Wiring


@dataclass(frozen=True, slots=True)
class Span:
    """A value that a node lays out, from one point of the step to the one before another."""

    level: int
    value: int
    begin: int
    end: int


def spans(wiring: Wiring, *, with_results: bool = False) -> Iterator[Span]:
    """The temporaries of all levels. Points are the kernels in order, those of a loop where it stands. What the step is
    given and what it leaves is there at every point, and is none; ``with_results`` has what it leaves from where that
    is made, but for what lies where something given did. Nor is what has no memory of its own: what is computed in
    passing or cut out of a kernel, views of what is given, what may be written where an operand lies, parts that loops
    take of stacks or put into them. Loops and branches leave what they make where it lies outside of them, and loops
    what they carry where it lay before.
    """
    begins: dict[int, tuple[int, int]] = {}
    _number(wiring, wiring.levels[0], 0, begins)
    for level in wiring.levels:
        yield from _level_spans(wiring, level, begins, with_results=with_results and level.number == 0)


def points(wiring: Wiring) -> dict[tuple[int, int], int]:
    """The point at which each kernel begins, by its level and its position there."""
    begins: dict[int, tuple[int, int]] = {}
    _number(wiring, wiring.levels[0], 0, begins)
    found: dict[tuple[int, int], int] = {}
    for level in wiring.levels:
        point, _ = begins[level.number]
        for position in range(len(level.program.kernels)):
            found[level.number, position] = point
            point = max((begins[number][1] for number in level.inner.get(position, ())), default=point + 1)
    return found


@dataclass(frozen=True, slots=True)
class Brought:
    """A value that several read in the layout that a node chooses, into which it is brought: from the first point that
    reads it so to the one before another. ``narrow`` says that it is rounded for them.
    """

    level: int
    value: int
    port: Port
    begin: int
    end: int
    narrow: bool
    is_all: bool


def brought(wiring: Wiring) -> Iterator[Brought]:
    """What is brought into another layout for several; ``is_all`` of it where all who read a value do so."""
    begins = points(wiring)
    for level in wiring.levels:
        several: dict[tuple[int, int], list[int]] = {}
        for position, node in level.kernels.items():
            for value in own_reads(level.graph, level.program.kernels[position]):
                through = wiring.through.get((wiring.shared.get(node, node), value), -1)
                several.setdefault((value, through), []).append(position)
        read = Counter(value for value, _ in several)
        for (value, node), positions in several.items():
            if node < 0 or value not in wiring.nodes[node].layouts:
                continue
            kernels = (level.program.kernels[position] for position in positions)
            narrow = all(value in rounded_reads(wiring, level.graph, kernel) for kernel in kernels)
            at = [begins[level.number, position] for position in positions]
            port = Port(node, tuple(wiring.nodes[node].layouts[value]))
            yield Brought(level.number, value, port, min(at), max(at) + 1, narrow, read[value] == 1)


def part_bytes(wiring: Wiring, port: Port, value: Value) -> NDArray[np.int64]:
    """What one device holds of a value under each choice, on a TPU with tiles filled up."""
    mesh, stored = wiring.reshards.mesh, stored_bytes(is_tpu=wiring.reshards.target.is_tpu)
    sizes = {
        layout: stored(replace(value, shape=local_shape(value.shape, layout, mesh)))
        for layout in dict.fromkeys(port.layouts)
    }
    return np.array([sizes[layout] for layout in port.layouts], np.int64)


def _number(wiring: Wiring, level: Level, point: int, begins: dict[int, tuple[int, int]]) -> int:
    """Gives each level its points, from the first to the one before another."""
    first = point
    for position in range(len(level.program.kernels)):
        if position in level.inner:
            for number in level.inner[position]:
                point = _number(wiring, wiring.levels[number], point, begins)
        else:
            point += 1
    begins[level.number] = (first, max(point, first + 1))
    return max(point, first + 1)


def _level_spans(
    wiring: Wiring, level: Level, begins: dict[int, tuple[int, int]], *, with_results: bool
) -> Iterator[Span]:
    graph, kernels = level.graph, level.program.kernels
    point, end = begins[level.number]
    kept = {left for position, left in enumerate(graph.results) if with_results and position not in graph.aliases}
    elsewhere = _elsewhere(level, kept)
    free, within = wiring.strategies.known.free, wiring.strategies.known.within
    apart = wiring.strategies.known.cuts.apart.get(id(graph), set[int]())
    handed = {id(each) for each in kernels if id(each) in free and not _is_view(graph, each, VIEWS | {SLICE})}
    put = {value for kernel in kernels if id(kernel) in handed for value in kernel.reads}
    made: dict[int, int] = {}
    last: dict[int, int] = {}
    products_at: dict[int, int] = {}
    for position, kernel in enumerate(kernels):
        until = point + 1
        if position in level.inner:
            until = max(begins[number][1] for number in level.inner[position])
        if id(kernel) in handed:
            point = until
            continue
        left = () if id(kernel) in within else kernel.writes
        carried = _carried(graph, kernel)
        for value in own_reads(graph, kernel) if not kernel.bodies else kernel.reads:
            last[value] = point if value in carried else until
        products = [read for read in kernel.reads if _is_ended(wiring, level, read)]
        for value in left:
            in_place = not kernel.bodies and _lies_in_place(graph, kernel, value, products)
            made[value] = until if in_place else min([point, *(products_at[read] for read in products)])
            last[value] = made[value] if value in put else until
            products_at[value] = point
        point = until
    last |= dict.fromkeys(kept & made.keys(), end)
    for value, begin in made.items():
        port = None if value in elsewhere | apart or not graph.values[value].shape else level.source.get(value)
        if port is not None and begin < last[value] and not _is_passing(wiring.nodes[port.node]):
            yield Span(level.number, value, begin, last[value])


def _elsewhere(level: Level, kept: set[int]) -> set[int]:
    """What lies in the memory of arguments, of results but those ``kept``, or of whom a body is of; what results are
    views of may lie where those do.
    """
    graph = level.graph
    left = set(graph.results)
    for kernel in reversed(level.program.kernels):
        if _is_view(graph, kernel) and left.intersection(kernel.writes):
            left.update(kernel.reads)
    found = {*graph.arguments, *left} - kept
    for kernel in level.program.kernels:
        if _is_view(graph, kernel) and found.intersection(kernel.reads):
            found.update(kernel.writes)
        elif kernel.bodies:
            loop, body = graph.ops[kernel.ops[-1]], kernel.bodies[0].graph
            turns = zip(loop.results, loop.operands, body.arguments, body.results, strict=False)
            found.update(made for made, given, before, after in turns if before == after and given in found)
    return found


def _is_view(graph: Graph, kernel: Kernel, kinds: Container[str] = VIEWS) -> bool:
    return all(graph.ops[number].kind in kinds for number in kernel.ops)


def _carried(graph: Graph, kernel: Kernel) -> set[int]:
    """What a loop changes where it lies, if nothing reads it later."""
    loop = graph.ops[kernel.ops[-1]]
    return set(loop.operands[: len(loop.results)]) if kernel.bodies and loop.kind == "while" else set()


def _lies_in_place(graph: Graph, kernel: Kernel, value: int, products: Sequence[int]) -> bool:
    """Whether a kernel may write a value where something that it reads lies, number by number, which ends ``products``
    that themselves lie nowhere.
    """
    if any(graph.ops[number].kind in PRODUCTS for number in kernel.ops):
        return False
    known = graph.values[value]
    others = (graph.values[read] for read in kernel.reads if read not in products)
    return any(other.num_elements == known.num_elements and other.bits == known.bits for other in others)


def _is_ended(wiring: Wiring, level: Level, value: int) -> bool:
    """Whether a product makes a value for what ends it."""
    port = level.source.get(value)
    return port is not None and wiring.nodes[port.node].ended is not None


def _is_passing(node: Node) -> bool:
    """Whether what it makes is left inside of others."""
    return node.in_passing or node.ended is not None
