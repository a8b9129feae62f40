"""What images take whose sums over devices are scattered along a row's places."""

from __future__ import annotations

from meshwright.planner.graph import Op, Value
from meshwright.planner.kernels import Program
from meshwright.planner.kinds import ALL_GATHER, REDUCE_SCATTER
from meshwright.planner.memory.tensors.convolved import laid_bytes, smallest_batch
from meshwright.planner.memory.tensors.scattered_images import copied_for_convolutions, shapes_in_rows
from meshwright.planner.memory.tensors.temporaries import temporary_bytes
from programs import of_ops

ROLES = {
    f"{side}_{role}_dimension": dim for side in ("input", "output") for role, dim in (("batch", 0), ("feature", 3))
} | {"kernel_output_feature_dimension": 3}
MIB = 2**20


def summed(features: int, batch: int = 8) -> Program:
    """A convolution whose sum over four devices each keeps a quarter of, and the gather of that."""
    whole, part = Value((batch, 256, 256, 4 * features), "f32"), Value((batch, 256, 256, features), "f32")
    ops = (
        Op(kind="convolution", operands=(0, 1), results=(2,), attributes=ROLES),
        Op(kind=REDUCE_SCATTER, operands=(2,), results=(3,)),
        Op(kind=ALL_GATHER, operands=(3,), results=(4,)),
    )
    values = (part, Value((3, 3, features, 4 * features), "bf16"), whole, part, whole)
    return of_ops(values, ops, (0, 1), (4,))


def test_images_scattered_along_a_row_lie_with_its_places_on_the_lanes() -> None:
    """As compiled for v5e: f32[8,256,256,16] takes 32 MiB, and what convolutions read and make of it is copied, the
    features on the lanes: 128 MiB of bf16[8,256,256,16], 256 of f32[8,256,256,64].
    """
    program = summed(16)
    assert shapes_in_rows(program.graph) == {(8, 256, 256, 16), (8, 256, 256, 64)}
    assert temporary_bytes(program)(program.graph, 3) == 32 * MIB
    copies = copied_for_convolutions(program, laid_bytes(program, smallest_batch(None)))
    assert [(each.value, each.num_bytes // MIB) for each in copies] == [(0, 128), (2, 256)]


def test_those_whose_features_or_batch_fill_lanes_do_not() -> None:
    """As compiled for v4: f32[16,32,32,8] has its batch on the lanes."""
    assert not shapes_in_rows(summed(128).graph)
    assert not shapes_in_rows(summed(8, 16).graph)
