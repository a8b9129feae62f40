"""What kernels make that others only spread: a device that spreads its part over nothing computes it in passing."""

from __future__ import annotations

import numpy as np

from ...fusion.nature import IN_PASSING
from ...kernels import Kernel
from ..step.passing import own_reads
from .apart import Reading
from .wires import Level, Port, Wiring


def pass_on_viewed(wiring: Wiring, level: Level, reading: Reading) -> None:
    """Takes off what writing such a value and reading it takes, by choices under which it is read as it lies."""
    graph, strategies = level.graph, wiring.strategies
    for node, kernel in reading.kernels.items():
        blueprint, numbers = strategies.known.blueprint(graph, kernel)
        own = set(own_reads(graph, kernel)) & wiring.nodes[node].layouts.keys()
        makers = dict[int, int]()
        for value in [numbers[place] for place in blueprint.spreads if numbers[place] in own]:
            maker = level.source[value].node if value in level.source else None
            made = None if maker is None else reading.kernels.get(maker)
            if maker is not None and made is not None and _is_for_one(level, reading, made, value):
                makers[value] = maker
        found = strategies.views(graph, kernel) if makers else {}
        for value, maker in makers.items():
            views, read_s = found[value]
            if views.any():
                source, target = (Port(each, tuple(wiring.nodes[each].layouts[value])) for each in (maker, node))
                same = np.array([[one == other for other in target.layouts] for one in source.layouts])
                spared_s = wiring.nodes[maker].costs[:, None] + wiring.nodes[node].times * read_s[None, :]
                wiring.join_up(source, target, np.where(same & views[None, :], -spared_s, 0.0))


def _is_for_one(level: Level, reading: Reading, made: Kernel, value: int) -> bool:
    """Whether a kernel makes only a value that one other reads, which may compute it in passing."""
    graph = level.graph
    is_read_once = value not in graph.results and reading.readers[value] == 1
    return is_read_once and made.writes == (value,) and all(graph.ops[n].kind in IN_PASSING for n in made.ops)
