"""What repeated blocks have in common: the paths of what they compute, but for the turn."""

from __future__ import annotations

import re
from collections.abc import Hashable

from ...graph import Graph
from ...kernels import Kernel
from .blueprint import in_order_of_use

TURN = re.compile(r"/\d+$")


def stems(graph: Graph, kernel: Kernel) -> Hashable:
    """What a kernel is called but for its turn: the paths of what it computes."""
    return tuple(TURN.sub("", path) for path in _paths(graph, kernel))


def shared_paths(graph: Graph, kernel: Kernel) -> frozenset[str]:
    """Those of the paths of what a kernel computes that say no turn: what shares them a plan lays out alike."""
    return frozenset(path for path in _paths(graph, kernel) if not TURN.search(path))


def _paths(graph: Graph, kernel: Kernel) -> tuple[str, ...]:
    paths = (graph.ops[number].origin.value for number in in_order_of_use(graph, kernel.ops))
    return tuple(path for path in paths if path is not None)
