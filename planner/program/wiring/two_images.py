"""What a sum of an image takes that is a kernel of its own: where the convolution that makes the image leaves another.

What a convolution reads of its neighbours is written for them, by the convolution before where that can compute it. Two
images are all that this leaves, and what else it would sum is summed afterwards (``fusion/merge``, seen on v3). Where
bits are left for what is written, that is a kernel by itself, which sums the image as well.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..step.summed import images_summed
from .apart import Reading, part_apart, windows_along
from .wires import Level, Port, Wiring


def sum_apart(wiring: Wiring, level: Level, reading: Reading) -> None:
    """Adds what summing takes apart from convolutions under which choices what is made of their images for others is
    sent between devices.
    """
    graph = level.graph
    for number, kernel in reading.kernels.items():
        for image in images_summed(graph, kernel):
            for other, along in _made_of(wiring, level, reading, image):
                if part_apart(level, other, reading)[0] == 1.0:
                    continue
                made, sent = wiring.nodes[number], wiring.nodes[other]
                ends = Port(number, tuple(made.layouts[image])), Port(other, tuple(sent.layouts[image]))
                more = made.times * wiring.strategies.divided(graph, kernel, image)
                is_sent = [any(layout[dim] for dim in along) for layout in ends[0].layouts]
                has_bits = np.zeros(len(sent.costs)) if sent.after is None else sent.after
                same = np.array([[one == two for two in ends[1].layouts] for one in ends[0].layouts])
                wiring.join_up(*ends, np.where(same & (has_bits == 0)[None, :], (more * is_sent)[:, None], 0.0))
                break


def _made_of(wiring: Wiring, level: Level, reading: Reading, image: int) -> Iterator[tuple[int, frozenset[int]]]:
    """The nodes that compute something of an image in passing for windows that go over it, with the dims that they go
    along.
    """
    graph = level.graph
    for number, kernel in reading.kernels.items():
        node = wiring.nodes[number]
        if not node.in_passing or image not in kernel.reads or image not in node.layouts:
            continue
        (value,) = kernel.writes
        along = windows_along(graph, value)
        if along and graph.shape(value) == graph.shape(image):
            yield number, along
