"""What a sum of an image takes that is a kernel of its own: where the convolution that makes the image leaves another.

What a convolution reads of its neighbours is written for them, by the convolution before where that can compute it. Two
images are all that this leaves, and what else it would sum is summed afterwards (``fusion/merge``, seen on v3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..graph import Graph
from ..images import CONVOLUTION
from ..kernels import Kernel
from .apart import part_apart
from .summed import images_summed
from .wires import Level, Port, Wiring


def sum_apart(wiring: Wiring, level: Level, kernels: Mapping[int, Kernel], readers: Mapping[int, int]) -> None:
    """Adds what summing takes apart from convolutions under which choices what is made of their images for others is
    sent between devices. ``kernels`` are those of the level by their nodes, ``readers`` says how many read each value.
    """
    graph = level.graph
    for number, kernel in kernels.items():
        for image in images_summed(graph, kernel):
            for other, along in _made_of(wiring, level, kernels, image):
                if part_apart(level, kernels, other, readers) == 1.0:
                    continue
                made, sent = wiring.nodes[number], wiring.nodes[other]
                ends = Port(number, tuple(made.layouts[image])), Port(other, tuple(sent.layouts[image]))
                more = made.times * wiring.strategies.divided(graph, kernel, image)
                is_sent = [any(layout[dim] for dim in along) for layout in ends[0].layouts]
                same = np.array([[one == two for two in ends[1].layouts] for one in ends[0].layouts])
                wiring.join_up(*ends, np.where(same, (more * is_sent)[:, None], 0.0))
                break


def _made_of(
    wiring: Wiring, level: Level, kernels: Mapping[int, Kernel], image: int
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The nodes that compute something of an image in passing for windows that go over it, with the dims that they go
    along.
    """
    graph = level.graph
    for number, kernel in kernels.items():
        node = wiring.nodes[number]
        if not node.in_passing or image not in kernel.reads or image not in node.layouts:
            continue
        (value,) = kernel.writes
        windows = (op for op in graph.of_kind(CONVOLUTION) if op.operands[0] == value)
        along = {dim for op in windows for dim in _along(graph, op.attributes, op.operands[1])}
        if along and graph.shape(value) == graph.shape(image):
            yield number, tuple(sorted(along))


def _along(graph: Graph, said: Mapping[str, tuple[int, ...]], kernel: int) -> Iterator[int]:
    dims = zip(said.get("input_spatial_dimensions", ()), said.get("kernel_spatial_dimensions", ()), strict=True)
    yield from (dim for dim, place in dims if graph.shape(kernel)[place] > 1)
