"""Dims of size one out of the way: HLO's broadcasts do not expand them, so these become reshapes, which sink below the
elementwise operations that follow them and vanish in broadcasts. A mean is taken without the dim that it sums over.
"""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir

from .rewriter import BROADCAST, CONSTANT, DIMS, RESHAPE, Rewriter, made_by, maker, shape_of, splat_of, tensor_type

IOTA, IOTA_DIM = "stablehlo.iota", "iota_dimension"

ELEMENTWISE = frozenset(
    f"stablehlo.{name}"
    for name in """
    abs add and cbrt ceil compare complex convert cosine divide exponential exponential_minus_one floor imag is_finite
    log log_plus_one logistic maximum minimum multiply negate not or power real remainder round_nearest_afz
    round_nearest_even rsqrt select shift_left shift_right_arithmetic shift_right_logical sign sine sqrt subtract tan
    tanh xor
    """.split()  # noqa: SIM905
)

MOVING = ELEMENTWISE | {BROADCAST, RESHAPE}
"""What takes a reshape of what it reads further."""


def broadcast(op: Any, rewriter: Rewriter) -> None:
    """As a broadcast of its operand without dims of size one, and of what that is a broadcast or reshape of."""
    source, result = op.operands[0], op.results[0]
    if not shape_of(source) and maker(source, BROADCAST) is None and _proper(shape_of(result)):
        return
    dims = list(op.attributes[DIMS])
    if _proper(shape_of(source)) == _proper(shape_of(result)) and dims == sorted(dims):
        rewriter.replace(op, rewriter.reshaped(source, shape_of(result), op))
        return
    kept = [i for i, size in enumerate(shape_of(source)) if size != 1]
    if len(kept) < len(dims):
        source, dims = rewriter.reshaped(source, _proper(shape_of(source)), op), [dims[i] for i in kept]
    inner, counted = maker(source, BROADCAST), maker(source, IOTA)
    if counted is not None:
        rewriter.replace(op, _iota(op, rewriter, dims[counted.attributes[IOTA_DIM].value]))
        return
    if inner is not None:
        source, dims = inner.operands[0], [dims[i] for i in inner.attributes[DIMS]]
    if source != op.operands[0]:
        rewriter.replace(op, rewriter.broadcast(source, dims, result.type, op))


def reshape(op: Any, rewriter: Rewriter) -> None:
    """As one reshape of what its operand is a reshape of; none where that has its shape."""
    source, shape = op.operands[0], shape_of(op.results[0])
    if shape_of(source) == shape or maker(source, RESHAPE) is not None:
        rewriter.replace(op, rewriter.reshaped(source, shape, op))
    elif maker(source, IOTA) is not None and _proper(shape_of(source)) == shape and _counts(source):
        rewriter.replace(op, _iota(op, rewriter, _same_dim(_counted(source), source, shape)))
    elif splat_of(source) is not None and maker(source, BROADCAST) is not None:
        rewriter.replace(op, rewriter.spread(made_by(source).operands[0], shape, op))


def sink(op: Any, rewriter: Rewriter) -> None:
    """An elementwise operation on operands that only got or lost dims of size one is computed without these."""
    makers = [made_by(operand) for operand in op.operands]
    reshapes = [each for each in makers if each is not None and each.name == RESHAPE]
    if not reshapes or not all(map(_may_move, reshapes)):
        return
    shape = shape_of(reshapes[0].operands[0])
    if any(shape_of(each.operands[0]) != shape for each in reshapes):
        return
    if _proper(shape) != _proper(shape_of(op.results[0])):
        return
    if any(each is None or not (each.name == RESHAPE or _is_scalar(each)) for each in makers):
        return
    operands = [each.operands[0] if each.name == RESHAPE else _in_shape(each, shape, op, rewriter) for each in makers]
    kind = tensor_type(shape, op.results[0].type.element_type)
    inner = rewriter.create(op.name, operands, kind, op, dict(op.attributes.items()))
    rewriter.replace(op, rewriter.reshaped(inner, shape_of(op.results[0]), op))


def _iota(op: Any, rewriter: Rewriter, dim: int) -> Any:
    """Numbers counted along a dim, in place of the result of ``op``."""
    attribute = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dim)
    return rewriter.create(IOTA, [], op.results[0].type, op, {IOTA_DIM: attribute})


def _counted(source: Any) -> int:
    """The dim along which the numbers of an iota are counted."""
    return int(made_by(source).attributes[IOTA_DIM].value)


def _counts(source: Any) -> bool:
    """Whether there are several numbers along that dim, and not zeros alone."""
    return shape_of(source)[_counted(source)] != 1


def _same_dim(dim: int, source: Any, shape: tuple[int, ...]) -> int:
    """Where a dim of more than one stands in a shape that differs from the source's in dims of size one only."""
    proper = [i for i, size in enumerate(shape) if size != 1]
    return proper[len(_proper(shape_of(source)[:dim]))]


def _proper(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([size for size in shape if size != 1])


def _may_move(moved: Any) -> bool:
    """Whether all that reads a reshape would take it further, so that it goes."""
    return all(use.owner.name in MOVING for use in moved.results[0].uses)


def _is_scalar(made: Any) -> bool:
    """Whether this makes one number, however often it stands in the result."""
    return made.name in (BROADCAST, CONSTANT) and (
        splat_of(made.results[0]) is not None or (made.name == BROADCAST and not shape_of(made.operands[0]))
    )


def _in_shape(made: Any, shape: tuple[int, ...], at: Any, rewriter: Rewriter) -> Any:
    value = made.results[0]
    if made.name == BROADCAST and not shape_of(made.operands[0]):
        return rewriter.spread(made.operands[0], shape, at)
    number, dtype = splat_of(value), value.type.element_type
    return rewriter.spread(rewriter.constant(number if number is not None else 0, dtype, at), shape, at)
