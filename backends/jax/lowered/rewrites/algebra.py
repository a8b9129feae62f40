"""Arithmetic that XLA simplifies: what changes nothing, division by a constant, constants of constants."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from jaxlib.mlir import ir

from ..attributes import plain
from ..value_names import reading, swap_names, without_names
from .rewriter import Number, Rewriter, is_floating, is_used_once, maker, shape_of, splat_of

ADD, MULTIPLY, NEGATE = "stablehlo.add", "stablehlo.multiply", "stablehlo.negate"
DIVIDE = "stablehlo.divide"
COMPARE, CONVERT, SELECT = "stablehlo.compare", "stablehlo.convert", "stablehlo.select"
SCATTER = "stablehlo.scatter"

NEUTRAL: Mapping[str, Number] = {
    ADD: 0,
    MULTIPLY: 1,
    "stablehlo.maximum": -math.inf,
    "stablehlo.minimum": math.inf,
}
"""The operand that leaves the other as it is, on either side."""

FOLDED: Mapping[str, Callable[..., Number]] = {
    ADD: operator.add,
    MULTIPLY: operator.mul,
    "stablehlo.subtract": operator.sub,
    DIVIDE: operator.truediv,
    NEGATE: operator.neg,
    CONVERT: lambda x: x,
    COMPARE: operator.eq,
    "stablehlo.and": operator.and_,
    "stablehlo.or": operator.or_,
}
"""What constants are computed with; of divisions only those of floating-point numbers."""

COMPARED: Mapping[str, Callable[[Number, Number], bool]] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}


def combine(op: Any, rewriter: Rewriter) -> bool:
    """Drops an operand that changes nothing; puts a constant after what it is combined with."""
    left, right = op.operands
    numbers = splat_of(left), splat_of(right)
    for number, other in zip(numbers, (right, left), strict=True):
        if number is not None and number == NEUTRAL[op.name]:
            rewriter.replace(op, other)
            return True
    if numbers[0] is not None and numbers[1] is None:
        op.operands[0], op.operands[1] = right, left
        swap_names(op)
    if op.name == MULTIPLY:
        return _choose(op, rewriter)
    return op.name == ADD and _add_to_scatter(op, rewriter)


def _choose(op: Any, rewriter: Rewriter) -> bool:
    """A product with a predicate as a number is a choice between the other operand and zero."""
    for value, other in (tuple(op.operands), tuple(op.operands)[::-1]):
        converted = maker(value, CONVERT)
        if converted is not None and str(converted.operands[0].type.element_type) == "i1":
            kind = op.results[0].type
            zeros = rewriter.spread(rewriter.constant(0, kind.element_type, op), shape_of(op.results[0]), op)
            rewriter.replace(op, rewriter.create(SELECT, [converted.operands[0], other, zeros], kind, op, {}))
            return True
    return False


def _add_to_scatter(op: Any, rewriter: Rewriter) -> bool:
    """What is added to a scatter into zeros is what it scatters into; two scatters are left as they are.

    What that makes is the sum, by its name: annotated as what it was, the scatter would stay one by itself.
    """
    if all(maker(value, SCATTER) is not None for value in op.operands):
        return False
    for value, other, place in ((*op.operands, 1), (*tuple(op.operands)[::-1], 0)):
        scatter = maker(value, SCATTER)
        if scatter is not None and splat_of(scatter.operands[0]) == 0 and is_used_once(value) and is_sum(scatter):
            inner = scatter.clone(ip=ir.InsertionPoint(op))
            inner.operands[0] = other
            for note, text in reading([(op, place), (scatter, 1), (scatter, 2)]).items():
                inner.attributes[note] = text
            inner.location = without_names(inner.location)
            rewriter.replace(op, inner.results[0])
            return True
    return False


def subtract(op: Any, rewriter: Rewriter) -> bool:
    """Drops a zero that is taken away."""
    if splat_of(op.operands[1]) != 0:
        return False
    rewriter.replace(op, op.operands[0])
    return True


def divide(op: Any, rewriter: Rewriter) -> bool:
    """A product with the reciprocal of a constant; of two divisions in a row, one by the product."""
    (left, right), kind = op.operands, op.results[0].type
    if not is_floating(kind.element_type):
        return False
    number, first = splat_of(right), maker(left, DIVIDE)
    if number:
        reciprocal = rewriter.spread(rewriter.constant(1 / number, kind.element_type, op), shape_of(left), op)
        rewriter.replace(op, rewriter.create(MULTIPLY, [left, reciprocal], kind, op, {}))
    elif first is not None:
        both = rewriter.create(MULTIPLY, [first.operands[1], right], kind, op, {})
        rewriter.replace(op, rewriter.create(DIVIDE, [first.operands[0], both], kind, op, {}))
    return bool(number) or first is not None


def convert(op: Any, rewriter: Rewriter) -> bool:
    """Drops a conversion to the dtype that its operand has."""
    if op.operands[0].type != op.results[0].type:
        return False
    rewriter.replace(op, op.operands[0])
    return True


def select(op: Any, rewriter: Rewriter) -> bool:
    """A choice between true and false is the predicate; one by a constant is what it chooses."""
    predicate, first, second = op.operands
    always = splat_of(predicate)
    if always is not None:
        rewriter.replace(op, first if always else second)
        return True
    if predicate.type != op.results[0].type or splat_of(first) is not True or splat_of(second) is not False:
        return False
    rewriter.replace(op, predicate)
    return True


def fold(op: Any, rewriter: Rewriter) -> bool:
    """What is computed of constants that are the same number everywhere is one."""
    numbers: list[Number] = []
    for operand in op.operands:
        known = splat_of(operand)
        if known is None:
            return False
        numbers.append(known)
    dtype = op.results[0].type.element_type
    if not isinstance(dtype, (ir.FloatType, ir.IntegerType)):
        return False
    if op.name == DIVIDE and (not is_floating(dtype) or not numbers[1]):
        return False
    compute = COMPARED[plain(op.attributes["comparison_direction"])] if op.name == COMPARE else FOLDED[op.name]
    number = _held(compute(*numbers), dtype)
    if number is not None:
        folded = rewriter.constant(number, dtype, op)
        rewriter.replace(op, rewriter.spread(folded, shape_of(op.results[0]), op))
    return number is not None


def _held(number: Number, dtype: Any) -> Number | None:
    """A number as a dtype holds it; None where that is not the number itself, save for its fraction."""
    if is_floating(dtype):
        return float(number)
    if dtype.width == 1:
        return bool(number)
    low = 0 if dtype.is_unsigned else -(2 ** (dtype.width - 1))
    return int(number) if math.isfinite(number) and low <= number < 2 ** (dtype.width - 1) else None


def is_sum(op: Any) -> bool:
    """Whether all that an operation's region does is to add."""
    return [inner.operation.name for inner in op.regions[0].blocks[0].operations][:-1] == [ADD]


def square(op: Any, rewriter: Rewriter) -> bool:
    """As a product, through which propagation passes; it does not pass through CHLO's own operation."""
    (x,) = op.operands
    rewriter.replace(op, rewriter.create(MULTIPLY, [x, x], op.results[0].type, op, {}))
    return True


def reverse(op: Any, rewriter: Rewriter) -> bool:
    """Dims of size one are as they are the other way round: kernels of one place are read by two convolutions."""
    (value,) = op.operands
    if any(shape_of(value)[dim] != 1 for dim in op.attributes["dimensions"]):
        return False
    rewriter.replace(op, value)
    return True


def reduce(op: Any, rewriter: Rewriter) -> bool:
    """A reduction over dims of size one is a reshape; a sum of negated numbers is negated."""
    if len(op.operands) != 2:
        return False
    source, dims = op.operands[0], list(op.attributes["dimensions"])
    if dims and all(shape_of(source)[dim] == 1 for dim in dims):
        rewriter.replace(op, rewriter.reshaped(source, shape_of(op.results[0]), op))
        return True
    negated = maker(source, NEGATE)
    if negated is None or not is_sum(op) or not is_used_once(source):
        return False
    inner = op.clone(ip=ir.InsertionPoint(op))
    inner.operands[0] = negated.operands[0]
    rewriter.replace(op, rewriter.create(NEGATE, [inner.results[0]], op.results[0].type, op, {}))
    return True
