"""What kernels make that only spreads read: where a device spreads its part over nothing, others compute it in passing."""

from __future__ import annotations

import numpy as np

from ...fusion.nature import IN_PASSING
from .apart import Reading
from .wires import Level, Port, Wiring


def pass_on_viewed(wiring: Wiring, level: Level, reading: Reading) -> None:
    """Takes off what writing such a value takes, by choices under which it is read as it lies, for nothing."""
    graph, strategies = level.graph, wiring.strategies
    for node, kernel in reading.kernels.items():
        blueprint, _ = strategies.known.blueprint(graph, kernel)
        (value,) = kernel.reads if blueprint.spread else (None,)
        maker = level.source.get(value) if value is not None else None
        made = reading.kernels.get(maker.node) if maker is not None else None
        if maker is None or made is None or value in graph.results or reading.readers[value] > 1:
            continue
        if made.writes != (value,) or any(graph.ops[number].kind not in IN_PASSING for number in made.ops):
            continue
        source, target = (Port(each, tuple(wiring.nodes[each].layouts[value])) for each in (maker.node, node))
        same = np.array([[one == other for other in target.layouts] for one in source.layouts])
        views = strategies.views(graph, kernel)
        if views.any():
            written_s = wiring.nodes[source.node].costs
            wiring.join_up(source, target, np.where(same & views[None, :], -written_s[:, None], 0.0))
