"""What copies take of gradients that lie transposed."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute import price
from meshwright.planner.graph import Op, Origin, Value
from programs import of_ops

LENGTH, WIDTH, ROWS = 1024, 2048, 128


def cycles(chip: str, *, sums: int, scope: str = "jit(loss)/transpose(jvp())/dot_general") -> float:
    """What the gradient of a first layer's weight takes that so many collectives add up into a result."""
    weight = Value((LENGTH, WIDTH), "f32")
    said = {"lhs_contracting_dimensions": (0,), "rhs_contracting_dimensions": (0,)}
    ops = [Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=said, origin=Origin(scope=scope))]
    ops += [Op(kind="all-reduce", operands=(2 + n,), results=(3 + n,)) for n in range(sums)]
    values = (Value((ROWS, LENGTH), "f32"), Value((ROWS, WIDTH), "f32"), *[weight] * (sums + 1))
    known = catalogue()[chip]
    assert known.clock_hz
    program = of_ops(values, tuple(ops), (0, 1), (2 + sums,))
    return sum(each.seconds for each in price(program, known)) * known.clock_hz


@pytest.mark.parametrize(("chip", "copied"), [("v6e", 23280), ("v5p", 0)])
@pytest.mark.parametrize("sums", [1, 2])
def test_a_gradient_that_is_a_result_is_copied_after_it_is_added_up(chip: str, copied: int, sums: int) -> None:
    """A perceptron compiled for v6e ends with this copy, of 23280 cycles."""
    forward = cycles(chip, sums=sums, scope="jit(loss)/jvp()/dot_general")
    assert cycles(chip, sums=sums) - forward == pytest.approx(copied, rel=0.1, abs=1)
