"""Rewrites that XLA makes before it propagates layouts, and that change what propagation finds.

HLO's broadcasts do not expand dims of size one, so these become reshapes; reshapes then sink below the elementwise
operations that follow them, and vanish in broadcasts. A mean is thus taken without the dim that it summed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jaxlib.mlir import ir

RESHAPE = "stablehlo.reshape"
BROADCAST = "stablehlo.broadcast_in_dim"
CONSTANT = "stablehlo.constant"
MULTIPLY = "stablehlo.multiply"
DIMS = "broadcast_dimensions"

ELEMENTWISE = frozenset(
    f"stablehlo.{name}"
    for name in [
        "abs",
        "add",
        "and",
        "cbrt",
        "ceil",
        "compare",
        "complex",
        "convert",
        "cosine",
        "divide",
        "exponential",
        "exponential_minus_one",
        "floor",
        "imag",
        "is_finite",
        "log",
        "log_plus_one",
        "logistic",
        "maximum",
        "minimum",
        "multiply",
        "negate",
        "not",
        "or",
        "power",
        "real",
        "remainder",
        "round_nearest_afz",
        "round_nearest_even",
        "rsqrt",
        "select",
        "shift_left",
        "shift_right_arithmetic",
        "shift_right_logical",
        "sign",
        "sine",
        "sqrt",
        "subtract",
        "tan",
        "tanh",
        "xor",
    ]
)


def simplify(module: Any) -> None:
    """Rewrites a module in place."""
    with module.context, ir.Location.unknown():
        for operation in list(_nested(module)):
            rule = _sink if operation.name in ELEMENTWISE else RULES.get(operation.name)
            if rule is not None:
                rule(operation)


def _broadcast(op: Any) -> None:
    """As a broadcast of its operand without dims of size one, and of what that is a broadcast or reshape of."""
    source, dims = op.operands[0], list(op.attributes[DIMS])
    result = op.results[0]
    if [n for n in _shape(source) if n != 1] == [n for n in _shape(result) if n != 1] and dims == sorted(dims):
        _replace(op, _reshaped(source, _shape(result), op))
        return
    kept = [i for i, n in enumerate(_shape(source)) if n != 1]
    if len(kept) < len(dims):
        source, dims = _reshaped(source, [_shape(source)[i] for i in kept], op), [dims[i] for i in kept]
    inner = _made_by(source)
    if inner is not None and inner.name == BROADCAST:
        source, dims = inner.operands[0], [dims[i] for i in inner.attributes[DIMS]]
    if source != op.operands[0]:
        _replace(op, _create(BROADCAST, [source], result.type, op, {DIMS: ir.DenseI64ArrayAttr.get(dims)}))


def _square(op: Any) -> None:
    """As a product, through which propagation passes; it does not pass through CHLO's own operation."""
    (x,) = op.operands
    _replace(op, _create(MULTIPLY, [x, x], op.results[0].type, op, {}))


def _reshape(op: Any) -> None:
    """As one reshape of what its operand is a reshape of; none where that has its shape."""
    source = op.operands[0]
    inner = _made_by(source)
    if _shape(source) == _shape(op.results[0]) or (inner is not None and inner.name == RESHAPE):
        _replace(op, _reshaped(source, _shape(op.results[0]), op))


def _sink(op: Any) -> None:
    """An elementwise operation on reshaped operands is the reshape of it on what they were."""
    makers = [_made_by(operand) for operand in op.operands]
    reshapes = [maker for maker in makers if maker is not None and maker.name == RESHAPE]
    if not reshapes or not all(map(_only_sinks, reshapes)):
        return
    shape = _shape(reshapes[0].operands[0])
    if any(_shape(reshape.operands[0]) != shape for reshape in reshapes):
        return
    if any(maker is None or not (maker.name == RESHAPE or _is_scalar(maker)) for maker in makers):
        return
    operands = [maker.operands[0] if maker.name == RESHAPE else _spread(maker, shape, op) for maker in makers]
    kind = ir.RankedTensorType.get(shape, op.results[0].type.element_type)
    inner = _create(op.name, operands, kind, op, dict(op.attributes.items()))
    _replace(op, _reshaped(inner, _shape(op.results[0]), op))


def _only_sinks(reshape: Any) -> bool:
    return all(use.owner.name in ELEMENTWISE for use in reshape.results[0].uses)


def _is_scalar(maker: Any) -> bool:
    """Whether this makes one number, however often it stands in the result."""
    if maker.name == CONSTANT:
        return bool(ir.DenseElementsAttr(maker.attributes["value"]).is_splat)
    return bool(maker.name == BROADCAST and not maker.operands[0].type.shape)


def _spread(maker: Any, shape: Sequence[int], op: Any) -> Any:
    kind = ir.RankedTensorType.get(shape, maker.results[0].type.element_type)
    if maker.name == BROADCAST:
        return _create(BROADCAST, list(maker.operands), kind, op, {DIMS: ir.DenseI64ArrayAttr.get([])})
    number = ir.DenseElementsAttr(maker.attributes["value"]).get_splat_value()
    return _create(CONSTANT, [], kind, op, {"value": ir.DenseElementsAttr.get_splat(kind, number)})


def _reshaped(source: Any, shape: Sequence[int], op: Any) -> Any:
    """``source``, or what it is a reshape of, in this shape."""
    inner = _made_by(source)
    if inner is not None and inner.name == RESHAPE:
        source = inner.operands[0]
    if _shape(source) == list(shape):
        return source
    return _create(RESHAPE, [source], ir.RankedTensorType.get(shape, source.type.element_type), op, {})


def _create(name: str, operands: Sequence[Any], kind: Any, op: Any, attributes: Mapping[str, Any]) -> Any:
    """The value that a new operation makes, which stands before ``op`` and comes from where it does."""
    return ir.Operation.create(
        name, results=[kind], operands=operands, attributes=attributes, loc=op.location, ip=ir.InsertionPoint(op)
    ).results[0]


def _replace(op: Any, value: Any) -> None:
    op.results[0].replace_all_uses_with(value)
    op.erase()


def _made_by(value: Any) -> Any:
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def _shape(value: Any) -> list[int]:
    return list(value.type.shape)


def _nested(parent: Any) -> Iterator[Any]:
    for region in parent.regions:
        for block in region.blocks:
            for op in block.operations:
                yield op.operation
                yield from _nested(op.operation)


RULES: Mapping[str, Callable[[Any], None]] = {
    BROADCAST: _broadcast,
    RESHAPE: _reshape,
    "chlo.square": _square,
}
