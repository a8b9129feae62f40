"""What several kernels compute in passing: once in the step, in one layout, which the others may have to reshard.

Each kernel computes it for itself where all have it alike. A step laid out has each of its operations once, as the
first kernel lays it out; what else reads it otherwise is handed it, brought into another layout.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from ...fusion.behind import Waits
from ...graph import Graph, Sharding
from ...kernels import Kernel
from ..step.passing import own_ops
from .apart import is_for_parts, is_part
from .reading import value_node
from .wires import Costs, Level, Port, Wiring, by_pairs


def hand_on_inside(wiring: Wiring, level: Level) -> None:
    """Adds what handing on such values takes. Who is not handed one computes what that is made of too."""
    spared = _spared(wiring, level)
    for value, maker, reader in _handed(level):
        made, read = wiring.nodes[maker], wiring.nodes[reader]
        source, target = Port(maker, tuple(made.layouts[value])), Port(reader, tuple(read.layouts[value]))
        saving = spared.pop(reader, None)
        if saving is not None:
            read.costs = read.costs - saving
        wiring.edge(source, target, level.graph.values[value], read.times, unsent=saving)


def write_parts_inside(wiring: Wiring, level: Level, passed: Mapping[int, tuple[Port, int]]) -> None:
    """Adds what writing such values takes that a kernel cuts a part out of, where what is made of them is not written
    either: of what several compute in passing (``passed``) the node that they share, of which so many choices leave it
    to them. Of several that cut the first asks for it.
    """
    positions = {node: position for position, node in level.kernels.items()}
    known = set[int]()
    for value, maker, reader in _handed(level):
        kernel, read = level.program.kernels[positions[maker]], wiring.nodes[reader]
        last = kernel.writes[0]
        if value in known or last not in passed or value == last or not is_for_parts(wiring, level, value):
            continue
        shared, count = passed[last]
        known.add(value)
        if (
            level.graph.shape(value) != level.graph.shape(last)
            or (min(shared.node, reader), max(shared.node, reader)) in wiring.tables
        ):
            continue
        made = wiring.nodes[maker]
        took = made.times * wiring.strategies.until(level.graph, kernel, value)
        least: dict[Sharding, float] = {}
        for lies, seconds in zip(made.layouts[value], took.tolist(), strict=True):
            least[lies] = min(seconds, least.get(lies, seconds))
        written = np.array([least[lies] if at < count else 0.0 for at, lies in enumerate(shared.layouts)])
        port = Port(reader, tuple(read.layouts[value]))
        is_cut = by_pairs(is_part, shared.layouts, port.layouts)
        wiring.hand_on(shared, port, np.where(is_cut, written[:, None], 0.0), maker)


def write_parts_of_kernels(wiring: Wiring, level: Level, passed: AbstractSet[int], least_s: float) -> None:
    """Adds what writing a value takes that one kernel computes, where others that are handed it cut parts out of it:
    once, and less what they all take less at most that need not compute it. Values that take no more than ``least_s``
    to write are of no matter; of what kernels compute in ``passed`` values that is said there.
    """
    kernels = {node: level.program.kernels[position] for position, node in level.kernels.items()}
    ways, speed = math.prod(wiring.reshards.mesh.values()), wiring.strategies.prices.pricing.speed
    byte_s = speed.coefficients.byte_cycles / speed.clock_hz
    every: dict[int, dict[int, None]] = {}
    for value, maker, reader in _handed(level):
        every.setdefault(value, {maker: None})[reader] = None
    for value, (maker, *readers) in every.items():
        kernel, made = kernels[maker], wiring.nodes[maker]
        if value in kernel.writes or made.in_passing or not passed.isdisjoint(kernel.writes):
            continue
        if made.times * byte_s * level.graph.values[value].num_bytes / ways <= least_s:
            continue
        lies = list(dict.fromkeys(made.layouts[value]))
        is_cut = {each: by_pairs(is_part, lies, wiring.nodes[each].layouts[value]) for each in readers}
        cutting = [each for each in readers if is_cut[each].any()]
        if not cutting or not is_for_parts(wiring, level, value):
            continue
        strategies, graph = wiring.strategies, level.graph
        less = np.zeros(len(lies))
        for each in readers:
            spared = wiring.nodes[each].times * strategies.spares(graph, kernels[each], value)
            reads = is_cut[each] | by_pairs(operator.eq, lies, wiring.nodes[each].layouts[value])
            most = np.where(reads, spared[None, :], -np.inf).max(axis=1)
            less += np.where(np.isfinite(most), most, 0.0)
        alone = made.times * (strategies.until(graph, kernel, value) - strategies.spares(graph, kernel, value))
        shared = value_node(wiring, level, value, [*lies, *lies], made.repeats)  # left to them all, or written
        own = Port(maker, tuple(made.layouts[value]))
        others = by_pairs(operator.ne, own.layouts, shared.layouts)
        took = np.maximum(alone[:, None] - np.tile(less, 2)[None, :], 0.0)
        took = np.where(np.arange(len(shared.layouts)) < len(lies), 0.0, took)
        wiring.hand_on(own, shared, np.where(others, np.inf, took), maker)
        for each in cutting:
            port = Port(each, tuple(wiring.nodes[each].layouts[value]))
            forbidden = np.concatenate([np.where(is_cut[each], np.inf, 0.0), np.zeros(is_cut[each].shape)])
            wiring.hand_on(shared, port, forbidden, maker)


def computed_twice(level: Level, copied: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """What kernels compute of a value in passing, and of its copy: a step has it once."""
    made = {value for _, fresh, *_ in _computed(level) for at in fresh for value in level.graph.ops[at].results}
    inside = made - level.source.keys()
    yield from ((of, copy) for copy, of in copied.items() if copy in inside and of in inside)


def handed_inside(
    wiring: Wiring, level: Level, kernels: Mapping[int, Kernel]
) -> Iterator[tuple[tuple[int, Waits], Port]]:
    """Such values that products are handed too, as they wait for them, with who has each brought elsewhere as it is."""
    for value, maker, reader in _handed(level):
        if wiring.nodes[maker].in_passing and value in kernels[maker].writes:
            port = Port(reader, tuple(wiring.nodes[reader].layouts[value]))
            yield (value, level.waits(kernels[reader], value)), port


def _spared(wiring: Wiring, level: Level) -> dict[int, Costs]:
    """By node what it takes less if it does not compute what it may be handed for nothing else than what is handed it
    here.
    """
    found: dict[int, Costs] = {}
    for number, wanted in first_reads(level).items():
        node = wiring.nodes[number]
        savings = [saving for value, saving in node.savings.items() if value not in wanted]
        if savings:
            found[number] = np.minimum(np.sum(savings, axis=0), node.costs)
    return found


def first_reads(level: Level) -> dict[int, set[int]]:
    """What each node reads for operations that no kernel before it computes: the others it need not compute itself."""
    return {
        number: {value for at in fresh for value in level.graph.ops[at].operands}
        for number, fresh, *_ in _computed(level)
    }


def _computed(level: Level) -> Iterator[tuple[int, list[int], dict[int, int], Sequence[int]]]:
    """Each node with the operations that its kernel is the first to compute, what it computes else, with the nodes that
    are the first to, and what it writes.
    """
    makers: dict[int, int] = {}
    for position, number in level.kernels.items():
        kernel = level.program.kernels[position]
        ops = own_ops(level.graph, kernel)
        fresh = [at for at in ops if at not in makers]
        before = {value: makers[at] for at in ops if at in makers for value in level.graph.ops[at].results}
        yield number, fresh, before, kernel.writes
        makers |= dict.fromkeys(fresh, number)


def _handed(level: Level) -> Iterator[tuple[int, int, int]]:
    """Each value that a kernel reads, or leaves, of what one before it computes in passing, with the nodes of both."""
    filled = _filled(level.graph)
    for number, fresh, before, writes in _computed(level):
        read = [value for at in fresh for value in level.graph.ops[at].operands]
        wanted = dict.fromkeys((*read, *writes))
        yield from ((v, before[v], number) for v in wanted if v in before and v not in filled)


def _filled(graph: Graph) -> Mapping[int, int]:
    """What is made of nothing that has a layout, by the operations' numbers."""
    found: dict[int, int] = {}
    for number, op in enumerate(graph.ops):
        if all(not graph.values[value].shape or value in found for value in op.operands):
            found |= dict.fromkeys(op.results, number)
    return found
