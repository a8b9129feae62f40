"""What loops are given and leave behind: rounded before them where turns multiply it, filled where they go back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from meshwright import loads
from meshwright.backends.jax.lowered.step_graph import step_graph
from meshwright.planner.compute import price
from meshwright.planner.estimate.device_program import device_program
from meshwright.planner.fusion import fuse
from meshwright.planner.kernels import Kernel, Program
from meshwright.planner.topology import physical
from test_fusion import Writer

PLAN = loads('meshwright: 1\ntopology: v3:1x1\nmesh: {a: 2}\ntensors:\n  "**": replicate\n')
LAYERS, ROWS, WIDTH = 4, 256, 512
STACK = (LAYERS, WIDTH, WIDTH)


def program_of(step: Any, *shapes: tuple[int, ...]) -> Program:
    args = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)
    return device_program(step_graph(PLAN, step, args).graph, physical(PLAN.topology)).program


def layers(w: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.sum(jax.lax.scan(lambda x, w: (jax.nn.relu(x) @ w, None), x, w)[0] ** 2)


def kernels(program: Program, kind: str, *, shape: tuple[int, ...]) -> list[Kernel]:
    graph = program.graph
    found = (k for k in program.kernels if graph.ops[k.ops[-1]].kind == kind)
    return [k for k in found if graph.shape(k.writes[0]) == shape]


def read_by_loops(program: Program, *, shape: tuple[int, ...]) -> list[str]:
    graph = program.graph
    return [graph.values[v].dtype for k in program.kernels if k.bodies for v in k.reads if graph.shape(v) == shape]


def test_the_weights_of_all_layers_are_rounded_once_for_the_loops_forward_and_back() -> None:
    program = program_of(lambda w, x: jax.grad(layers, 1)(w, x), STACK, (ROWS, WIDTH))
    assert len(kernels(program, "convert", shape=STACK)) == 1
    assert read_by_loops(program, shape=STACK) == ["bf16", "bf16"]


def test_one_turn_is_no_loop_and_nothing_is_rounded_before_it() -> None:
    one = (1, WIDTH, WIDTH)
    program = program_of(layers, one, (ROWS, WIDTH))
    assert not kernels(program, "convert", shape=one)
    assert set(read_by_loops(program, shape=one)) <= {"f32"}


def test_pieces_written_at_places_that_are_much_computed_are_read_in_no_time() -> None:
    """A value that is made of another one twice, and so on: there are 2^40 ways to the first."""

    def step(x: jax.Array) -> jax.Array:
        def turn(found: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
            place = i
            for _ in range(40):
                place = (place ^ (place << 3)) + (place >> 2)
            return jax.lax.dynamic_update_slice(found, x[None] * i, (place % LAYERS, 0, 0)), None

        return jax.lax.scan(turn, jnp.zeros((LAYERS, *x.shape)), jnp.arange(LAYERS))[0]

    assert kernels(program_of(step, (ROWS, WIDTH)), "while", shape=(LAYERS, ROWS, WIDTH))


def test_what_a_loop_also_reads_otherwise_stays_as_it_is() -> None:
    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, w: (jnp.tanh(x) @ w + w[0], None), x, w)[0]

    program = program_of(step, STACK, (ROWS, WIDTH))
    assert not kernels(program, "convert", shape=STACK)
    assert read_by_loops(program, shape=STACK) == ["f32"]


def test_what_a_loop_saves_for_products_alone_it_saves_rounded() -> None:
    program = program_of(lambda w, x: jax.grad(layers)(w, x), STACK, (ROWS, WIDTH))
    saved = [
        v for k in program.kernels if k.bodies for v in k.writes if program.graph.shape(v) == (LAYERS, ROWS, WIDTH)
    ]
    assert "bf16" in {program.graph.values[v].dtype for v in saved}


def test_gradients_of_layers_are_filled_before_they_are_written_from_the_last_one_on() -> None:
    """All turns write over all of them; the compiler sees that only where the first turn writes the first piece."""
    program = program_of(lambda w, x: jax.grad(layers)(w, x), STACK, (ROWS, WIDTH))
    assert kernels(program, "broadcast_in_dim", shape=STACK)
    assert not kernels(program, "broadcast_in_dim", shape=(LAYERS, ROWS, WIDTH))


@pytest.mark.parametrize(("batch", "compiled"), [(64, 4879), (256, 17794)])
def test_pieces_of_what_lies_another_way_are_taken_row_by_row(batch: int, compiled: int) -> None:
    """Of sequences as they come a scan over time takes a row of each register, in a kernel of its own (v3)."""

    def scanned(xs: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda h, x: (jnp.tanh(h + x @ w), None), jnp.zeros((batch, WIDTH)), xs)[0]

    times = 32
    by_time = program_of(scanned, (times, batch, WIDTH), (WIDTH, WIDTH))
    by_sequence = program_of(lambda xs, w: scanned(xs.swapaxes(0, 1), w), (batch, times, WIDTH), (WIDTH, WIDTH))
    chip = physical(PLAN.topology).chip
    took = [sum(each.cycles * each.times for each in price(each, chip)) for each in (by_time, by_sequence)]
    assert took[1] - took[0] == pytest.approx(times * compiled, rel=0.15)


@pytest.mark.parametrize("levels", [1, 3, 5])
def test_each_level_of_an_associative_scan_is_written(levels: int) -> None:
    """Each takes every second number of the last one twice: in passing the fifth would compute the first 32 times."""
    g = Writer()
    level = g.op("exponential", g.arg(4, 64, 128))
    for number in range(levels):
        size = 64 >> number
        said = {"limit_indices": (4, size, 128), "strides": (1, 2, 1)}
        even, odd = (
            g.op("slice", level, shape=(4, size // 2, 128), start_indices=(0, first, 0), **said) for first in (0, 1)
        )
        level = g.op("multiply", even, odd)
    program = fuse(g.graph(level))
    assert [program.graph.shape(kernel.writes[0])[1] for kernel in program.kernels] == [
        64 >> n for n in range(levels + 1)
    ]


def added_parts(w: Writer, made: int) -> list[int]:
    """How many additions each kernel has that adds something to one of two halves of the rows of a value."""
    (rows, columns), ends = w.values[made].shape, []
    for first in (0, rows // 2):
        said = {"start_indices": (first, 0), "limit_indices": (first + rows // 2, columns)}
        part = w.op("slice", made, shape=(rows // 2, columns), **said)
        ends.append(w.op("add", part, w.arg(rows // 2, columns)))
    program = fuse(w.graph(*ends))
    counts = ([program.graph.ops[n].kind for n in kernel.ops].count("add") for kernel in program.kernels)
    return [count for count in counts if count]


def test_both_ways_around_a_ring_add_to_parts_of_one_product_at_once() -> None:
    """As turns of a product with its reduce-scatter are compiled for v4 and v5e."""
    w = Writer()
    assert added_parts(w, w.dot(w.arg(64, 512), w.arg(512, 1024))) == [2]


def test_parts_of_what_no_product_made_are_added_to_apart() -> None:
    w = Writer()
    assert added_parts(w, w.arg(64, 1024)) == [1, 1]


def test_a_body_reads_what_was_rounded_before_it_as_it_is() -> None:
    """Weights that each turn gathers anew (accumulated gradients on v6e): none makes bfloat16 of bfloat16."""
    g, inner = Writer(), Writer()
    state, weights = inner.arg(ROWS, WIDTH, dtype="bf16"), inner.arg(WIDTH // 4, WIDTH)
    piece = inner.op("convert", weights, dtype="bf16")
    whole = inner.op("all-gather", piece, shape=(WIDTH, WIDTH), dimensions=(0,))
    body = inner.graph(inner.dot(state, whole))
    given = (g.arg(ROWS, WIDTH, dtype="bf16"), g.arg(WIDTH // 4, WIDTH))
    made = g.op("while", *given, shape=(ROWS, WIDTH))
    loop = replace(g.ops[-1], bodies=(body,), trips=4)
    program = fuse(replace(g.graph(made), ops=(loop,)))
    (inside,) = (body for kernel in program.kernels for body in kernel.bodies)
    assert [inside.graph.ops[kernel.ops[-1]].kind for kernel in inside.kernels] == ["all-gather", "dot_general"]


@pytest.mark.parametrize(("trips", "alone"), [(1, 0), (4, 1)], ids=["all turns in a row", "a loop"])
def test_what_a_ring_without_a_loop_reads_padded_its_products_pad(trips: int, alone: int) -> None:
    """Logits' gradients of all tokens but the last, which the turns of a product around four devices multiply."""
    g, inner = Writer(), Writer()
    summed, read, weights = inner.arg(ROWS, WIDTH), inner.arg(ROWS, WIDTH), inner.arg(WIDTH, WIDTH)
    body = inner.graph(inner.op("add", summed, inner.dot(read, weights)))
    padded = g.op("pad", g.arg(ROWS - 1, WIDTH), g.scalar(0.0), shape=(ROWS, WIDTH), edge_padding_high=(1, 0))
    made = g.op("while", g.arg(ROWS, WIDTH), padded, g.arg(WIDTH, WIDTH), shape=(ROWS, WIDTH))
    whole = g.graph(made)
    program = fuse(replace(whole, ops=(*whole.ops[:-1], replace(whole.ops[-1], bodies=(body,), trips=trips))))
    assert len(kernels(program, "pad", shape=(ROWS, WIDTH))) == alone


@pytest.mark.parametrize("several", [False, True])
def test_a_product_computes_again_what_one_array_makes_for_a_loop(several: bool) -> None:
    """Activations that a ring multiplies, and the gradient of its weight, which keeps what they are made of."""
    g, inner = Writer(), Writer()
    body = inner.graph(inner.dot(inner.arg(ROWS, WIDTH), inner.arg(WIDTH, WIDTH)))
    hidden = g.arg(ROWS, WIDTH)
    activated = g.op("maximum", hidden, g.arg(ROWS, WIDTH) if several else g.scalar(0.0))
    made = g.op("while", activated, g.arg(WIDTH, WIDTH), shape=(ROWS, WIDTH))
    whole = g.graph(made, g.dot(activated, g.arg(ROWS, WIDTH), 0, 0))
    ops = tuple(replace(op, bodies=(body,), trips=4) if op.kind == "while" else op for op in whole.ops)
    (gradient,) = kernels(fuse(replace(whole, ops=ops)), "dot_general", shape=(WIDTH, WIDTH))
    assert (hidden in gradient.reads, activated in gradient.reads) == (not several, several)


@pytest.mark.parametrize(("dtype", "is_one"), [("f32", True), ("bf16", False)])
def test_what_a_scan_stacks_of_a_softmax_is_summed_by_a_kernel_of_its_own(dtype: str, is_one: bool) -> None:
    """Exponentials and shares in a decoder's forward pass, for v3 to v6e: one kernel stacks both of wide scores."""
    g = Writer()
    shape, rows = (4, 2, 256, 256), (0, 1, 2)
    scores, most, turn = g.arg(*shape, dtype=dtype), g.arg(*shape[:3]), g.arg(dtype="s32")
    zero = g.op("constant", shape=(), dtype="s32", splat=0)
    wide = scores if dtype == "f32" else g.op("convert", scores, dtype="f32")
    made = g.op("exponential", g.op("subtract", wide, g.spread(most, *shape, dims=rows)))
    sums = g.total(made, 3)
    share = g.op("convert", g.op("divide", made, g.spread(sums, *shape, dims=rows)), dtype="bf16")
    stacks = [
        g.op(
            "dynamic_update_slice",
            g.arg(2, *shape, dtype=g.values[part].dtype),
            g.op("reshape", part, shape=(1, *shape)),
            turn,
            *[zero] * 4,
        )
        for part in (made, share)
    ]
    program = fuse(g.graph(*stacks, sums))
    first, second, summing = (
        next(kernel for kernel in program.kernels if value in kernel.writes) for value in (*stacks, sums)
    )
    assert summing is not first
    assert (first is second) == is_one
