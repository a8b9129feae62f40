"""What images take that convolutions read."""

from __future__ import annotations

from dataclasses import replace

import meshwright as mw
import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.image_pieces import turned_shapes
from meshwright.planner.kernels import Kernel, Program
from meshwright.planner.kinds import REDUCE_SCATTER
from meshwright.planner.memory import memory
from meshwright.planner.memory.fast.accessed import bytes_per_s, took_s
from meshwright.planner.memory.flow.flow import flow
from meshwright.planner.memory.narrow_copies import NarrowCopies, narrow_copies, wanted_copies
from meshwright.planner.memory.tensors.convolved import copied_whole, shifted_images, widened_images
from meshwright.planner.memory.tensors.taken_in_pieces import Alone, beside_loops, more_bytes
from meshwright.planner.memory.tensors.temporaries import temporary_bytes
from meshwright.planner.topology import physical
from programs import CONVOLVED, KERNEL_GRADIENT, of_ops

BATCH, SIDE, PATCH, FEATURES = 16, 224, 16, 768
ROLES = {
    f"{side}_{role}_dimension": dim for side in ("input", "output") for role, dim in (("batch", 0), ("feature", 3))
} | {"kernel_output_feature_dimension": 3}

MIB = 2**20


def patches(colours: int) -> int:
    """The temporary bytes of an image convolved patch by patch."""
    image = Value((BATCH, SIDE, SIDE, colours), "f32")
    weights = Value((PATCH, PATCH, colours, FEATURES), "bf16")
    result = Value((BATCH, SIDE // PATCH, SIDE // PATCH, FEATURES), "f32")
    ops = (Op(kind="convolution", operands=(0, 1), results=(2,), attributes=ROLES),)
    return memory(of_ops((image, weights, result), ops, (0, 1), (2,))).temp_bytes


def test_an_image_of_few_colours_is_copied_with_its_batch_on_the_lanes() -> None:
    assert patches(3) == pytest.approx(SIDE * SIDE * 4 * 128 * 2, rel=0.01)


def test_one_of_more_is_copied_with_them_on_the_lanes() -> None:
    assert patches(64) == pytest.approx(SIDE * SIDE * 128 * BATCH * 2, rel=0.01)


def test_one_that_fills_the_lanes_is_not() -> None:
    assert patches(128) < 2**20


@pytest.mark.parametrize(("machine", "mib"), [("v3:2x2", 16), ("v4:2x2x1", 0), ("v6e:2x2", 0)])
def test_the_copy_of_an_image_lies_near_where_it_finds_room(machine: str, mib: int) -> None:
    image, weights = Value((8, 128, 64, 32), "f32"), Value((3, 3, 32, 128), "bf16")
    ops = (Op(kind="convolution", operands=(0, 1), results=(2,), attributes=CONVOLVED),)
    made = of_ops((image, weights, Value((8, 128, 64, 128), "f32")), ops, (0, 1), (2,))
    held = memory(made, physical(mw.loads(f"meshwright: 1\ntopology: {machine}\n").topology).chip)
    assert held.temp_bytes // MIB == mib


@pytest.mark.parametrize(("features", "padded"), [(2, 2 * 128), (8, 32 * 128 // 4), (64, 32 * 128)])
def test_few_features_lie_beside_a_batch_on_the_lanes(features: int, padded: int) -> None:
    """As the compiler lays 32 images of 2, 8 and 64 features out: 64, 256 and 1024 MiB of f32[32,256,256,n]."""
    images, weights = Value((32, 256, 256, 64), "f32"), Value((3, 3, 64, features), "bf16")
    made = Value((32, 256, 256, features), "f32")
    ops = (
        Op(kind="convolution", operands=(0, 1), results=(2,), attributes=ROLES),
        Op(kind="sort", operands=(2,), results=(3,)),
    )
    found = memory(of_ops((images, weights, made, made), ops, (0, 1), (3,)))
    copy = 2 * 256 * 256 * 32 * 128
    assert found.temp_bytes - copy == pytest.approx(4 * 256 * 256 * padded, rel=0.01)


@pytest.mark.parametrize(("topology", "copies"), [("v3:2x2", 1), ("v5e:2x4", 2)])
def test_two_images_are_left_whole_by_chips_without_near_buffers(topology: str, copies: int) -> None:
    """f32[2,256,256,64] takes 64 MiB compiled for v3; for v5e it is cut into eight, and the parts lie there twice
    of what a convolution reads.
    """
    chip = physical(mw.loads(f"meshwright: 1\ntopology: {topology}\n").topology).chip
    whole, weights = Value((2, 256, 256, 64), "f32"), Value((3, 3, 64, 64), "bf16")
    narrow = replace(whole, dtype="bf16")
    ops = (
        Op(kind="convolution", operands=(0, 1), results=(2,), attributes=ROLES),
        Op(kind="tanh", operands=(2,), results=(3,)),
        Op(kind="convolution", operands=(3, 1), results=(4,), attributes=ROLES),
        Op(kind="convolution", operands=(4, 1), results=(5,), attributes=ROLES),
    )
    program = of_ops((whole, weights, whole, whole, narrow, whole), ops, (0, 1), (5,))
    sizes = temporary_bytes(program, chip)
    assert [sizes(program.graph, v) for v in (2, 3)] == [64 * MIB, copies * 64 * MIB]
    assert sizes(program.graph, 4) == 64 * MIB
    assert sizes(program.graph, 5) == 64 * MIB  # no convolution reads it


@pytest.mark.parametrize(("places", "copies"), [(3, 2), (5, 1 + 5 / 2)])
def test_what_is_cut_lies_once_more_for_each_place_of_a_wide_kernel(places: int, copies: float) -> None:
    """As compiled for v5e and v5p: bf16[224,32,29,64,5] behind a kernel of five places, of which few stay near; for v6e
    of three, two that are shifted and two that are cut off for these, while the gradient is computed.
    """
    chip = physical(mw.loads("meshwright: 1\ntopology: v5e:2x4\n").topology).chip
    image, kernel = Value((2, 256, 256, 64), "f32"), Value((places, places, 64, 64), "f32")
    said = ROLES | {"kernel_input_feature_dimension": 2, "output_spatial_dimensions": (1, 2)}
    back = said | {"input_batch_dimension": 3, "input_feature_dimension": 0, "kernel_input_feature_dimension": 0}
    back |= {"kernel_spatial_dimensions": (1, 2), "output_batch_dimension": 2, "output_spatial_dimensions": (0, 1)}
    ops = (
        Op(kind="convolution", operands=(0, 1), results=(2,), attributes=said),
        Op(kind="convolution", operands=(2, 0), results=(3,), attributes=back),
    )
    program = of_ops((image, kernel, image, kernel), ops, (0, 1), (3,))
    assert temporary_bytes(program, chip)(program.graph, 2) == copies * 64 * MIB
    shifted = [(each.span, each.num_bytes // MIB) for each in shifted_images(program, 8)]
    assert shifted == [((1, 1), 32)] * (4 if places == 3 else 0)
    in_one = [each.num_bytes // MIB for each in shifted_images(program, 8, in_one=True)]
    assert in_one == [96, 32] * (places == 3)  # bf16[256,16,33,256,3]


def test_the_kernel_of_a_transposed_convolution_is_no_image_with_gaps() -> None:
    """Its gradient reads the image with gaps, and makes a kernel: only what makes an image is laid out anew."""
    image, wide, kernel = Value((2, 64, 64, 64), "f32"), Value((2, 128, 128, 64), "f32"), Value((2, 2, 64, 64), "f32")
    said = ROLES | {"kernel_input_feature_dimension": 2, "output_spatial_dimensions": (1, 2), "lhs_dilation": (2, 2)}
    back = said | {"input_batch_dimension": 3, "input_feature_dimension": 0, "kernel_input_feature_dimension": 0}
    back |= {"kernel_spatial_dimensions": (1, 2), "output_batch_dimension": 2, "output_spatial_dimensions": (0, 1)}
    ops = (
        Op(kind="convolution", operands=(0, 1), results=(2,), attributes=said),
        Op(kind="convolution", operands=(0, 2), results=(3,), attributes=back),
    )
    program = of_ops((image, kernel, wide, kernel), ops, (0, 1), (2, 3))
    assert [each.value for each in widened_images(program, 8, 0)] == [2, 2]


def test_what_is_added_to_an_image_that_is_cut_lies_once_more_where_it_is_kept() -> None:
    """As compiled for v6e: bf16[256,16,33,256] of what a bias is added to, 66 MiB, and of what is rectified of it."""
    chip = physical(mw.loads("meshwright: 1\ntopology: v6e:4x4\n").topology).chip
    image, kernel, bias = Value((2, 256, 256, 64), "bf16"), Value((3, 3, 64, 64), "bf16"), Value((64,), "bf16")
    ops = (
        Op(kind="convolution", operands=(0, 1), results=(3,), attributes=ROLES),
        Op(kind="broadcast_in_dim", operands=(2,), results=(4,)),
        Op(kind="add", operands=(3, 4), results=(5,)),
        Op(kind="tanh", operands=(5,), results=(6,)),
        Op(kind="convolution", operands=(6, 1), results=(7,), attributes=ROLES),
    )
    graph = Graph(values=(image, kernel, bias, *(image,) * 5), ops=ops, arguments=(0, 1, 2), results=(7,))
    kernels = (
        Kernel(ops=(0, 1, 2), reads=(0, 1, 2), writes=(5,)),
        Kernel(ops=(3, 4), reads=(5, 1), writes=(7,)),
    )
    sizes = temporary_bytes(Program(graph=graph, kernels=kernels), chip)
    assert sizes(graph, 5) == 2 * 32 * MIB


def test_what_is_added_up_into_few_features_lies_as_they_do() -> None:
    """On v3 the compiler has f32[32,256,256,64] twice as large where a reduce-scatter leaves eight features of it."""
    whole, piece = Value((32, 256, 256, 64), "f32"), Value((32, 256, 256, 8), "f32")
    weights = Value((3, 3, 64, 64), "bf16"), Value((3, 3, 8, 8), "bf16")
    ops = (
        Op(kind="convolution", operands=(0, 1), results=(3,), attributes=ROLES),
        Op(kind=REDUCE_SCATTER, operands=(3,), results=(4,)),
        Op(kind="convolution", operands=(4, 2), results=(5,), attributes=ROLES),
    )
    program = of_ops((whole, *weights, whole, piece, piece), ops, (0, 1, 2), (5,))
    found = flow(program, temporary_bytes(program), lambda body: 0)
    assert found.num_bytes[3] == 4 * 64 * 256 * 256 * 128


def in_turns(
    batch: int, features: int, trips: int, *, fills: bool = False, is_made: bool = False, dtype: str = "f32"
) -> Program:
    """A loop that takes, or fills, the features of two devices at a time; each has so many of ``16 * features``, of an
    argument or of what is made.
    """
    whole, part = Value((batch, 64, 64, 16 * features), dtype), Value((batch, 64, 64, 2 * features), dtype)
    kernel = Value((3, 3, part.shape[3], whole.shape[3]), "bf16")
    said = ROLES | {"kernel_input_feature_dimension": 2, "output_spatial_dimensions": (1, 2)}
    said |= {"kernel_spatial_dimensions": (0, 1)}
    if fills:
        inner = (
            Op(kind="convolution", operands=(0, 1), results=(3,), attributes=said),
            Op(kind="dynamic_update_slice", operands=(2, 3), results=(4,)),
        )
        values = (whole, kernel, whole, part, whole)
    else:
        inner = (
            Op(kind="dynamic_slice", operands=(0,), results=(3,), attributes={"step": 0}),
            Op(kind="convolution", operands=(3, 1), results=(4,), attributes=said),
        )
        values = (whole, kernel, whole, part, whole)
    body = Graph(values=values, ops=inner, arguments=(2, 0, 1), results=(4,))
    ops = (
        Op(kind="sort", operands=(0,), results=(2,)),
        Op(kind="while", operands=(2, 2 if is_made else 0, 1), results=(3,), bodies=(body,), trips=trips),
    )
    return of_ops((whole, kernel, whole, whole), ops, (0, 1), (3,))


def test_what_chips_count_of_convolutions_in_rings() -> None:
    """As the logs of memory space assignment have it: v6e's units, 38 us for one of 3 x 3 in a ring of 4 whose bytes
    take 6, and on v4 and v5e the bytes of what is made for two devices and taken apart, 137 us a turn that fills
    f32[2,56,56,64], which is 3 MiB. On v5e two loops that fill bf16[4,64,64,128] and [4,64,64,256] take 830 us in five
    turns each, where the units take 350 and 1030.
    """
    program = in_turns(2, 8, 4, fills=True)
    loop = program.kernels[-1]
    permute = Op(kind="collective-permute", operands=(1,), results=(5,), attributes={"around": True, "axes": ("x",)})
    (body,) = loop.bodies
    graph = replace(body.graph, values=(*body.graph.values, body.graph.values[1]), ops=(*body.graph.ops, permute))
    ring = replace(body, graph=graph)
    kernels = (*program.kernels[:-1], replace(loop, bodies=(ring,)))
    found = {}
    for name, chip in ((name, catalogue()[name]) for name in ("v4", "v5e", "v6e")):
        scanned, round_ = (tuple(took_s(each, chip))[-1][0] for each in (program, replace(program, kernels=kernels)))
        found[name] = round_ / scanned
    assert found["v5e"] < 0.95  # bytes alone: less than a scan of the same, whose units count
    assert found["v6e"] > 1.5
    assert found["v4"] > 2
    assert list(more_bytes(program.graph.ops[-1], ())) == [(5 * 8 - 2 * 4) << 20]
    assert list(more_bytes(program.graph.ops[-1], {3})) == [(5 * 4 - 2 * 4) << 20]  # what it fills is rounded after it


def test_a_copy_that_is_made_before_its_loop_asks_for_room_as_much_as_that_saves() -> None:
    """bf16[2,56,56,64] with its batch on the lanes, 49 MiB, has v4's memory in common, and others leave it (libtpu
    0.0.51): it is written once and read in each of five turns. What is copied long before asks for nothing.
    """
    program, chip = in_turns(4, 2, 4, is_made=True), catalogue()["v4"]
    found = NarrowCopies({-7: 2, -8: 2}, {-7: (1, 1), -8: (0, 1)}, {-7: 49 << 20, -8: 49 << 20})
    (wanted,) = wanted_copies(program, found, chip, ())
    assert (wanted.number, wanted.made, list(wanted.uses)) == (-7, 1, [1])
    assert wanted.saved_s == pytest.approx(6 * (49 << 20) / bytes_per_s(chip))


def test_few_features_a_turn_lay_all_of_an_image_with_its_batch_on_the_lanes() -> None:
    """As compiled for v6e: bf16[4,256,256,32] of which each device has two features takes 512 MiB, not 16 or 64."""
    program = in_turns(4, 2, 4, is_made=True)
    assert turned_shapes(program.graph) == {(4, 64, 64, 32)}
    assert temporary_bytes(program)(program.graph, 2) == 4 * 64 * 64 * 32 * 128
    assert not turned_shapes(in_turns(2, 8, 4).graph)  # and eight features of two images do not, as on v6e and v5e
    assert not turned_shapes(in_turns(4, 2, 1).graph)  # one turn is no loop


def test_an_image_that_convolutions_cut_outside_of_loops_lies_in_parts_there() -> None:
    """As compiled for v5p, v5e and v6e of weights that are shared out, so that only their gradients are made in loops:
    f32[4,64,64,32] lies as f32[64,32,9,32], and the loop has a copy in bfloat16 with the batch on the lanes.
    """
    image, part = Value((4, 64, 64, 32), "f32"), Value((4, 64, 64, 4), "f32")
    kernel, made = Value((3, 3, 32, 32), "bf16"), Value((3, 3, 4, 32), "f32")
    inner = (
        Op(kind="dynamic_slice", operands=(1,), results=(3,), attributes={"step": 0}),
        Op(kind="convolution", operands=(3, 2), results=(4,), attributes=KERNEL_GRADIENT),
    )
    body = Graph(values=(made, image, image, part, made), ops=inner, arguments=(0, 1, 2), results=(4,))
    ops = (
        Op(kind="convolution", operands=(0, 1), results=(3,), attributes=CONVOLVED | {"padding": ((1, 1), (1, 1))}),
        Op(kind="while", operands=(2, 3, 0), results=(4,), bodies=(body,), trips=4),
    )
    program = of_ops((image, kernel, made, image, made), ops, (0, 1, 2), (4,))
    assert not turned_shapes(program.graph)
    assert temporary_bytes(program)(program.graph, 3) == 4 * 64 * (8 * 9) * 128 * 4
    (copy,) = beside_loops(program)
    assert copy == (3, (1, 1), 2 * 64 * 64 * 32 * 128)


def test_a_single_image_that_turns_fill_has_its_places_on_the_lanes() -> None:
    """As compiled for v4, bf16[1,128,128,256]{2,3,1,0}, and for v5p, bf16[1,64,64,256]{2,3,1,0} in 4 MiB, not 2; one
    that fewer features leave emptier than its places lies so too where turns convolve all of it, but a copy does not:
    bf16[1,128,128,32]{2,3,1,0} takes 1 MiB on v5p, its copy for each turn 8.
    """
    filled = in_turns(1, 8, 4, fills=True, dtype="bf16")
    assert temporary_bytes(filled)(filled.graph, 3) == 64 * 128 * 128 * 2
    assert [each.value for each in beside_loops(filled) if isinstance(each, Alone)] == [3]
    read = in_turns(1, 2, 4, fills=True, dtype="bf16")
    assert temporary_bytes(read)(read.graph, 2) == 64 * 32 * 128 * 2
    copies = [each.num_bytes for each in beside_loops(read) if each.value == 0]
    assert copies == [64 * 64 * 2 * 128 * 2]


def test_a_convolution_leaves_nothing_near_on_v5p() -> None:
    """As compiled for v5p: what a turn makes for two devices, bf16[1,128,128,2,4], lies in the large memory, its parts
    are near; on v4 both are.
    """
    program = in_turns(1, 8, 4, fills=True, dtype="bf16")
    held = flow(program, temporary_bytes(program), lambda body: 0)
    for machine, near in (("v5p:2x2x1", [False, True]), ("v4:2x2x1", [True, True])):
        chip = physical(mw.loads(f"meshwright: 1\ntopology: {machine}\n").topology).chip
        wanted = wanted_copies(program, narrow_copies(program, held, chip, {}), chip, ())
        assert [each.left_near for each in wanted if each.num_bytes == 2 * 64 * 64 * 4 * 128] == near


def test_what_a_turn_puts_into_an_image_is_made_and_then_taken_apart() -> None:
    """As compiled for v5e: f32[4,256,256,2,8] takes 256 MiB and its two parts as much, eight features on the lanes."""
    made = [each.num_bytes for each in beside_loops(in_turns(4, 8, 4, fills=True))]
    assert made == [2 * 4 * 64 * 64 * 4 * 128] * 2
    single = [each.num_bytes for each in beside_loops(in_turns(1, 8, 4, fills=True))]
    assert single == [2 * 64 * 64 * 4 * 128] * 2  # as bf16[1,128,128,2,4] in 16 MiB and its parts, for v5p


def test_a_product_may_be_put_in_before_the_next_is_made() -> None:
    """As compiled for v6e: of f32[2,256,256,2,8] each turn makes two, 128 MiB each, and takes one apart into halves
    before it makes the other.
    """
    halves = [each.num_bytes for each in beside_loops(in_turns(4, 8, 4, fills=True), in_turn=3)]
    assert halves == [2 * 4 * 64 * 64 * 4 * 128, *[4 * 64 * 64 * 4 * 128] * 2]
    assert len(list(beside_loops(in_turns(4, 8, 4, fills=True), in_turn=1))) == 2


def test_one_turn_takes_its_parts_out_of_an_image_before_it() -> None:
    """As compiled for v6e: bf16[16,128,128,2,32] takes 128 MiB, since its image has features on the lanes. A copy lies
    as the convolution has it, as bf16[16,256,256,2,8] in 256 MiB, the batch on the lanes, on v5e; there is none of an
    argument's that has its features there.
    """
    part, copy = beside_loops(in_turns(16, 8, 1, is_made=True))
    assert part.num_bytes == 2 * 2 * 16 * 64 * 64 * 128
    assert copy.num_bytes == 2 * 2 * 8 * 64 * 64 * 128
    assert copy.span == (1, 1)
    (part,) = beside_loops(in_turns(16, 8, 1))
    assert part.num_bytes == 2 * 2 * 16 * 64 * 64 * 128


@pytest.mark.parametrize(("early", "comes_back", "first"), [(True, False, 0), (True, True, 2), (False, False, 2)])
def test_a_gradient_in_a_loop_reads_a_copy_with_the_batch_on_the_lanes(
    early: bool, comes_back: bool, first: int
) -> None:
    """As compiled: bf16[2,256,256,32], two features a device, is copied into 512 MiB just before its loop on v6e, as
    bf16[4,64,64,128] that comes back into 128 on v5e; bf16[2,64,64,32] and bf16[4,64,64,64] of the forward pass as soon
    as they are there on v5e.
    """
    image, part, made = Value((2, 64, 64, 32), "bf16"), Value((2, 64, 64, 4), "bf16"), Value((3, 3, 4, 32), "f32")
    inner = (
        Op(kind="dynamic_slice", operands=(1,), results=(3,), attributes={"step": 0}),
        Op(
            kind="convolution",
            operands=(2, 3) if comes_back else (3, 2),
            results=(4,),
            attributes=KERNEL_GRADIENT,
        ),
    )
    body = Graph(values=(made, image, image, part, made), ops=inner, arguments=(0, 1, 2), results=(4,))
    ops = (
        Op(kind="sort", operands=(0,), results=(3,)),
        Op(kind="sort", operands=(1,), results=(4,)),
        Op(kind="while", operands=(2, 3, 4), results=(5,), bodies=(body,), trips=4),
    )
    program = of_ops((image, image, made, image, image, made), ops, (0, 1, 2), (5,))
    (copy,) = beside_loops(program, early=early)
    assert copy == (3, (first, 2), 2 * 64 * 64 * 32 * 128)


def test_parts_of_few_images_hold_the_margins_that_convolutions_read() -> None:
    """Four images of 128 by 128 as compiled for v5e: f32[128,32,17,64], eight parts of 17 places each."""
    values = tuple(Value((4, 128, 128, 64), "f32") for _ in range(2))
    kernel = Value((3, 3, 64, 64), "bf16")
    op = Op(kind="convolution", operands=(0, 2), results=(1,), attributes=CONVOLVED)
    made = of_ops((*values, kernel), (op,), (0, 2), (1,))
    chip = physical(mw.loads("meshwright: 1\ntopology: v5e:2x4\n").topology).chip
    assert temporary_bytes(made, chip)(made.graph, 1) == 128 * 32 * 17 * 128 * 4


@pytest.mark.parametrize(("early", "waiting"), [(True, [((1, 1), 8), ((2, 3), 4)]), (False, [((3, 3), 8)])])
def test_what_is_put_beside_neighbours_rows_waits_in_copies_for_the_gradient_of_its_kernel(
    *, early: bool, waiting: list[tuple[tuple[int, int], int]]
) -> None:
    """As compiled for v5e: bf16[98,32,49,64] is there three times from the convolution on, for v6e none of them is."""
    image, rows, joined = (Value((4, size, 384, 64), "bf16") for size in (96, 1, 98))
    kernel = Value((3, 3, 64, 64), "bf16")
    ops = (
        Op(kind="concatenate", operands=(2, 0, 2), results=(3,), attributes={"dimension": 1}),
        Op(kind="convolution", operands=(3, 1), results=(4,), attributes=CONVOLVED | {"padding": ((0, 0), (1, 1))}),
        Op(kind="tanh", operands=(4,), results=(5,)),
        Op(kind="convolution", operands=(3, 5), results=(6,), attributes=KERNEL_GRADIENT),
    )
    program = of_ops((image, kernel, rows, joined, image, image, kernel), ops, (0, 1, 2), (6,))
    found = [each.span for each in shifted_images(program, 8, early=early)]
    assert sorted((span, found.count(span)) for span in {*found}) == [(span, each // 2) for span, each in waiting]
    assert {each.num_bytes for each in shifted_images(program, 8, early=early)} == {4 * 98 * 384 * 128 * 2}


@pytest.mark.parametrize(("smallest", "rows"), [(2, [4, 2]), (8, [])])
def test_the_gradient_of_a_kernel_reads_a_single_picture_in_four_rows_on_v3(smallest: int, rows: list[int]) -> None:
    """As compiled for v3, of three features and of 32; later chips copy none of so few."""
    picture, back, kernel = Value((1, 64, 64, 3), "f32"), Value((1, 64, 64, 64), "f32"), Value((3, 3, 3, 64), "f32")
    op = Op(kind="convolution", operands=(0, 1), results=(2,), attributes=KERNEL_GRADIENT)
    found = copied_whole(of_ops((picture, back, kernel), (op,), (0, 1), (2,)), smallest, early=False)
    assert [each.num_bytes for each in found] == [64 * 64 * 128 * 2 * count for count in rows]


@pytest.mark.parametrize(("with_bias", "copies"), [(True, 2), (False, 1)])
def test_what_comes_back_to_a_single_image_in_parts_is_no_copy_on_v3(*, with_bias: bool, copies: int) -> None:
    """As compiled for v3 of nets of 32, 64 and 64 features and of 32, 256 and 64, windows that move on or not: what
    comes back lies in bf16[1,64,64,256]{3,1,2,0}, 2 MiB, and what a bias' gradient is added up beside in four rows.
    """
    picture, back, kernel = Value((1, 64, 64, 32), "f32"), Value((1, 64, 64, 64), "f32"), Value((3, 3, 32, 64), "f32")
    ops = (
        Op(kind="tanh", operands=(1,), results=(2,)),
        Op(kind="reduce", operands=(2,), results=(3,)),
        Op(kind="convolution", operands=(0, 2), results=(4,), attributes=KERNEL_GRADIENT),
    )
    graph = of_ops((picture, back, back, Value((64,), "f32"), kernel), ops, (0, 1), (3, 4)).graph
    made = Kernel(ops=(0, 1), reads=(1,), writes=(2, 3)) if with_bias else Kernel(ops=(0,), reads=(1,), writes=(2,))
    program = Program(graph=graph, kernels=(made, Kernel(ops=(2,), reads=(0, 2), writes=(4,))))
    assert len(list(copied_whole(program, 2, early=False))) == copies
