"""Tables that are scattered into lie row by row, however little of a row's lanes they fill.

Everything else may lie with whichever dim minor wastes least. What a scatter adds to may not: it, what is computed of
it, and the optimiser's update with it are padded to whole rows of lanes, and the arguments and results that meet it
there are copied into that layout and back.
"""

from __future__ import annotations

from collections.abc import Collection

from ..graph import Graph
from ..kernels import Kernel
from ..kinds import KINDS
from .coefficients import Coefficients
from .work import LANES, padded_bytes

COPY_RATIO = 1.6
"""What such a copy takes against what its bytes do, seen on v5e: its windows are small."""


def scattered(graph: Graph) -> set[int]:
    """What a graph scatters into, and what becomes of that."""
    return {value for op in graph.ops if op.kind == "scatter" for value in (op.operands[0], *op.results)}


class Rowwise:
    """The values that lie so, as the kernels of a program are gone through: those that are known to be ``tables``, and
    those that are scattered into. ``edge`` has what is given to the program's step and left by it.
    """

    def __init__(self, graph: Graph, of: Coefficients, tables: Collection[int], edge: Collection[int]) -> None:
        self._graph, self._of = graph, of
        self._values = {value for value in (*scattered(graph), *tables) if self._is_narrow(value)}
        self._edge = frozenset(edge)

    def extra_cycles(self, kernel: Kernel) -> float:
        """What a kernel takes more because of it, copies included."""
        if not self._values:
            return 0.0
        met = {self._graph.shape(v) for v in (*kernel.reads, *kernel.writes) if v in self._values}
        if not met:
            return 0.0
        whole = [v for v in (*kernel.reads, *kernel.writes) if self._graph.shape(v) in met]
        self._values.update(v for v in kernel.writes if self._graph.shape(v) in met)
        if self._graph.ops[kernel.ops[-1]].kind in (*KINDS, "scatter"):
            return 0.0
        more = sum(self._row_bytes(v) - padded_bytes(self._graph.values[v]) for v in whole)
        copied = sum(self._row_bytes(v) for v in whole if v in self._edge)
        return (more + COPY_RATIO * copied) * self._of.byte_cycles

    def _is_narrow(self, value: int) -> bool:
        shape = self._graph.shape(value)
        return len(shape) == 2 and shape[1] < LANES

    def _row_bytes(self, value: int) -> int:
        return self._graph.values[value].num_bytes // self._graph.shape(value)[1] * LANES
