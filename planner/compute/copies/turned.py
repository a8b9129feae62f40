"""Gradients of weights that come out transposed, and the copies that setting them right costs.

For chips whose matrix units are 256 wide the compiler leaves a weight's gradient as JAX writes it, transposed, where
what the weight multiplies is an argument of the step, as in a first layer, that lies row by row. (Where its rows waste
lanes it does not: f32[512,784] of a perceptron for v6e lies across, and the gradient upright.) The gradient then lies
the other way, its update with it, and all that the update takes of the arguments and gives back as results is copied,
transposed. So are other updates of arrays of the same shape: XLA spreads a number over such an array once for all of
them, and what it is spread over lies as the first one does (v6e: each layer's of an MLP under Adam or momentum).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...fusion.nature import BROADCAST, ELEMENTWISE, UPDATE
from ...graph import Graph
from ...kernels import Kernel
from ...kinds import KINDS, TURNED_COPY
from ..work import LANES, SUBLANES, round_up

WIDE_EDGE = 256
GRADIENT = "transpose("
PASSING = {*KINDS, TURNED_COPY, "convert", "reshape", "transpose"}
MOVING = PASSING | {"slice", "dynamic_slice", UPDATE}


def lying_turned(graph: Graph, edge: int) -> frozenset[int]:
    """The values of a whole step that lie transposed."""
    return Turned(graph, edge).values if graph.aliases else frozenset()


class Turned:
    """The values of a program that lie transposed, and which of these kernels copy as they are gone through.

    Without ``shares`` an update says nothing of others: whether devices have parts of one shape is not known.
    """

    def __init__(self, graph: Graph, edge: int, *, shares: bool = True) -> None:
        self._graph, self._shares = graph, shares
        self._fixed = frozenset(graph.arguments), frozenset(graph.results)
        self._makers: dict[int, int] = {}
        self._values: set[int] = set()
        self._taken: set[int] = set()
        self._sent: dict[int, int] = {}
        if edge >= WIDE_EDGE and any(op.kind == "dot_general" for op in graph.ops):
            self._makers = {v: n for n, op in enumerate(graph.ops) for v in op.results}
            self._spread([v for n, op in enumerate(graph.ops) if self._is_turned(n) for v in op.results])
            self._sent = self._sent_results() if self._values else {}

    @property
    def values(self) -> frozenset[int]:
        """The values that lie transposed."""
        return frozenset(self._values)

    def copied(self, kernel: Kernel) -> Sequence[int]:
        """The values that are copied for a kernel: arguments before it, results after it."""
        if not self._values:
            return ()
        taken = [value for value in kernel.reads if value in self._taken and self._is_updated(kernel, value)]
        self._taken.difference_update(taken)
        return (*taken, *(value for value in kernel.writes if value in self._values and value in self._fixed[1]))

    def sent(self, kernel: Kernel) -> Sequence[int]:
        """The results copied that collectives make of what a kernel writes."""
        return [self._sent[value] for value in kernel.writes if value in self._sent] if self._sent else ()

    def _sent_results(self) -> dict[int, int]:
        """The results that lie transposed and that collectives alone made of something, by what they made them of."""
        found: dict[int, int] = {}
        for result in self._values & self._fixed[1]:
            value = result
            while value in self._makers and self._graph.ops[self._makers[value]].kind in KINDS:
                op = self._graph.ops[self._makers[value]]
                value = op.operands[op.results.index(value)]
            if value != result:
                found[value] = result
        return found

    def _is_updated(self, kernel: Kernel, value: int) -> bool:
        """Whether a kernel computes with an argument what lies transposed."""
        ops = (self._graph.ops[number] for number in kernel.ops)
        return any(
            value in op.operands and op.kind in ELEMENTWISE and not self._values.isdisjoint(op.results) for op in ops
        )

    def _spread(self, waiting: list[int]) -> None:
        """Finds what lies as these values do: what they are moved to, and what numbers are computed with them."""
        if not waiting:
            return
        ops, arguments = self._graph.ops, self._fixed[0]
        around: dict[int, list[int]] = {}
        for number, op in enumerate(ops):
            for value in {*op.operands, *op.results}:
                around.setdefault(value, []).append(number)
        while waiting:
            value = waiting.pop()
            if value in self._values:
                continue
            self._values.add(value)
            for number in around[value]:
                op = ops[number]
                if op.kind in MOVING and value in op.operands:
                    waiting += op.results
                elif op.kind in ELEMENTWISE:
                    beside = [
                        v for v in (*op.operands, *op.results) if self._graph.shape(v) == self._graph.shape(value)
                    ]
                    self._taken.update(v for v in beside if v in arguments)
                    waiting += (v for v in beside if v not in arguments and (self._shares or not self._is_number(v)))

    def _is_number(self, value: int) -> bool:
        """Whether it is a number that is spread."""
        op = self._graph.ops[self._makers[value]] if value in self._makers else None
        return op is not None and op.kind == BROADCAST and self._graph.values[op.operands[0]].num_elements == 1

    def _is_turned(self, number: int) -> bool:
        """Whether an operation is the gradient of a weight that multiplies an argument."""
        op = self._graph.ops[number]
        if op.kind != "dot_general" or GRADIENT not in (op.origin.scope or ""):
            return False
        summed = (op.attributes.get("lhs_contracting_dimensions"), op.attributes.get("rhs_contracting_dimensions"))
        is_gradient = len(self._graph.shape(op.results[0])) == 2 and all(dims and 0 in dims for dims in summed)
        return is_gradient and self._is_given(op.operands[0])

    def _is_given(self, value: int) -> bool:
        """Whether a value is an argument that lies row by row, or such one gathered, converted, or in another shape."""
        while value in self._makers:
            op = self._graph.ops[self._makers[value]]
            if op.kind not in PASSING or not op.operands:
                return False
            value = op.operands[0]
        return value in self._fixed[0] and _lies_by_rows(self._graph.shape(value))


def _lies_by_rows(shape: tuple[int, ...]) -> bool:
    """Whether a matrix is padded no more with its rows on the lanes than across."""
    if len(shape) != 2:
        return True
    rows, columns = shape
    upright = round_up(rows, SUBLANES) * round_up(columns, LANES)
    return upright <= round_up(columns, SUBLANES) * round_up(rows, LANES)
