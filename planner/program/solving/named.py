"""A solution by the paths of a plan."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence

from ...fusion.behind import Waits
from ...fusion.nature import PRODUCTS
from ...graph import Graph, Op, Sharding
from ...operands import operand_paths, readers_of
from ...partition.layout import extends
from ..step.nest import SLICE
from ..wiring.inside import computed_twice
from ..wiring.wires import Level, Wiring
from .decode import LaidOut, ended, laid_out
from .once import twins

ARITHMETIC = frozenset({"add", "subtract", "multiply", "divide", "maximum", "minimum"}) | PRODUCTS
"""What stands for a place whole: others may be the last of several, whose operands are not the place's."""

TURNED = re.compile(r"(^|/)transpose\.")


def named_layouts(wiring: Wiring, choices: Sequence[int]) -> dict[str, Sharding]:
    """The layouts of arguments and results, of every value that has a path, and of operands that are read otherwise.

    What only a loop begins with lies as the loop carries it, of which no path tells. One place that is cut out of a dim
    lies as that does, which propagation finds. Blocks that repeat may share their paths: then it is as most of them
    have it.
    """
    said = _Said()
    every = [laid_out(wiring, level, choices) for level in wiring.levels]
    opened = _opened(wiring)
    for level, solved in zip(wiring.levels, every, strict=True):
        graph, carried = level.graph, _carried(wiring, level, every)
        results = solved.layouts | (ended(wiring, choices) if not level.number else {})
        for path, value in _named(graph.names, graph.arguments):
            said.say(path, solved.layouts[value])
        for path, value in _named(graph.result_names, graph.results):
            if value in results:
                said.say(path, results[value])
        again, between = _again(graph), {**_once(wiring, level, solved), **solved.between}
        for number, op in enumerate(graph.ops):
            for value, own in _named_last(op):
                is_laid = value in solved.layouts and (number in solved.nodes or bool(op.bodies))
                shape = graph.shape(value)
                if shape and is_laid and number not in again:
                    lies = between.get(value, solved.layouts[value])
                    if op.kind == SLICE and any(size == 1 and axes for size, axes in zip(shape, lies, strict=True)):
                        continue
                    said.say(own, carried.get(value, lies), op.origin.repeats)
        _say_of_twins(said, wiring, level, solved)
        readers = {number: paths for number, paths in readers_of(graph).items() if number not in again}
        beside = _beside(level, solved, readers, opened.get(level.number, set()))
        for number, paths in readers.items():
            op = graph.ops[number]
            for place, operand in enumerate(op.operands):
                layout = solved.wanted.get((number, operand), beside.get((number, place)))
                if operand not in between:
                    layout = solved.through.get((number, operand), layout)
                for path in operand_paths(op, place, paths):
                    said.say(path, layout, op.origin.repeats)
    return said.layouts


def _say_of_twins(said: _Said, wiring: Wiring, level: Level, solved: LaidOut) -> None:
    """Says of what a step computes twice how it lies at its second place, and what is read there: else both are one."""
    graph = level.graph
    makers = {value: op for op in graph.ops for value in op.results}
    numbers = {value: number for number, op in enumerate(graph.ops) for value in op.results}
    for copy, of in twins(level, wiring.strategies.known.copied_of(graph)).items():
        first, second, number = makers[of], makers[copy], numbers[copy]
        if solved.layouts.get(of) == solved.layouts[copy] or first.origin.reads:
            continue
        for path in first.origin.also:
            said.settle(path, solved.layouts[copy])
            for place, operand in enumerate(second.operands):
                lies = solved.wanted.get((number, operand), solved.layouts[operand])
                for own in operand_paths(first, place, (path,)):
                    said.settle(own, lies)


class _Said:
    """What is said of paths, and for how many operations; None says nothing."""

    def __init__(self) -> None:
        self._by_path: defaultdict[str, Counter[Sharding | None]] = defaultdict(Counter)
        self._settled: dict[str, Sharding] = {}

    def say(self, path: str, layout: Sharding | None, repeats: int = 1) -> None:
        """Says a layout for what so many operations have under a path."""
        self._by_path[path][layout] += repeats

    def settle(self, path: str, layout: Sharding) -> None:
        """Says a layout for a path, whatever else was said of it, or is."""
        self._settled[path] = layout

    @property
    def layouts(self) -> dict[str, Sharding]:
        """By path, what is said for most."""
        most = {path: found.most_common(1)[0][0] for path, found in self._by_path.items()}
        return {path: layout for path, layout in most.items() if layout is not None} | self._settled


def _once(wiring: Wiring, level: Level, solved: LaidOut) -> dict[int, Sharding]:
    """What is computed of a copy too, as who needs more of it has it: the other cuts its part out of what that is made
    of.
    """
    found = dict[int, Sharding]()
    for value, copy in computed_twice(level, wiring.strategies.known.copied_of(level.graph)):
        if extends(solved.layouts[value], solved.layouts[copy]):
            found[value] = solved.layouts[copy]
    return found


def _named_last(op: Op) -> Sequence[tuple[int, str]]:
    """What a plan says of the values that an operation makes, with their paths: of a product that was folded with
    transposes what comes of those. A constraint before them would keep what it multiplies apart from them.
    """
    turned = [(value, path) for value, path in op.named if TURNED.search(path)] if op.kind in PRODUCTS else []
    return turned or op.named


def _again(graph: Graph) -> set[int]:
    """The operations that only round what has a path, for what reads it so: with its path, though not its place."""
    paths = {value: op.origin.value for op in graph.ops for value in op.results if op.origin.value is not None}
    return {
        number
        for number, op in enumerate(graph.ops)
        if op.kind == "convert" and op.origin.value is not None and paths.get(op.operands[0]) == op.origin.value
    }


def _opened(wiring: Wiring) -> dict[int, set[int]]:
    """The arguments of loops' bodies, by level, that may lie otherwise than outside, though they are only read."""
    found: dict[int, set[int]] = {}
    for level in wiring.levels:
        for argument in level.graph.arguments:
            port = level.source.get(argument)
            if port is not None and port.node in wiring.opened:
                found.setdefault(level.number, set()).add(argument)
    return found


def _beside(
    level: Level, solved: LaidOut, readers: Collection[int], opened: Collection[int]
) -> dict[tuple[int, int], Sharding]:
    """The layouts of values without a path that one operation reads otherwise, by the first operand that reads it so:
    an operation and the place of what it reads.

    A loop carries such values, among others, and behind a barrier no value has a path. A constraint on what one
    operation reads would lay out the value itself, and with it all that reads it, unless another constraint says how it
    lies (Shardy's ``apply-sharding-constraints``).
    And those of values without a path that arithmetic or a product reads, made of what others without a path read
    otherwise, or brought into another layout once they are made.
    """
    graph, found = level.graph, dict[tuple[int, int], Sharding]()
    own = {value for op in graph.ops for value, _ in op.named}
    own.update(() if level.number else graph.arguments)

    def waits(op: Op, operand: int) -> Waits:
        return level.behind.get((op.results[0], operand), ()) if level.behind and op.results else ()

    read = {(value, waits(graph.ops[number], value)) for number, value in solved.wanted}
    asked = {(value, behind) for value, behind in read if behind or value not in own}
    asked.update((value, ()) for value in opened if value not in own)
    turned = set[int]()
    for number, op in enumerate(graph.ops):
        if op.origin.value is None:
            is_turned = any((number, operand) in solved.wanted or operand in turned for operand in op.operands)
            turned.update(op.results if is_turned else solved.brought.intersection(op.results))
        if number not in readers or op.origin.reads:
            continue
        for place, operand in enumerate(op.operands):
            key = (operand, waits(op, operand))
            is_open = key in asked or (operand in turned and op.kind in ARITHMETIC)
            if is_open and operand in solved.layouts and (number, operand) not in solved.wanted:
                asked.discard(key)
                turned.discard(operand)
                found[number, place] = solved.layouts[operand]
    return found


def _carried(wiring: Wiring, level: Level, every: Sequence[LaidOut]) -> dict[int, Sharding]:
    """The values that nothing but loops reads, which all carry them in one layout, with that."""
    graph, found = level.graph, dict[int, list[Sharding]]()
    multiplied = {value for op in graph.ops if op.kind in PRODUCTS for value in op.results}
    uses = Counter([*(value for op in graph.ops for value in op.operands), *graph.results])
    for position, inner in level.inner.items():
        op = graph.ops[level.program.kernels[position].ops[-1]]
        for number in inner if op.kind == "while" else ():
            arguments = wiring.levels[number].graph.arguments
            for operand, argument in zip(op.operands[-len(arguments) :], arguments, strict=True):
                if argument in every[number].layouts and operand not in multiplied:
                    found.setdefault(operand, []).append(every[number].layouts[argument])
    return {value: lies[0] for value, lies in found.items() if uses[value] == lies.count(lies[0])}


def _named(names: Sequence[str], values: Sequence[int]) -> Iterator[tuple[str, int]]:
    return zip(names, values, strict=False)
