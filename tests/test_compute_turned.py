"""What copies take of gradients that lie transposed."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute import price
from meshwright.planner.compute.copies.turned_copies import Copies, copies_cycles
from meshwright.planner.compute.speed import speed_of
from meshwright.planner.graph import Op, Origin, Value
from programs import of_ops

WIDTH, SHAPE = 2048, (128, 1024)
"""What a weight makes, and what it multiplies: rows, and numbers of each."""


def cycles(
    chip: str, *, sums: int, scope: str = "jit(loss)/transpose(jvp())/dot_general", shape: tuple[int, int] = SHAPE
) -> float:
    """What the gradient of a first layer's weight takes that so many collectives add up into a result."""
    rows, length = shape
    weight = Value((length, WIDTH), "f32")
    said = {"lhs_contracting_dimensions": (0,), "rhs_contracting_dimensions": (0,)}
    ops = [Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=said, origin=Origin(scope=scope))]
    ops += [Op(kind="all-reduce", operands=(2 + n,), results=(3 + n,)) for n in range(sums)]
    values = (Value((rows, length), "f32"), Value((rows, WIDTH), "f32"), *[weight] * (sums + 1))
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


def test_a_gradient_is_upright_where_what_its_weight_multiplies_lies_across() -> None:
    """Compiled for v6e: a perceptron of f32[512,784] copies no gradient and nothing for its update."""
    across, upright = (
        [cycles("v6e", sums=1, shape=(512, length), scope=f"jit(loss)/{name}") for name in ("transpose(", "jvp(")]
        for length in (784, 768)
    )
    assert across[0] == across[1]
    assert upright[0] > upright[1]


@pytest.mark.parametrize(("dtype", "shape", "compiled"), [("f32", (2048, 256), 13080), ("bf16", (6144, 1536), 183840)])
def test_numbers_are_turned_whatever_bytes_they_have(dtype: str, shape: tuple[int, int], compiled: int) -> None:
    """Copies of perceptrons' weights in programs for v6e, from the large memory and back."""
    value, large = Value(shape, dtype), Value((16384, 16384), "f32")
    copies = Copies([value], [], [value, large])
    assert copies_cycles(copies, speed_of(catalogue()["v6e"])) == pytest.approx(compiled, rel=0.12)
