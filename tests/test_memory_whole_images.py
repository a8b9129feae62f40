"""What few images take that a step is given, where they are convolved."""

from __future__ import annotations

import pytest
from meshwright.planner.graph import Op, Value
from meshwright.planner.memory.convolved import copied_whole
from meshwright.planner.memory.temporaries import temporary_bytes
from programs import of_ops

GRADIENT = {
    "input_batch_dimension": 3,
    "input_feature_dimension": 0,
    "kernel_input_feature_dimension": 0,
    "kernel_output_feature_dimension": 3,
    "kernel_spatial_dimensions": (1, 2),
    "output_batch_dimension": 2,
    "output_feature_dimension": 3,
    "output_spatial_dimensions": (0, 1),
}
MIB = 2**20


@pytest.mark.parametrize(("early", "first"), [(True, 0), (False, 1)])
def test_the_gradient_of_an_argument_s_kernel_reads_both_whole(early: bool, first: int) -> None:
    """As compiled for v5e: bf16[1,256,256,64] is copied twice into 32 MiB, for two rows, and what comes back lies cut
    once, in 16 MiB: no other convolution reads it.
    """
    image, kernel = Value((1, 256, 256, 64), "f32"), Value((3, 3, 64, 64), "f32")
    back = Value((1, 256, 256, 64), "bf16")
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind="convolution", operands=(0, 1), results=(2,), attributes=GRADIENT),
    )
    program = of_ops((image, back, kernel), ops, (0,), (2,))
    found = list(copied_whole(program, 8, early=early))
    assert [(each.value, each.span, each.num_bytes // MIB) for each in found] == [
        (0, (first, 1), 32),
        (1, (1, 1), 32),
    ]
    assert temporary_bytes(program)(program.graph, 1) == 16 * MIB
    assert not list(copied_whole(program, 1, early=early))
