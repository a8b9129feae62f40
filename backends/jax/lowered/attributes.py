"""Attributes of MLIR operations as plain Python values, named as in StableHLO.

What numbers dims (of a product, a convolution, a gather, a scatter) is spread into its fields. A region that only
combines two numbers becomes ``reducer``: the operation in it, or all of them in a tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, stablehlo

NUMBERED = {
    "#stablehlo.dot": stablehlo.DotDimensionNumbers,
    "#stablehlo.conv": stablehlo.ConvDimensionNumbers,
    "#stablehlo.gather": stablehlo.GatherDimensionNumbers,
    "#stablehlo.scatter": stablehlo.ScatterDimensionNumbers,
    "#chlo.ragged_dot": chlo.RaggedDotDimensionNumbers,
}
"""What spreads into fields, by how its text begins."""

FIELDS: Mapping[Any, tuple[str, ...]] = {
    kind: tuple(name for name, member in vars(kind).items() if isinstance(member, property))
    for kind in NUMBERED.values()
}

PLAIN: Mapping[type, Callable[[Any], Any]] = {
    ir.BoolAttr: lambda a: bool(a.value),
    ir.IntegerAttr: lambda a: int(a.value),
    ir.FloatAttr: lambda a: float(a.value),
    ir.StringAttr: lambda a: a.value_bytes.decode(errors="replace"),  # kernels' code is no text
    ir.FlatSymbolRefAttr: lambda a: a.value,
    ir.UnitAttr: lambda a: True,
    ir.TypeAttr: lambda a: str(a.value),
    ir.DenseBoolArrayAttr: tuple,
    ir.DenseI32ArrayAttr: tuple,
    ir.DenseI64ArrayAttr: tuple,
    ir.DenseIntElementsAttr: lambda a: nested(np.array(a)),
    ir.ArrayAttr: lambda a: tuple(plain(element) for element in a),
    ir.DictAttr: lambda a: {each.name: plain(each.attr) for each in a},
}

REDUCERS = "meshwright.reducers"
"""The kinds of the operations in each region of an operation on which they are noted."""

FORM = "meshwright.form"
"""The number of what an operation says (``forms``)."""

LIES = "sdy.sharding"

LEFT_OUT = (
    FORM,
    LIES,
    "mhlo.frontend_attributes",
    "sdy.sharding_rule",
    "sharding",
    "value",
    "channel_handle",
    "replica_groups",
    "use_global_device_ids",
    "result_accuracy",
)
"""What is read elsewhere, or says nothing of what an operation costs."""


def plain(attribute: Any) -> Any:
    """An attribute as a plain value; of an enumeration's, the word that it stands for."""
    attribute = attribute.maybe_downcast()
    convert = PLAIN.get(type(attribute))
    return convert(attribute) if convert is not None else word(str(attribute))


def word(text: str) -> str:
    """``LT`` of ``#stablehlo<comparison_direction LT>``; other texts stay as they are."""
    return text.rstrip(">").split(" ")[-1] if text.startswith(("#stablehlo<", "#chlo<")) else text


def nested(array: np.ndarray) -> Any:
    """An array as nested tuples."""
    return tuple(nested(row) for row in array) if array.ndim else array.item()


def spread(name: str, attribute: Any) -> dict[str, Any]:
    """The plain values that one attribute gives, by name."""
    numbered = NUMBERED.get(str(attribute).partition("<")[0]) if "dimension_numbers" in name else None
    if numbered is None:
        return {name: plain(attribute)}
    read = numbered(attribute)
    return {field: _tuple(getattr(read, field)) for field in FIELDS[numbered]}


def _tuple(value: Any) -> Any:
    return value if isinstance(value, int) else tuple(value)


def value_of(constant: Any) -> Any:
    """The attribute with a constant's elements; None of those, complex ones, that MLIR's bindings cannot read."""
    try:
        return constant.attributes["value"].maybe_downcast()
    except TypeError:
        return None


def splat(constant: Any) -> dict[str, Any]:
    """``splat`` of a constant whose elements are all the same number; nothing of another."""
    value = value_of(constant)
    if not isinstance(value, ir.DenseElementsAttr) or not value.is_splat:
        return {}
    return {"splat": plain(value.get_splat_value())}


def reducer(regions: Any) -> dict[str, Any]:
    """``reducer`` of the operations in a region of scalars: one kind, or a tuple of several."""
    return reducers_of(_kinds(regions))


def note_reducers(operation: Any) -> None:
    """Writes on an operation what its regions of scalars do, so that it is read with all else that it says."""
    kinds = ([ir.StringAttr.get(kind) for kind in each] for each in _kinds(operation.regions))
    operation.attributes[REDUCERS] = ir.ArrayAttr.get([ir.ArrayAttr.get(each) for each in kinds])


def reducers_of(kinds: Iterable[tuple[str, ...]]) -> dict[str, Any]:
    """``reducer`` of the kinds of operations in each region."""
    named = [k[0] if len(k) == 1 else k for k in kinds]
    return dict(zip(("reducer", "second_reducer"), named, strict=False))


def _kinds(regions: Any) -> list[tuple[str, ...]]:
    return [tuple(_kind(op) for op in block.operations)[:-1] for region in regions for block in region.blocks]


def _kind(op: Any) -> str:
    return str(op.operation.name.partition(".")[2])
