"""The work of kernels, counted once for all that are alike: in layers alike, and under other layouts of the step."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from ..graph import Graph
from ..kernels import Kernel
from .work import Work, work_of

MOST = 20_000


class Counted:
    """Counts as ``work_of`` does. Kernels are alike of which it would be told the same: operations of the same kinds
    and attributes, wired alike, on values of the same shapes and dtypes.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, Work] = {}
        self._attributes: dict[int, Mapping[str, Any]] = {}

    def __call__(self, graph: Graph, kernel: Kernel) -> Work:
        """The work of a kernel of this graph."""
        said, wires, numbers = list[Hashable](), list[int](), dict[int, int]()
        for number in kernel.ops:
            op = graph.ops[number]
            said += (op.kind, len(op.operands), len(op.results), id(op.attributes) if op.attributes else 0)
            wires += op.operands
            wires += op.results
        for value in wires:
            if value not in numbers:
                numbers[value] = len(numbers)
                said += (graph.values[value].shape, graph.values[value].dtype)
        wires += kernel.reads
        wires += kernel.writes
        key = tuple(said), tuple(map(numbers.__getitem__, wires)), len(kernel.reads)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST:
                self._known.clear()
                self._attributes.clear()
            found = self._known[key] = work_of(graph, kernel)
            for number in kernel.ops:
                attributes = graph.ops[number].attributes
                self._attributes[id(attributes)] = attributes  # no other has this ``id`` while it is kept
        return found
