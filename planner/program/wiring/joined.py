"""What the parts of a kernel take less that was cut at a pinned value, where they run as one after all (``cuts``)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...graph import Graph, Sharding
from ...partition.layout import extends
from ..pricing.options import Options
from ..pricing.strategies import Strategies
from ..step.cuts import Cut
from .wires import Level, Port, Wiring

Layouts = Mapping[int, Sequence[Sharding]]


def join_cuts(wiring: Wiring, level: Level) -> None:
    """Adds what parts take together where what is pinned between them is made and read so."""
    numbers = {value: number for position, number in level.kernels.items() for value in _writes(level, position)}
    for cut in wiring.strategies.known.cuts.cut.get(id(level.graph), ()):
        pin = level.pinned[cut.value]
        first, second = numbers[cut.value], _reader(level, cut)
        made, read = wiring.nodes[first], wiring.nodes[second]
        made.rough, read.rough = {}, {}  # what they take together is said beyond what they are known to cost
        together = _together(wiring.strategies, level.graph, cut, pin, (made.layouts, read.layouts))
        ends = (Port(first, tuple(made.layouts[cut.value])), Port(second, tuple(read.layouts[cut.value])))
        wiring.join_up(*ends, read.times * together)


def _writes(level: Level, position: int) -> tuple[int, ...]:
    return level.program.kernels[position].writes


def _reader(level: Level, cut: Cut) -> int:
    """The node of the first of what is left of what comes after a value that reads it."""
    ops = set(cut.after.ops)
    return next(
        number
        for position, number in level.kernels.items()
        for kernel in (level.program.kernels[position],)
        if cut.value in kernel.reads and ops.issuperset(kernel.ops)
    )


def _together(
    strategies: Strategies, graph: Graph, cut: Cut, pin: Sharding, laid: tuple[Layouts, Layouts]
) -> NDArray[np.float64]:
    """Seconds of one run that both parts take more as one, by the choices of their nodes; nothing where they are not.

    Of several ways to run as one the one that takes least counts. Of what is read cut further than it is pinned sums
    are scattered, and what else it is made of is cut before (``partition/passes/sliced``); products are not, nor is
    what else is read of it.
    """
    whole, *parts = (strategies.of(graph, kernel) for kernel in (cut.whole, cut.before, cut.after))
    around = [(*kernel.reads, *kernel.writes) for kernel in (cut.before, cut.after)]
    nodes = [
        {value: layouts[value] for value in each if value in layouts}
        for layouts, each in zip(laid, around, strict=True)
    ]
    as_it_lies = cut.multiplied(graph).union(cut.before.writes) - {cut.value}

    def match(value: int, want: Sharding, lies: Sharding) -> bool:
        return want == lies if value in as_it_lies else extends(want, lies)

    def same(_: int, want: Sharding, lies: Sharding) -> bool:
        return want == lies

    took = np.full([_count(own) for own in nodes], np.inf)
    is_left = cut.value in cut.whole.writes
    alone = not is_left and len(set(cut.before.writes) & set(cut.after.reads)) == 1
    may = extends if alone else operator.eq
    for choice in np.flatnonzero([may(each, pin) for each in whole.layouts[cut.value]]):
        made = _matching(nodes[0], whole, int(choice), match)
        made = made[[nodes[0][cut.value][each] == pin for each in made]]
        read = _matching(nodes[1], whole, int(choice), same)
        at = np.ix_(made, read)
        took[at] = np.minimum(took[at], whole.costs[choice])
    made_s, read_s = (_costs(own, options) for own, options in zip(nodes, parts, strict=True))
    with np.errstate(invalid="ignore"):  # what is not possible either way
        more = took - made_s[:, None] - read_s[None, :]
    return np.where(np.isfinite(more), more, 0.0)


def _count(own: Layouts) -> int:
    return len(next(iter(own.values())))


def _matching(
    own: Layouts, options: Options, choice: int, match: Callable[[int, Sharding, Sharding], bool]
) -> NDArray[np.int64]:
    """The choices of a node under which values lie so that a strategy of another kernel has them alike."""
    rows = [[match(value, options.layouts[value][choice], each) for each in layouts] for value, layouts in own.items()]
    return np.flatnonzero(np.all(rows, axis=0))


def _costs(own: Layouts, options: Options) -> NDArray[np.float64]:
    """What the kernel of a node costs at least, by the node's choices."""
    least: dict[tuple[Sharding, ...], float] = {}
    for choice, seconds in enumerate(options.costs.tolist()):
        key = tuple(options.layouts[value][choice] for value in own)
        least[key] = min(seconds, least.get(key, np.inf))
    return np.array([least.get(key, np.inf) for key in zip(*own.values(), strict=True)])
