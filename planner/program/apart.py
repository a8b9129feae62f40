"""What it takes to write what a node would else compute in passing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..fusion.nature import PRODUCTS
from ..kernels import Kernel
from .wires import Level


def part_apart(level: Level, kernels: Mapping[int, Kernel], node: int, readers: Mapping[int, int]) -> float:
    """What part of running by itself it takes to write what a node computes in passing. ``kernels`` are those of the
    level by their nodes, ``readers`` says how many read each value.

    All of it, unless a product before can compute it, whose value the node reads while nothing else that it reads is
    made of that: then nothing where nothing else reads the product's value, else only what is written, beside that.
    """
    own = kernels[node]
    made = level.graph.values[own.writes[0]]
    for value in own.reads:
        maker = kernels.get(level.source[value].node) if value in level.source else None
        kinds = {level.graph.ops[number].kind for number in maker.ops} if maker is not None else set()
        if level.graph.values[value].num_elements == made.num_elements and kinds & PRODUCTS:
            others = [other for other in own.reads if other != value]
            if _come_of(level, kernels, others, level.source[value].node):
                return 1.0
            if readers.get(value, 0) == 1 and value not in level.graph.results:
                return 0.0
            read = sum(level.graph.values[each].num_bytes for each in own.reads)
            return made.num_bytes / max(made.num_bytes + read, 1)
    return 1.0


def _come_of(level: Level, kernels: Mapping[int, Kernel], values: Sequence[int], maker: int) -> bool:
    """Whether some of these values are made of what a node makes."""
    seen, waiting = set[int](), list(values)
    while waiting:
        port = level.source.get(waiting.pop())
        if port is None or port.node in seen:
            continue
        if port.node == maker:
            return True
        seen.add(port.node)
        waiting += kernels[port.node].reads if port.node in kernels else ()
    return False
