"""What few images take that a step is given, where they are convolved."""

from __future__ import annotations

import pytest
from meshwright.dsl.machine import parse_topology
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kinds import ALL_GATHER
from meshwright.planner.memory.tensors.convolved import copied_whole
from meshwright.planner.memory.tensors.taken_whole import beside_whole
from meshwright.planner.memory.tensors.temporaries import temporary_bytes
from meshwright.planner.topology import physical
from programs import KERNEL_GRADIENT, of_ops

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
        Op(kind="convolution", operands=(0, 1), results=(2,), attributes=KERNEL_GRADIENT),
    )
    program = of_ops((image, back, kernel), ops, (0,), (2,))
    found = list(copied_whole(program, 8, early=early))
    assert [(each.value, each.span, each.num_bytes // MIB) for each in found] == [
        (0, (first, 1), 32),
        (1, (1, 1), 32),
    ]
    assert temporary_bytes(program)(program.graph, 1) == 16 * MIB
    assert not list(copied_whole(program, 1, early=early))


ROLES = {
    f"{side}_{role}_dimension": dim for side in ("input", "output") for role, dim in (("batch", 0), ("feature", 3))
} | {"kernel_output_feature_dimension": 3, "kernel_spatial_dimensions": (0, 1), "output_spatial_dimensions": (1, 2)}


def test_images_are_cut_beside_a_loop_that_leaves_others_of_their_shape_whole() -> None:
    """As compiled for v4: the loop makes f32[4,128,128,8] in 32 MiB, and a convolution f32[128,32,16,8] in 8, the parts
    on the lanes.
    """
    wide, image, kernel = Value((4, 128, 128, 128), "f32"), Value((4, 128, 128, 8), "f32"), Value((3, 3, 8, 8), "f32")
    part, few = Value((4, 128, 128, 32), "f32"), Value((3, 3, 32, 8), "f32")
    inner = (
        Op(kind="dynamic_slice", operands=(1,), results=(3,), attributes={"step": 0}),
        Op(kind="convolution", operands=(3, 2), results=(4,), attributes=ROLES),
    )
    body = Graph(values=(image, wide, few, part, image), ops=inner, arguments=(0, 1, 2), results=(4,))
    ops = (
        Op(kind="while", operands=(0, 1, 2), results=(4,), bodies=(body,), trips=4),
        Op(kind="convolution", operands=(4, 3), results=(5,), attributes=ROLES),
    )
    program = of_ops((image, wide, few, kernel, image, image), ops, (0, 1, 2, 3), (5,))
    sizes = temporary_bytes(program)
    assert [sizes(program.graph, value) // MIB for value in (4, 5)] == [32, 8]


@pytest.mark.parametrize("is_read_elsewhere", [False, True])
def test_what_a_loop_convolves_whole_is_kept_with_its_features_on_the_lanes(is_read_elsewhere: bool) -> None:
    """As compiled for v5e, of two features a device: bf16[4,128,128,64] is computed in 256 MiB, with the batch on the
    lanes as what loops fill is, and kept in a copy of 16.
    """
    image, kernel, part = (
        Value((4, 128, 128, 64), "bf16"),
        Value((3, 3, 64, 4), "bf16"),
        Value((4, 128, 128, 4), "bf16"),
    )
    inner = (
        Op(kind="convolution", operands=(1, 2), results=(3,), attributes=ROLES),
        Op(kind="dynamic_update_slice", operands=(0, 3), results=(4,)),
    )
    body = Graph(values=(image, image, kernel, part, image), ops=inner, arguments=(0, 1, 2), results=(4,))
    ops = (
        Op(kind="sort", operands=(0,), results=(2,)),
        Op(kind="sort", operands=(0,), results=(3,)),
        Op(kind="while", operands=(2, 3, 1), results=(4,), bodies=(body,), trips=4),
    )
    program = of_ops((image, kernel, image, image, image), ops, (0, 1), (4, 3) if is_read_elsewhere else (4,))
    (beside,) = beside_whole(program)
    point = 2 if is_read_elsewhere else 1
    assert (beside.value, beside.span, beside.num_bytes // MIB) == (3, (point, point), 16 if is_read_elsewhere else 256)
    held = temporary_bytes(program)
    assert [held(program.graph, value) // MIB for value in (2, 3)] == [256, 256 if is_read_elsewhere else 16]


def test_what_a_loop_adds_up_has_its_features_on_the_lanes_until_it_is_read() -> None:
    """As compiled for v5e, of two features a device: f32[4,64,64,64] is added up in 8 MiB, and copied into 128 for what
    lies with the batch on the lanes.
    """
    image, kernel, part = Value((4, 64, 64, 64), "f32"), Value((3, 3, 4, 64), "bf16"), Value((4, 64, 64, 4), "f32")
    inner = (
        Op(kind="dynamic_slice", operands=(1,), results=(3,), attributes={"step": 0}),
        Op(kind="convolution", operands=(3, 2), results=(4,), attributes=ROLES),
        Op(kind="add", operands=(0, 4), results=(5,)),
    )
    body = Graph(values=(image, image, kernel, part, image, image), ops=inner, arguments=(0, 1, 2), results=(5,))
    ops = (
        Op(kind="sort", operands=(0,), results=(2,)),
        Op(kind="sort", operands=(0,), results=(3,)),
        Op(kind="while", operands=(2, 3, 1), results=(4,), bodies=(body,), trips=4),
        Op(kind="tanh", operands=(4,), results=(5,)),
    )
    program = of_ops((image, kernel, image, image, image, image), ops, (0, 1), (5,))
    assert [(each.value, each.span, each.num_bytes // MIB) for each in beside_whole(program)] == [(4, (3, 3), 128)]
    held = temporary_bytes(program)
    assert [held(program.graph, value) // MIB for value in (2, 3, 4)] == [8, 128, 8]
    assert [held(body, value) // MIB for value in (1, 4, 5)] == [128, 8, 8]


@pytest.mark.parametrize(
    ("topology", "batch", "features", "turned"),
    [("v3:4x4", 2, 4, True), ("v3:4x4", 8, 8, True), ("v3:4x4", 8, 16, False), ("v5p:2x2x4", 8, 8, False)],
)
def test_v3_gathers_images_with_the_batch_on_the_lanes_for_gradients(
    topology: str, batch: int, features: int, turned: bool
) -> None:
    """As compiled for v3: bf16[2,64,64,32] of which devices hold four features takes 32 MiB, bf16[8,64,64,32] of eight
    too; for v5p the features are on the lanes.
    """
    part, whole = Value((batch, 64, 64, features), "bf16"), Value((batch, 64, 64, 32), "bf16")
    back, kernel = Value((batch, 64, 64, features), "bf16"), Value((3, 3, 32, features), "f32")
    ops = (
        Op(kind=ALL_GATHER, operands=(0,), results=(2,)),
        Op(kind="convolution", operands=(2, 1), results=(3,), attributes=KERNEL_GRADIENT),
    )
    program = of_ops((part, back, whole, kernel), ops, (0, 1), (3,))
    found = temporary_bytes(program, physical(parse_topology(topology)).chip)(program.graph, 2)
    usual = 64 * 64 * 2 * 128 * batch
    assert found == (32 * MIB if turned else usual)
