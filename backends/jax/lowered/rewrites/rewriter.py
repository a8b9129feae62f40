"""Replaces operations of a module by others, and reads them: what the rules share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxlib.mlir import ir

from ..attributes import value_of
from ..value_names import pass_names, without_names

RESHAPE = "stablehlo.reshape"
BROADCAST = "stablehlo.broadcast_in_dim"
CONSTANT = "stablehlo.constant"
DIMS = "broadcast_dimensions"

Number = bool | int | float


class Rewriter:
    """Makes operations in the place of one that is looked at. ``made`` are the new ones, not yet looked at."""

    def __init__(self) -> None:
        self.made: list[Any] = []

    def create(
        self,
        name: str,
        operands: Sequence[Any],
        kind: Any,
        at: Any,
        attributes: Mapping[str, Any],
        *,
        regions: int = 0,
    ) -> Any:
        """The value of a new operation, which stands where ``at`` does and was written where that was."""
        new = ir.Operation.create(
            name,
            results=[kind],
            operands=operands,
            attributes=dict(attributes),
            regions=regions,
            loc=without_names(at.location),
            ip=ir.InsertionPoint(at),
        )
        self.made.append(new)
        return new.results[0]

    def replace(self, operation: Any, value: Any) -> None:
        """Puts ``value`` in the place of the only result of an operation, which goes."""
        pass_names(operation, [value])
        operation.results[0].replace_all_uses_with(value)
        operation.erase()

    def constant(self, number: Number, dtype: Any, at: Any) -> Any:
        """A scalar."""
        kind = tensor_type((), dtype)
        attribute = ir.FloatAttr.get(dtype, number) if is_floating(dtype) else ir.IntegerAttr.get(dtype, int(number))
        return self.create(CONSTANT, [], kind, at, {"value": ir.DenseElementsAttr.get_splat(kind, attribute)})

    def spread(self, scalar: Any, shape: Sequence[int], at: Any) -> Any:
        """A scalar in every place of this shape."""
        return self.broadcast(scalar, [], tensor_type(shape, scalar.type.element_type), at) if shape else scalar

    def broadcast(self, source: Any, dims: Sequence[int], kind: Any, at: Any) -> Any:
        """``source``, whose dims are these of the result's."""
        return self.create(BROADCAST, [source], kind, at, {DIMS: ir.DenseI64ArrayAttr.get(list(dims))})

    def reshaped(self, source: Any, shape: Sequence[int], at: Any) -> Any:
        """``source``, or what it is a reshape of, in this shape."""
        inner = made_by(source)
        if inner is not None and inner.name == RESHAPE:
            source = inner.operands[0]
        if shape_of(source) == tuple(shape):
            return source
        return self.create(RESHAPE, [source], tensor_type(shape, source.type.element_type), at, {})


def tensor_type(shape: Sequence[int], dtype: Any) -> Any:
    """The MLIR type of a tensor."""
    return ir.RankedTensorType.get(list(shape), dtype)


def shape_of(value: Any) -> tuple[int, ...]:
    """The dims of a value."""
    return tuple(value.type.shape)


def made_by(value: Any) -> Any:
    """The operation that makes a value; None for an argument of a block."""
    owner = value.owner
    return None if type(owner) is ir.Block else owner.operation


def maker(value: Any, kind: str) -> Any:
    """The operation that makes a value if it is of this kind, else None."""
    found = made_by(value)
    return found if found is not None and found.name == kind else None


def is_used_once(value: Any) -> bool:
    """Whether one operation reads a value, once."""
    return len(list(value.uses)) == 1


def is_floating(dtype: Any) -> bool:
    """Whether this MLIR dtype is a floating-point one."""
    return isinstance(dtype, ir.FloatType)


def splat_of(value: Any) -> Number | None:
    """The number that stands in every place of a value; None where that is not known."""
    found = made_by(value)
    while found is not None and found.name in (BROADCAST, RESHAPE):
        found = made_by(found.operands[0])
    if found is None or found.name != CONSTANT:
        return None
    said = value_of(found)
    number = said.get_splat_value() if isinstance(said, ir.DenseElementsAttr) and said.is_splat else None
    return number.value if isinstance(number, (ir.BoolAttr, ir.IntegerAttr, ir.FloatAttr)) else None


def scalar_of(value: Any) -> Any:
    """The scalar that stands in every place of a value that is a broadcast of one; None for others."""
    found = made_by(value)
    if found is None or found.name != BROADCAST or shape_of(found.operands[0]):
        return None
    return found.operands[0]
