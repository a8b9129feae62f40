"""What kernels compute around labels: a loss whose sequence lies over devices, and what loops begin with."""

from __future__ import annotations

import pytest
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kernels import Kernel, Program
from test_fusion import Writer, kinds


def logits_of(w: Writer, cut: bool) -> tuple[int, int, int]:
    """Logits, those less their maximum, and what a loss reads of these: all, or (``cut``) all but the last rows."""
    logits = w.dot(w.arg(64, 256), w.arg(256, 512))
    shifted = w.op("subtract", logits, w.spread(w.total(logits, 1, reducer="maximum"), 64, 512, dims=(0,)))
    log = w.op("log", w.total(w.op("exponential", shifted), 1))
    less = w.op("subtract", shifted, w.spread(log, 64, 512, dims=(0,)))
    return logits, shifted, w.op("slice", less, shape=(63, 512)) if cut else less


def maker(program: Program, value: int) -> Kernel | None:
    return next((kernel for kernel in program.kernels if value in kernel.writes), None)


def test_shifted_logits_are_written_only_where_a_part_of_them_is_read() -> None:
    for cut in (False, True):
        w = Writer()
        logits, shifted, read = logits_of(w, cut)
        program = fuse(w.graph(read))
        assert maker(program, logits) is not None
        assert (maker(program, shifted) is not None) is cut


@pytest.mark.parametrize(
    ("wide", "multiplied", "is_one"), [(False, True, True), (True, False, True), (True, True, False)]
)
def test_scores_that_labels_look_up_and_their_gradient_are_written_by_one_kernel(
    wide: bool, multiplied: bool, is_one: bool
) -> None:
    """As compiled for v3, v4 and v5e: not where products round the gradient of wide scores."""
    w = Writer()
    scores = w.arg(64, 512, dtype="f32" if wide else "bf16")
    wider = scores if wide else w.op("convert", scores, dtype="f32")
    log, share, label = w.arg(64), w.arg(64), w.arg(64)
    less = w.op("subtract", wider, w.spread(log, 64, 512, dims=(0,)))
    grown = w.op("multiply", w.op("exponential", wider), w.spread(share, 64, 512, dims=(0,)))
    grad = w.op("add", grown, w.spread(label, 64, 512, dims=(0,)))
    grad = grad if wide else w.op("convert", grad, dtype="bf16")
    padded = w.op("pad", grad, w.scalar(0.0), shape=(72, 512)) if multiplied else grad
    left = [w.dot(padded, w.arg(512, 128)), w.dot(w.arg(32, 72), padded)] if multiplied else [grad]
    program = fuse(w.graph(less, *left))
    kernel = maker(program, grad)
    assert kernel is not None
    assert (less in kernel.writes) is is_one


def test_a_pad_across_devices_is_a_selection_and_takes_what_it_selects_of() -> None:
    for size in (64, 65):
        w = Writer()
        chosen = w.op("select", w.arg(64, 512, dtype="pred"), w.arg(64, 512), w.arg(64, 512))
        padded = w.op("pad", chosen, w.scalar(0.0), shape=(size, 512))
        program = fuse(w.graph(w.total(w.op("multiply", padded, w.arg(size, 512)), 0, 1)))
        assert (maker(program, chosen) is None) is (size == 64)


def loss(beside: bool, given: int = 257) -> tuple[Program, int, int]:
    """A loss of rows looked up by labels, whose gradient spreads the labels: the program, the labels and the loss."""
    w = Writer()
    rows, labels = w.arg(4096, 1), w.arg(256 if beside else given, dtype="s32")
    if beside:
        labels = w.op("concatenate", labels, w.arg(1, dtype="s32"), shape=(257,))
    labels = labels if given == 256 else w.op("slice", labels, shape=(256,))
    zero = w.spread(w.op("constant", shape=(), dtype="s32", splat=0), 256)
    below = w.op("compare", labels, zero, dtype="pred")
    chosen = w.op("select", below, w.op("add", labels, zero), labels, dtype="s32")
    index = w.op("reshape", chosen, shape=(256, 1))
    found = w.op("gather", rows, index, shape=(256, 1), collapsed_slice_dims=(0,), slice_sizes=(1, 1))
    inside = w.op("compare", index, w.spread(zero, 256, 1), dtype="pred")
    total = w.total(w.op("select", inside, found, found), 0, 1)
    spread = w.op("multiply", w.spread(chosen, 256, 64, dims=(0,)), w.arg(256, 64, dtype="s32"))
    return fuse(w.graph(total, spread)), chosen, total


def test_labels_of_two_arrays_are_computed_with_the_loss_and_those_of_one_again_for_it() -> None:
    program, chosen, total = loss(beside=True)
    written = maker(program, chosen)
    assert written is not None
    assert written is maker(program, total)
    assert any(kinds(program, kernel) == {"gather": 1} and chosen not in kernel.reads for kernel in program.kernels)
    for given in (256, 257):
        program, chosen, total = loss(beside=False, given=given)
        written, summed = maker(program, chosen), maker(program, total)
        assert written is not None
        assert summed is not None
        assert written is not summed
        assert chosen not in summed.reads


def test_labels_that_all_readers_compute_again_are_not_computed_besides() -> None:
    for given in (False, True):
        w = Writer()
        ids = w.arg(8, 128, dtype="s32")
        labels = w.op("reshape", w.op("add", ids, ids), shape=(8, 1, 128))
        spread = w.spread(labels, 8, 64, 128, dims=(0, 1, 2))
        hot = w.op("compare", spread, w.op("iota", shape=(8, 64, 128), dtype="s32"), dtype="pred")
        program = fuse(w.graph(hot, labels) if given else w.graph(hot))
        made = maker(program, hot)
        assert made is not None
        assert made.reads == (ids,)
        assert (maker(program, labels) is not None) is given
        assert len(program.kernels) == 1 + given


def adding() -> Graph:
    """A loop's body that adds a number to all that it carries."""
    values = (Value((64, 64), "f32"), Value((64, 64), "f32"))
    add = Op(kind="add", operands=(0, 0), results=(1,))
    return Graph(values=values, ops=(add,), arguments=(0,), results=(1,))


def test_each_loop_has_an_array_of_its_own_to_begin_with_and_others_compute_it_in_passing() -> None:
    w = Writer()
    zeros = w.spread(w.scalar(0.0), 64, 64)
    ends = []
    for _ in range(2):
        ends.append(w.op("while", zeros, shape=(64, 64)))
        w.ops[-1] = Op(kind="while", operands=(zeros,), results=(ends[-1],), bodies=(adding(),), trips=3)
    read = w.op("maximum", w.arg(64, 64), zeros)
    program = fuse(w.graph(*ends, read))
    begun = [kernel.reads for kernel in program.kernels if kernel.bodies]
    assert len(set(begun)) == 2
    compared = maker(program, read)
    assert compared is not None
    assert kinds(program, compared)["broadcast_in_dim"] == 1
