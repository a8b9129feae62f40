"""What a barrier took is there before what it gives is read: blocks are computed anew when their gradient comes."""

from __future__ import annotations

from meshwright.planner.fusion import fuse
from meshwright.planner.fusion.behind import behind
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kernels import Kernel, Program
from meshwright.planner.memory import memory
from meshwright.planner.memory.order.schedule import schedule
from meshwright.planner.program.step.blueprint import kernel_graph, name_of
from test_fusion import Writer, kinds

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


def test_what_reads_a_value_behind_a_barrier_is_not_merged_with_what_makes_it() -> None:
    w = Writer()
    one = w.op("add", w.arg(256, 256), w.arg(256, 256))
    (behind,) = barrier(w, one)
    program = fuse(w.graph(one, w.op("tanh", behind)))
    assert [kinds(program, kernel) for kernel in program.kernels] == [{"add": 1}, {"tanh": 1}]


def test_what_reads_behind_a_barrier_is_known_once_it_is_gone() -> None:
    w = Writer()
    x = w.arg(256, 256)
    one = w.op("exponential", x)
    other, _ = barrier(w, x, one)
    again, _ = barrier(w, other, x)
    two = w.op("exponential", other)
    three = w.op("add", again, x)
    assert behind(w.graph(one, two, three)).reads == {(two, x): (x, one), (three, x): (x, one)}
    assert not behind(w.graph(one)).bodies


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


def summing() -> Graph:
    """A loop's body that adds the second of its three arguments, which no turn changes, and the third to the first."""
    added = (Op(kind="add", operands=(0, 1), results=(3,)), Op(kind="add", operands=(3, 2), results=(4,)))
    return Graph(values=(Value((8, 16), "f32"),) * 5, ops=added, arguments=(0, 1, 2), results=(4,))


def test_a_loop_waits_for_what_a_broadcast_waited_for_that_it_makes_itself() -> None:
    for padding in range(4):
        w = Writer()
        carried, still, x, y = w.arg(8, 16), w.arg(8, 16), w.arg(8), w.arg(8)
        for _ in range(padding):
            w.arg(1)
        sorted_one, sorted_other = w.op("sort", x), w.op("sort", y)
        one, other = barrier(w, sorted_one, sorted_other)
        spread = w.spread(one, 8, 16, dims=(0,))
        end = w.op("while", carried, still, spread)
        w.ops[-1] = Op(kind="while", operands=(carried, still, spread), results=(end,), bodies=(summing(),), trips=3)
        program = fuse(w.graph(end, w.op("negate", other)))
        (loop,) = (kernel for kernel in program.kernels if kernel.bodies)
        assert loop.waits == (sorted_other,)
        assert sorted_one in loop.reads
        (body,) = loop.bodies
        (inside,) = body.kernels
        assert kinds(body, inside) == {"broadcast_in_dim": 1, "add": 2}
        assert not inside.waits
        assert not any("after" in op.attributes for part, _, _ in program.walk() for op in part.graph.ops)


def behind_sorts(sorts: int) -> tuple[Program, Kernel]:
    """A kernel that reads all that a barrier took, after so many sorts: its program and it."""
    w = Writer()
    x = w.arg(8, 128)
    for _ in range(sorts):
        x = w.op("sort", x)
    one, other = barrier(w, x, w.op("sort", x))
    program = fuse(w.graph(w.op("multiply", w.op("exponential", one), other)))
    return program, program.kernels[-1]


def test_kernels_behind_barriers_are_alike_wherever_they_stand() -> None:
    names = set()
    for sorts in range(1, 4):
        program, last = behind_sorts(sorts)
        own, _ = kernel_graph(program.graph, last)
        assert kinds(program, last) == {"exponential": 1, "multiply": 1}
        assert not any("after" in op.attributes for op in own.ops)
        names.add(name_of(own))
    assert len(names) == 1


def test_a_kernel_waits_for_what_is_read_to_compute_labels_that_it_waits_for() -> None:
    w = Writer()
    first = w.op("sort", w.arg(8, 128, dtype="s32"))
    labels = w.op("reshape", w.op("add", first, first), shape=(8, 1, 128))
    spread = w.spread(labels, 8, 64, 128, dims=(0, 1, 2))
    hot = w.op("compare", spread, w.op("iota", shape=(8, 64, 128), dtype="s32"), dtype="pred")
    behind, _ = barrier(w, w.arg(8, 128), labels)
    end = w.op("sort", behind)
    program = fuse(w.graph(hot, end))
    assert program.kernels[position(program, end)].waits == (first,)


def test_what_a_barrier_takes_of_a_stack_is_written() -> None:
    """What a turn of a loop is given of what another kept for its gradient."""

    def is_written(*, kept: bool) -> bool:
        w = Writer()
        piece = w.op(
            "dynamic_slice", w.arg(4, 256, 256), w.arg(dtype="s32"), shape=(1, 256, 256), slice_sizes=(1, 256, 256)
        )
        row = w.op("reshape", piece, shape=(256, 256))
        read, other = barrier(w, row, w.arg(256, 256)) if kept else (row, w.arg(256, 256))
        program = fuse(w.graph(w.dot(read, other)))
        assert not any(op.attributes.get("apart") for op in program.graph.ops)
        return any(piece in kernel.writes for kernel in program.kernels)

    assert is_written(kept=True)
    assert not is_written(kept=False)
