"""What a device's part is cut out of: what is written for it, and what is computed of the part."""

from __future__ import annotations

from dataclasses import replace

import pytest
from meshwright.planner.fusion import fuse
from programs import CONVOLVED, KERNEL_GRADIENT
from test_fusion import Writer, kinds

WHOLE, PART = (32, 512, 4, 40), (8, 512, 4, 40)


def cut_from(*, sliced_whole: bool) -> list[list[str]]:
    """The numbers and their mask that two broadcasts make, a device's parts of which are sent: the kinds of the kernels
    that make or cut them. All of the mask is read too if it is not ``sliced_whole``.
    """
    w = Writer()
    sides = (((32, 512, 4), (0, 1, 2)), ((32, 512, 40), (0, 1, 3)))
    made = w.op("multiply", *(w.spread(w.arg(*sizes), *WHOLE, dims=dims) for sizes, dims in sides))
    mask = w.op("compare", made, w.spread(w.scalar(0.0), *WHOLE), dtype="pred")
    cut = [
        w.op("dynamic_slice", value, w.scalar(0.0), shape=PART, axes=("y",))
        for value in (mask, w.op("convert", made, dtype="bf16"))
    ]
    ends = [w.op("all-to-all", value, dimensions=(0, 2), axes=("x",)) for value in cut]
    ends += [] if sliced_whole else [w.op("reverse", mask, dimensions=(0,))]
    program = fuse(w.graph(*ends))
    made_of = (set(kinds(program, kernel)) - {"broadcast_in_dim"} for kernel in program.kernels)
    return sorted(sorted(each) for each in made_of if not each.isdisjoint({"dynamic_slice", "multiply"}))


def test_a_devices_part_is_cut_out_of_what_lies_in_memory() -> None:
    """Experts and tensor axes, as compiled for v5e, v5p and v6e: what parts alone are read of is compared and rounded
    afterwards; where all of the mask is read, it is written as such, and the numbers rounded.
    """
    assert cut_from(sliced_whole=True) == [["compare", "dynamic_slice"], ["convert", "dynamic_slice"], ["multiply"]]
    whole = [["compare", "multiply"], ["convert", "multiply"], ["dynamic_slice"], ["dynamic_slice"]]
    assert cut_from(sliced_whole=False) == whole


def test_convolutions_do_not_cut_their_part_out_of_what_others_make() -> None:
    """What a mask leaves of a device's images, cut out of those that devices added up, is written before a kernel's
    gradient is made of it (as compiled for v3, v4 and v5e); of whole images the gradient computes it.
    """
    for is_cut in (True, False):
        w = Writer()
        images, mine = (32, 16, 16, 64), (4, 16, 16, 64)
        added = w.op("all-reduce", w.arg(*(images if is_cut else mine)), axes=("x",))
        part = w.op("dynamic_slice", added, w.scalar(0.0), shape=mine, axes=("x",)) if is_cut else added
        kept = w.op("select", w.arg(*mine, dtype="pred"), part, w.spread(w.scalar(0.0), *mine))
        made = w.op("convolution", w.arg(*mine), kept, shape=(3, 3, 64, 64), **KERNEL_GRADIENT)
        program = fuse(w.graph(made))
        assert any(kept in kernel.writes for kernel in program.kernels) is is_cut


@pytest.mark.parametrize(
    ("batch", "is_step", "is_read_too", "is_written"),
    [
        (8, True, False, True),
        (32, True, False, True),
        (4, True, False, False),
        (8, False, False, False),
        (8, True, True, False),
    ],
)
def test_images_that_a_step_is_given_are_rounded_before_convolutions_read_them(
    batch: int, is_step: bool, is_read_too: bool, is_written: bool
) -> None:
    """32 images of 64 by 64 with 64 features: 128 MiB of temporaries on v3 and v4 in place of 96, on v5e 505440 cycles.
    Not fewer images than are cut into parts, and not in loops.
    """
    w = Writer()
    shape = (batch, 16, 16, 64)
    rounded = w.op("convert", w.arg(*shape), dtype="bf16")
    kernel, gradient = w.arg(3, 3, 64, 64, dtype="bf16"), w.arg(*shape, dtype="bf16")
    ends = [
        w.op("convolution", rounded, kernel, shape=shape, **CONVOLVED),
        w.op("convolution", rounded, gradient, shape=(3, 3, 64, 64), **KERNEL_GRADIENT),
    ]
    ends += [w.op("tanh", rounded)] if is_read_too else []
    graph = w.graph(*ends)
    if is_step:
        graph = replace(graph, result_names=tuple(f"out/{i}" for i in range(len(ends))))
    program = fuse(graph)
    assert any(rounded in made.writes for made in program.kernels) is is_written
