"""What convolutions take less that read the same image: what neighbours send for windows at the edges is sent once."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ...images import CONVOLUTION
from .apart import Reading, windows_along
from .wires import Level, Port, Wiring


def send_once(wiring: Wiring, level: Level, reading: Reading) -> None:
    """Takes what the second and later convolutions that read an image have sent off, where the first has it sent too,
    by choices under which it lies the same for both.
    """
    graph, strategies = level.graph, wiring.strategies
    several = defaultdict[int, list[tuple[int, int]]](list)
    for node, kernel in reading.kernels.items():
        for number in kernel.ops:
            op = graph.ops[number]
            if op.kind == CONVOLUTION and windows_along(graph, op.operands[0]):
                several[op.operands[0]].append((node, number))
    for image, readers in several.items():
        (first, number), *others = readers
        sent_s = strategies.sent(graph, reading.kernels[first], number)
        for other, own in others:
            if other == first:
                continue
            again_s = strategies.sent(graph, reading.kernels[other], own)
            ends = (Port(node, tuple(wiring.nodes[node].layouts[image])) for node in (first, other))
            source, target = ends
            same = np.array([[one == two for two in target.layouts] for one in source.layouts])
            times = min(wiring.nodes[first].times, wiring.nodes[other].times)
            spared = times * np.minimum(sent_s[:, None], again_s[None, :])
            if (same & (spared > 0)).any():
                wiring.join_up(source, target, np.where(same, -spared, 0.0))
