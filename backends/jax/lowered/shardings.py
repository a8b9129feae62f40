"""Shardy's attributes as plain tuples: what axes each dim of a value is split over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from ....planner.graph import Axes, Factors, Sharding

RESHARD = "sdy.reshard"
"""It has no loop nest, though the constraint has one in whose place propagation puts it."""

RESHARDS = (RESHARD, "sdy.sharding_constraint")
"""The operations whose own attribute lays out their result."""


def axes_by_dim(attribute: Any) -> Sharding:
    """The axes of each dim of a ``sdy.sharding``, major first; a part of an axis as ``x:(2)4``."""
    dims = sdy.TensorShardingAttr(attribute).dimension_shardings
    return tuple(_names(sdy.DimensionShardingAttr(dim).axes) for dim in dims)


def each_sharding(attribute: Any) -> list[Any]:
    """The ``sdy.sharding`` of each value that a ``sdy.sharding_per_value`` speaks of."""
    return list(sdy.TensorShardingPerValueAttr(attribute).shardings)


def manual_axes(attribute: Any) -> Axes:
    """The axes of a ``manual_axes`` attribute."""
    return tuple(ir.StringAttr(name).value for name in ir.ArrayAttr(ir.Attribute.parse(_listed(attribute))))


def _listed(attribute: Any) -> str:
    text = str(attribute)
    return text[text.index("{") :].replace("{", "[").replace("}", "]").rstrip(">")


def factors(attribute: Any) -> Factors:
    """A ``sdy.op_sharding_rule`` as the planner has it."""
    rule = sdy.OpShardingRuleAttr(attribute)
    return Factors(
        sizes=tuple(rule.factor_sizes),
        operands=_mappings(rule.operand_mappings),
        results=_mappings(rule.result_mappings),
        reduction=tuple(rule.reduction_factors),
        replicated=tuple(rule.need_replication_factors),
        permutation=tuple(rule.permutation_factors),
        blocked=tuple(rule.blocked_propagation_factors),
    )


def sharding_of(value: Any) -> Any:
    """The sharding attribute of an operation's result, a function's argument or a loop's state; None for none."""
    if not isinstance(value.owner, ir.Block):
        owner, number = value.owner.operation, value.result_number
        attributes = owner.attributes
        return attributes["sharding"] if owner.name in RESHARDS else _of_result(attributes, number)
    owner, number = value.owner.owner.operation, value.arg_number
    if owner.name == "func.func":
        return _of_parameter(owner, number)
    return _of_result(owner.attributes, number) if owner.name == "stablehlo.while" else None


def _of_parameter(function: Any, number: int) -> Any:
    if "arg_attrs" not in function.attributes:
        return None
    attributes = function.attributes["arg_attrs"][number]
    return attributes["sdy.sharding"] if "sdy.sharding" in attributes else None  # noqa: SIM401


def _of_result(attributes: Any, number: int) -> Any:
    said = attributes.get("sdy.sharding")
    return None if said is None else each_sharding(said)[number]


def _names(axes: Sequence[Any]) -> Axes:
    return tuple(_name(sdy.AxisRefAttr(axis)) for axis in axes)


def _name(axis: Any) -> str:
    if axis.sub_axis_info is None:
        return str(axis.name)
    part = sdy.SubAxisInfoAttr(axis.sub_axis_info)
    return f"{axis.name}:({part.pre_size}){part.size}"


def _mappings(mappings: Sequence[Any]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    return tuple(tuple(_indices(dim) for dim in sdy.TensorMappingAttr(m).dim_mappings) for m in mappings)


def _indices(dim: Any) -> tuple[int, ...]:
    return tuple(sdy.DimMappingAttr(dim).factor_indices)
