"""What a barrier took is there before what it gives is read: blocks are computed anew when their gradient comes."""

from __future__ import annotations

from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Op
from meshwright.planner.kernels import Kernel, Program
from meshwright.planner.memory import memory, schedule
from test_fusion import Writer

LAYERS, WIDTH, WIDE = 3, 1024, 4096


def barrier(w: Writer, *values: int) -> list[int]:
    given = [w._value(w.values[value].shape, w.values[value].dtype) for value in values]
    w.ops.append(Op(kind="optimization_barrier", operands=values, results=tuple(given)))
    return given


def blocks(anew: bool) -> Program:
    """The gradients of a stack of layers of two products, the wide part computed anew behind a barrier or not."""
    w = Writer()
    x = w.arg(WIDTH, WIDTH)
    weights = [(w.arg(WIDTH, WIDE), w.arg(WIDE, WIDTH)) for _ in range(LAYERS)]
    inputs = []
    for first, second in weights:
        inputs.append(x)
        x = w.op("add", x, w.dot(w.op("exponential", w.dot(x, first)), second))
    gradient, results = x, []
    for x, (first, second) in zip(reversed(inputs), reversed(weights), strict=True):
        if anew:
            x, gradient = barrier(w, x, gradient)
        wide = w.op("exponential", w.dot(x, first))
        results.append(w.dot(wide, gradient, 0, 0))
        back = w.op("multiply", w.dot(gradient, second, 1, 1), wide)
        results.append(w.dot(x, back, 0, 0))
        gradient = w.op("add", gradient, w.dot(back, first, 1, 1))
    return fuse(w.graph(*results))


def position(program: Program, value: int) -> int:
    return next(n for n, kernel in enumerate(program.kernels) if value in kernel.writes)


def test_kernels_behind_a_barrier_wait_for_all_that_it_took_in_any_order() -> None:
    program = blocks(anew=True)
    waiting = [kernel for kernel in program.kernels if kernel.waits]
    assert len(waiting) >= LAYERS - 1
    for ordered in (program, schedule(program)):
        for number, kernel in enumerate(ordered.kernels):
            assert all(position(ordered, value) < number for value in kernel.waits)
    assert not any(op.attributes.get("after") for op in program.graph.ops)
    assert not any(kernel.waits for kernel in blocks(anew=False).kernels)


def test_nothing_is_merged_with_what_it_waits_for() -> None:
    w = Writer()
    one = w.op("exponential", w.arg(256, 256))
    other, _ = barrier(w, w.arg(256, 256), one)
    two = w.op("exponential", other)
    program = fuse(w.graph(one, two))
    kernels: list[Kernel] = [program.kernels[position(program, value)] for value in (one, two)]
    assert kernels[0] is not kernels[1]
    assert kernels[1].waits == (one,)


def test_one_block_is_computed_anew_at_a_time() -> None:
    wide = WIDTH * WIDE * 4
    assert memory(blocks(anew=True)).temp_bytes < memory(blocks(anew=False)).temp_bytes
    assert memory(blocks(anew=True)).temp_bytes < 3 * wide


def test_what_is_read_behind_a_barrier_is_not_read_with_what_comes_before_it() -> None:
    w = Writer()
    weight, grad = w.arg(256, 256), w.op("exponential", w.arg(256, 256))
    behind, _ = barrier(w, weight, grad)
    updated = w.op("subtract", weight, w.arg(256, 256))
    narrow = w.op("convert", behind, dtype="bf16")
    program = fuse(w.graph(grad, updated, narrow))
    assert program.kernels[position(program, updated)] is not program.kernels[position(program, narrow)]
