"""How products would have what they read laid out: XLA loops over no operand whose gather another could share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..fusion.nature import PRODUCTS
from ..graph import Axes, Graph, Op, Sharding

Layouts = Sequence[Sharding] | Mapping[int, Sharding]


class Wishes:
    """The products of a graph by what they read, as it is or transposed."""

    def __init__(self, graph: Graph) -> None:
        self._turned = {op.results[0]: op for op in graph.ops if op.kind == "transpose"}
        self._readers: dict[int, list[tuple[Op, int]]] = {}
        for op in graph.ops:
            if (op.kind in PRODUCTS and op.factors is not None) or op.kind == "transpose":
                for side, value in enumerate(op.operands):
                    self._readers.setdefault(value, []).append((op, side))

    def shared(self, op: Op, layouts: Layouts) -> tuple[bool, ...]:
        """Whether another product wants each operand of one laid out as this does, other than it lies
        (``check_users_sharding`` of XLA's ``dot_handler``).
        """
        return tuple([self._is_shared(op, value, layouts) for value in op.operands])

    def _is_shared(self, op: Op, value: int, layouts: Layouts) -> bool:
        while value in self._turned:
            value = self._turned[value].operands[0]
        if not any(layouts[value]):
            return False
        wishes = list(self._wishes(value, layouts))
        if len(wishes) < 2:
            return False
        own = next((layout for reader, layout in wishes if reader is op), layouts[value])
        return own != layouts[value] and any(layout == own for reader, layout in wishes if reader is not op)

    def _wishes(self, value: int, layouts: Layouts) -> Iterator[tuple[Op, Sharding]]:
        for reader, side in self._readers.get(value, ()):
            if reader.kind in PRODUCTS:
                yield reader, wish(reader, side, layouts)
                continue
            dims = reader.attributes["permutation"]
            for product, layout in self._wishes(reader.results[0], layouts):
                yield product, tuple([layout[dims.index(dim)] for dim in range(len(dims))])


def wish(op: Op, side: int, layouts: Layouts) -> Sharding:
    """The layout that a product would have of an operand: its loops split as the result's, those that it sums over as
    the other operand's, where they leave axes for that (XLA's ``InferDotOperandSharding``); as it lies where its loops
    are not known.
    """
    factors = op.factors
    if factors is None:
        return layouts[op.operands[side]]
    result = _split(factors.results[0], layouts[op.results[0]])
    other = _split(factors.operands[1 - side], layouts[op.operands[1 - side]])
    own = [dims[0] if len(dims) == 1 else -1 for dims in factors.operands[side]]
    made = tuple([result.get(factor, ()) for factor in own])
    both = tuple([result.get(factor, other.get(factor, ())) for factor in own])
    apart = all(other.get(factor, axes) == axes for factor, axes in zip(own, made, strict=True) if axes)
    axes = [axis for split in both for axis in split]
    return both if apart and len(axes) == len({*axes}) else made


def _split(rule: Sequence[tuple[int, ...]], layout: Sharding) -> dict[int, Axes]:
    return {dims[0]: axes for dims, axes in zip(rule, layout, strict=True) if axes and len(dims) == 1}
