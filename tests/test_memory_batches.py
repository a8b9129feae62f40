"""What batches of products read and make lies with the batch outside, however much the other dims pad."""

from __future__ import annotations

import pytest
from meshwright.planner.graph import Op, Value
from meshwright.planner.memory.tensors.temporaries import temporary_bytes
from meshwright.planner.memory.tensors.tiles import padded_bytes
from programs import of_ops

MIB = 2**20


def batch_of(left: tuple[int, ...], right: tuple[int, ...], dims: int) -> tuple[Value, int]:
    """What a batch of products over so many dims makes of two operands' last dims, and its bytes."""
    made = Value((*left[:-1], right[-2]), "f32")
    attributes = {f"{side}_batching_dimensions": tuple(range(dims)) for side in ("lhs", "rhs")}
    attributes |= {"lhs_contracting_dimensions": (len(left) - 1,), "rhs_contracting_dimensions": (len(right) - 1,)}
    op = Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=attributes)
    program = of_ops((Value(left, "f32"), Value(right, "f32"), made), (op,), (0, 1), (2,))
    return made, temporary_bytes(program)(program.graph, 2)


@pytest.mark.parametrize(("left", "right", "dims", "mib"), [
    ((512, 6, 49, 32), (512, 6, 49, 32), 2, 84),  # v6e: f32[512,6,49,49]{2,3,1,0}, 49 to 128 and 49 to 56
    ((4, 8, 640, 80), (4, 8, 640, 80), 2, 50),  # nothing to pad
    ((4096, 1, 16), (4096, 200, 16), 1, None),  # one other dim: the batch lies wherever it pads least
])  # fmt: skip
def test_a_batch_lies_outside(left: tuple[int, ...], right: tuple[int, ...], dims: int, mib: int | None) -> None:
    made, num_bytes = batch_of(left, right, dims)
    assert num_bytes == (padded_bytes(made) if mib is None else mib * MIB)
    assert num_bytes >= padded_bytes(made)


def test_what_has_the_shape_of_a_batch_alone_lies_as_it_pads_least() -> None:
    """What is computed of the batch number by number lies as it does; an argument of that shape does not."""
    form = Value((512, 6, 49, 49), "f32")
    operands = (Value((512, 6, 49, 32), "f32"),) * 2
    attributes: dict[str, tuple[int, ...]] = {f"{side}_batching_dimensions": (0, 1) for side in ("lhs", "rhs")}
    attributes |= {f"{side}_contracting_dimensions": (3,) for side in ("lhs", "rhs")}
    ops = (
        Op(kind="dot_general", operands=(0, 1), results=(3,), attributes=attributes),
        Op(kind="tanh", operands=(3,), results=(4,)),
        Op(kind="sort", operands=(2,), results=(5,)),
    )
    program = of_ops((*operands, form, form, form, form), ops, (0, 1, 2), (4, 5))
    sizes = temporary_bytes(program)
    assert [sizes(program.graph, v) for v in (3, 4)] == [84 * MIB] * 2
    assert sizes(program.graph, 5) == padded_bytes(form) < 84 * MIB


def test_rows_that_nearly_fill_their_tiles_are_filled_up_to_these() -> None:
    """As logits lie on v5e: 1023 places take 1024, though tiles of two rows would take no more than the numbers do."""
    assert padded_bytes(Value((2, 1023, 32768), "f32")) == 256 * MIB
    assert padded_bytes(Value((2, 129, 32768), "f32")) == 2 * 129 * 32768 * 4
