"""What lies beside single images that loops take in pieces."""

from __future__ import annotations

from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.memory.tensors.convolved import copied_whole
from meshwright.planner.memory.tensors.taken_in_pieces import Alone, beside_loops
from meshwright.planner.memory.tensors.temporaries import temporary_bytes
from programs import KERNEL_GRADIENT, of_ops
from test_memory_images import in_turns

MIB = 1 << 20
AS_LARGE = 4
"""How much larger the images of 128 x 128 are that were compiled than these, of 64 x 64."""


def beside(features: int) -> list[tuple[bool, float]]:
    """What lies beside one, whether made alone and its MiB as compiled, of which each turn takes so many features."""
    found = beside_loops(in_turns(1, features, 4, dtype="bf16"))
    return [(isinstance(each, Alone), AS_LARGE * each.num_bytes / MIB) for each in found]


def test_four_features_of_a_single_image_lie_on_the_lanes_and_what_is_made_of_them_in_two_rows() -> None:
    """As compiled for v5p: both pieces of a turn are bf16[1,128,128,2,4]{4,2,1,3,0} and stay near, its products
    bf16[1,128,128,128,1]{3,0,4,2,1} do not, 8 MiB each, both at once. On v6e and v4 alike.
    """
    assert beside(4) == [(False, 8), (False, 8), (True, 8), (True, 8)]


def test_two_features_of_a_single_image_are_copied_for_what_convolves_them() -> None:
    """As compiled for v5p: bf16[1,128,128,2,2]{4,0,3,2,1}, 16 MiB, and of what is made of them, which is added up with
    its places on the lanes, bf16[1,128,128,32,1]{3,0,4,2,1} at a time.
    """
    assert beside(2) == [(True, 16), (True, 8)]


def test_one_feature_of_what_comes_back_to_a_single_image_is_copied_for_the_gradient_of_a_kernel() -> None:
    """As compiled for v5p of weights whose update is shared out: bf16[1,256,256,2,1]{0,4,3,2,1} takes 64 MiB where the
    image takes 4; bf16[1,56,56,2,2]{4,2,1,3,0} of two features a device lies as it is taken, near.
    """
    for features, made in ((1, [(True, 64)]), (2, [(False, 32), (False, 32)])):
        image, part = Value((1, 256, 256, 32), "f32"), Value((1, 256, 256, 2 * features), "f32")
        kernel, summed = Value((3, 3, 32, 2 * features), "f32"), Value((3, 3, 32, features), "f32")
        inner = (
            Op(kind="dynamic_slice", operands=(1,), results=(3,), attributes={"step": 0}),
            Op(kind="convolution", operands=(0, 3), results=(4,), attributes=KERNEL_GRADIENT),
        )
        body = Graph(values=(image, image, summed, part, kernel), ops=inner, arguments=(0, 1, 2), results=(4,))
        ops = (
            Op(kind="tanh", operands=(0,), results=(2,)),
            Op(kind="while", operands=(0, 2, 1), results=(3,), bodies=(body,), trips=4),
        )
        program = of_ops((image, summed, image, summed), ops, (0, 1), (3,))
        found = [(isinstance(each, Alone), each.num_bytes / MIB) for each in beside_loops(program)]
        assert found == made


def test_what_the_gradient_of_a_kernel_convolves_of_single_images_is_copied_before_what_comes_back_is_made() -> None:
    """As compiled for v6e: bf16[1,256,256,3]{3,0,2,1} in 32 MiB while a loop makes what comes back to it, and for v5p
    bf16[1,128,128,128]{3,0,2,1} in 8; what comes back is copied just before.
    """
    filling = in_turns(1, 8, 4, fills=True, dtype="bf16").graph
    image, kernel = filling.values[3], Value((3, 3, 128, 128), "f32")
    ops = (
        *filling.ops,
        Op(kind="tanh", operands=(3,), results=(4,)),
        Op(kind="sort", operands=(0,), results=(5,)),
        Op(kind="convolution", operands=(3, 4), results=(6,), attributes=KERNEL_GRADIENT),
    )
    values = (*filling.values[:4], image, filling.values[0], kernel)
    program = of_ops(values, ops, filling.arguments, (5, 6))
    found = [(each.value, each.span, each.num_bytes) for each in copied_whole(program, 8, early=False)]
    assert found == [(3, (2, 4), 64 * 64 * 2 * 128 * 2), (4, (4, 4), 64 * 64 * 2 * 128 * 2)]


def test_single_images_of_float32_have_their_features_on_the_lanes() -> None:
    """As compiled for v5p: f32[1,256,256,32]{3,2,1,0} that turns add up or fill takes 32 MiB, not 8, and what they add
    up, f32[1,256,256,32,1]{3,0,4,2,1} twice, as much; on v5e and v6e f32[1,56,56,32] lies so too.
    """
    for dtype, num_bytes in (("bf16", 64 * 32 * 128 * 2), ("f32", 64 * 64 * 128 * 4)):
        filled = in_turns(1, 2, 4, fills=True, dtype=dtype)
        assert temporary_bytes(filled)(filled.graph, 3) == num_bytes
    made = [each.num_bytes for each in beside_loops(in_turns(1, 2, 4)) if isinstance(each, Alone)]
    assert made == [64 * 64 * 2 * 2 * 128 * 2, *[64 * 64 * 2 * 128 * 2] * 2]
