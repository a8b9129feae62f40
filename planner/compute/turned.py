"""Gradients of weights that come out transposed, and the copies that setting them right costs.

For chips whose matrix units are 256 wide the compiler leaves a weight's gradient as JAX writes it, transposed, where
what the weight multiplies is an argument of the step, as in a first layer. The gradient then lies the other way, its
update with it, and all that the update takes of the arguments and gives back as results is copied, transposed.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..fusion.nature import UPDATE
from ..graph import Graph
from ..kernels import Kernel
from ..kinds import KINDS

WIDE_EDGE = 256
GRADIENT = "transpose("
PASSING = {*KINDS, "convert", "reshape", "transpose"}
MOVING = PASSING | {"slice", "dynamic_slice", UPDATE}


class Turned:
    """The values that lie transposed so far, as the kernels of a program are gone through."""

    def __init__(self, graph: Graph, edge: int) -> None:
        self._graph = graph
        self._on = edge >= WIDE_EDGE
        self._values: set[int] = set()
        self._makers = {v: n for n, op in enumerate(graph.ops) for v in op.results} if self._on else {}
        self._fixed = frozenset(graph.arguments), frozenset(graph.results)

    def copied(self, kernel: Kernel) -> Sequence[int]:
        """The values that are copied for a kernel: arguments before it, results after it."""
        if not self._on:
            return ()
        if not self._values.isdisjoint(kernel.reads) and all(self._graph.ops[n].kind in MOVING for n in kernel.ops):
            self._values.update(kernel.writes)
            return ()
        shapes = {self._graph.shape(v) for v in kernel.reads if v in self._values}
        shapes |= {self._graph.shape(v) for n in kernel.ops if self._is_turned(n) for v in self._graph.ops[n].results}
        if not shapes:
            return ()
        whole = [v for v in kernel.writes if self._graph.shape(v) in shapes]
        self._values.update(whole)
        arguments, results = self._fixed
        taken = [v for v in kernel.reads if v in arguments and self._graph.shape(v) in shapes]
        given = [v for v in whole if v in results]
        return (*taken, *given)

    def _is_turned(self, number: int) -> bool:
        """Whether an operation is the gradient of a weight that multiplies an argument."""
        op = self._graph.ops[number]
        if op.kind != "dot_general" or GRADIENT not in (op.origin.scope or ""):
            return False
        summed = (op.attributes.get("lhs_contracting_dimensions"), op.attributes.get("rhs_contracting_dimensions"))
        is_gradient = len(self._graph.shape(op.results[0])) == 2 and all(dims and 0 in dims for dims in summed)
        return is_gradient and self._is_given(op.operands[0])

    def _is_given(self, value: int) -> bool:
        """Whether a value is an argument, or an argument gathered, converted, or under another shape."""
        while value in self._makers:
            op = self._graph.ops[self._makers[value]]
            if op.kind not in PASSING or not op.operands:
                return False
            value = op.operands[0]
        return value in self._fixed[0]
