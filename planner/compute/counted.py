"""The work of kernels and its cycles, counted once for all that are alike: in layers alike, and under other layouts of
the step.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ..graph import Graph
from ..kernels import Kernel
from .coefficients import Coefficients
from .cycles import Cycles, cycles_of
from .work import Work, work_of

MOST = 20_000


class Counted:
    """Counts as ``work_of`` does. Kernels are alike of which it would be told the same: operations of the same kinds
    and attributes, wired alike, on values of the same shapes and dtypes.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, Work] = {}
        self._attributes: dict[int, Mapping[str, Any]] = {}
        self._cycles: dict[Hashable, tuple[Work, Coefficients, Cycles]] = {}

    def __call__(self, graph: Graph, kernel: Kernel) -> Work:
        """The work of a kernel of this graph."""
        said, wires, ops, values = list[Hashable](), list[int](), graph.ops, graph.values
        for number in kernel.ops:
            op = ops[number]
            operands, results, attributes = op.operands, op.results, op.attributes
            said += (op.kind, len(operands), len(results), id(attributes) if attributes else 0)
            wires += operands
            wires += results
        numbers = {value: number for number, value in enumerate(dict.fromkeys(wires))}
        shapes = tuple([(value.shape, value.dtype) for value in map(values.__getitem__, numbers)])
        wires += kernel.reads
        wires += kernel.writes
        key = tuple(said), shapes, tuple(map(numbers.__getitem__, wires)), len(kernel.reads)
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

    def cycles(
        self, work: Work, near: Sequence[bool], near_writes: Sequence[bool], edge: int, of: Coefficients
    ) -> Cycles:
        """What ``cycles_of`` says of work that was counted here, known by its ``id`` as long as it is kept."""
        key = id(work), *near, *near_writes, edge, id(of)
        found = self._cycles.get(key)
        if found is None:
            if len(self._cycles) >= MOST:
                self._cycles.clear()
            found = self._cycles[key] = work, of, cycles_of(work, near, near_writes, edge, of)
        return found[2]
