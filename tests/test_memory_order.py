"""What comes first in the compiler's order, and what it holds meanwhile: what arguments let run, operands in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from meshwright.planner.fusion import fuse
from meshwright.planner.fusion.nature import SENT
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kernels import Kernel, Program
from meshwright.planner.kinds import COPIED_IN_ORDER, TURNED_COPY
from meshwright.planner.memory.flow.arriving import arriving
from meshwright.planner.memory.flow.flow import flow
from meshwright.planner.memory.flow.operands import operands, shaped_for
from meshwright.planner.memory.order.barriers import with_barriers
from meshwright.planner.memory.order.orders import depth_first_order, list_order, post_order
from meshwright.planner.memory.order.schedule import schedule
from meshwright.planner.memory.tensors.indices import indices
from programs import form_bytes, of_ops, program
from test_fusion import Writer
from test_fusion_barriers import barrier

SHAPE = (256, 1024)


def gathered(*, first_read_twice: bool = False) -> Program:
    """Three weights rounded and gathered, and multiplied one after another."""
    rounded = [("convert", (n,), (n + 4,)) for n in range(3)]
    gathers = [("all-gather", (n,), (n + 3,)) for n in range(4, 7)]
    products = [("dot_general", (3, 7), (10,)), ("dot_general", (10, 8), (11,)), ("dot_general", (11, 9), (12,))]
    last = [("subtract", (0, 12), (13,))] if first_read_twice else []
    shapes = [SHAPE] * 7 + [(1024, 1024)] * 3 + [SHAPE] * (3 + len(last))
    return program(shapes, [*rounded, *gathers, *products, *last], (0, 1, 2, 3), (12, *(13 for _ in last)))


def test_arguments_come_most_read_first_and_of_equals_the_last_met() -> None:
    """From the result back the first weight is met first."""
    assert arriving(gathered())[:3] == (2, 1, 0)
    assert arriving(gathered(first_read_twice=True))[0] == 0


def test_what_gathers_make_comes_before_all_products_where_the_last_is_ready_first() -> None:
    """As XLA's list scheduler does with weights that each are rounded and gathered: the first comes last."""
    made = gathered()
    order = list_order(flow(made, form_bytes, lambda _: 0))
    assert [k for k in order if k in (3, 4, 5)] == [5, 4, 3]
    assert order.index(3) < order.index(6)


def test_a_kernels_operands_stand_as_they_were_fused() -> None:
    """A product takes in what makes its first operand, whose own then stand behind the second."""
    w = Writer()
    x, y = w.arg(1024, 1024), w.arg(1024, 1024)
    made = fuse(w.graph(w.dot(w.op("tanh", x), y)))
    (kernel,) = made.kernels
    assert kernel.reads == (x, y)
    assert operands(made.graph, kernel) == (y, x)


@pytest.mark.parametrize("turn", [0, 1])
def test_a_large_products_operands_stand_as_compiled_of_a_norm_and_its_gradient(*, turn: int) -> None:
    """For v4: the weights before the normed rows, as they are shaped later, and the gradient likewise."""
    w = Writer()
    x, gain, scale, other = w.arg(512, 256), w.arg(256), w.arg(512), w.arg(*((256, 1024), (512, 256))[turn])
    normed = w.op("multiply", w.op("multiply", x, w.spread(scale, 512, 256, dims=(0,))), w.spread(gain, 512, 256))
    product = w.dot(normed, other) if turn == 0 else w.dot(normed, other, 0, 0)
    assert order_of(w, product) == (other, x, gain, scale)


def test_a_large_products_operands_stand_as_compiled_of_softmax() -> None:
    """For v4: values first, then scores, their sums and what is greatest of them."""
    w = Writer()
    values, scores, greatest, sums = w.arg(512, 256), w.arg(512, 512), w.arg(512), w.arg(512)
    far = w.op("subtract", scores, w.spread(greatest, 512, 512, dims=(0,)))
    share = w.op("divide", w.op("exponential", far), w.spread(sums, 512, 512, dims=(0,)))
    assert order_of(w, w.dot(values, share, 0, 0)) == (values, scores, sums, greatest)


def test_a_large_products_operands_stand_as_compiled_of_a_losses_gradient() -> None:
    """For v4, of an encoder with a decoder: that to rows has the weights last, which are shaped for the scores before,
    that to weights has the rows first.
    """
    w = Writer()
    rows, weights, scores, labels = w.arg(512, 64), w.arg(64, 256), w.arg(512, 256), w.arg(512, 256)
    scale, before, picked = w.arg(512), w.dot(rows, weights), w.op("negate", labels)
    grown = w.op("exponential", scores)
    slope = w.op("add", picked, w.op("multiply", w.spread(scale, 512, 256, dims=(0,)), grown))
    to_rows, to_weights = w.dot(slope, weights, 1, 1), w.dot(rows, slope, 0, 0)
    assert order_of(w, to_rows, without=(before,)) == (scores, labels, scale, weights)
    assert order_of(w, to_weights, without=(before, to_rows)) == (rows, scores, labels, scale)


def test_a_large_products_operands_stand_as_compiled_of_what_is_turned_at_its_end() -> None:
    """Attention's gradient for queries on v3 is turned once it is multiplied: keys first, then what softmax had, of
    that the mask, which is spread, last.
    """
    w = Writer()
    mask, keys, scores, greatest = w.arg(512), w.arg(512, 64), w.arg(512, 512), w.arg(512)
    sums, slope, less = w.arg(512), w.arg(512, 512), w.arg(512)
    kept = w.spread(mask, 512, 512)
    grown = w.op("exponential", w.op("subtract", scores, w.spread(greatest, 512, 512, dims=(0,))))
    share = w.op("divide", slope, w.spread(sums, 512, 512, dims=(0,)))
    own = w.op("multiply", w.op("add", share, w.spread(less, 512, 512, dims=(0,))), grown)
    product = w.dot(w.op("multiply", own, kept), keys)
    w.values.append(Value((64, 512), "f32"))
    w.ops.append(Op(kind="transpose", operands=(product,), results=(product + 1,), attributes={"permutation": (1, 0)}))
    assert order_of(w, product + 1) == (keys, slope, scores, less, sums, greatest, mask)


def test_what_is_made_of_a_product_stands_before_what_that_multiplies() -> None:
    """As compiled for v3 of softmax's gradient: the sum over keys of the values' products with what was spread."""
    w = Writer()
    values, scores, greatest, slope, scale = w.arg(64, 512), w.arg(512, 512), w.arg(512), w.arg(512, 64), w.arg(512)
    grown = w.op("exponential", w.op("subtract", scores, w.spread(greatest, 512, 512, dims=(0,))))
    product = w.dot(slope, values)
    spread = w.spread(scale, 512, 512, dims=(0,))
    summed = w.op("multiply", w.op("multiply", product, spread), grown)
    assert order_of(w, summed) == (scores, scale, greatest, slope, values)


def test_rows_are_widened_where_they_are_met_and_spread_last() -> None:
    """A norm of bf16 rows, as compiled for v3 and v6e: the weights, then the rows, then what is spread."""
    w = Writer()
    x, gain, scale, other = w.arg(512, 256), w.arg(256), w.arg(512), w.arg(256, 1024)
    wide = w.op("convert", x)
    normed = w.op("multiply", w.op("multiply", wide, w.spread(scale, 512, 256, dims=(0,))), w.spread(gain, 512, 256))
    assert order_of(w, w.dot(w.op("convert", normed), other))[:2] == (other, x)


def order_of(w: Writer, product: int, without: Sequence[int] = ()) -> tuple[int, ...]:
    """The operands of the kernel that ends with a product, of all operations but those that make other values."""
    graph = w.graph(product)
    inside = [n for n, op in enumerate(graph.ops) if op.results[0] <= product and op.results[0] not in without]
    made = {value for n in inside for value in graph.ops[n].results}
    read = sorted({value for n in inside for value in graph.ops[n].operands} - made)
    kernel = Kernel(ops=tuple(inside), reads=tuple(read), writes=(product,))
    return operands(graph, kernel, shaped_for(graph))


def test_where_parts_begin_lies_in_memory_unless_it_grows_with_the_devices_number() -> None:
    def cut(axes: tuple[str, ...]) -> Program:
        values = (Value((1024, 1024), "f32"), Value((1024, 512), "f32"), Value((1024, 512), "f32"))
        part = Op(kind="dynamic_slice", operands=(0,), results=(1,), attributes={"axes": axes})
        ops = (part, Op(kind="tanh", operands=(1,), results=(2,)))
        return of_ops(values, ops, (0,), (2,), mesh={"x": 2, "y": 4})

    assert list(indices(cut(("x",)), at_start=False).values()) == [(0, 0)]
    assert not indices(cut(("x", "y")), at_start=False)


def test_what_is_sent_rounded_is_written_as_it_is_for_what_else_reads_it() -> None:
    """The compiler rounds for a gather when kernels stand: a sum of two arrays is there already."""
    w = Writer()
    x, y, other = (w.arg(*SHAPE) for _ in range(3))
    sum_ = w.op("add", x, y)
    sent = w.op("convert", sum_)
    w.values[sent] = Value(SHAPE, "bf16")
    graph = w.graph(w.dot(sum_, other, 0, 0), w.op("all-gather", sent))
    ops = tuple(replace(op, attributes={SENT: True}) if op.kind == "convert" else op for op in graph.ops)
    assert any(sum_ in kernel.writes for kernel in fuse(replace(graph, ops=ops)).kernels)
    assert not any(sum_ in kernel.writes for kernel in fuse(graph).kernels)


def test_a_barrier_stands_between_what_it_takes_and_what_reads_behind_it() -> None:
    """Orders go through it, and what reads two of its results has its fan twice."""
    w = Writer()
    x, y = w.arg(*SHAPE), w.arg(*SHAPE)
    one, two = w.op("tanh", x), w.op("exponential", y)
    again = barrier(w, one, two, x)
    made = fuse(w.graph(w.dot(again[0], again[1], 0, 0), w.dot(again[2], again[1], 0, 0)))
    found = flow(made, form_bytes, lambda _: 0)
    grown, own = with_barriers(found, [[kernel] for kernel in made.kernels])
    assert own == [0, 1, -1, 2, 3]
    assert grown.operands[2] == (one, two)
    assert [len(values) for values in grown.operands[3:]] == [2, 2]
    assert all(grown.maker[value] == 2 for values in grown.operands[3:] for value in values)
    for order in (list_order(grown), depth_first_order(grown), post_order(grown)):
        assert order.index(2) == 2


def test_of_what_is_reached_on_very_many_ways_that_comes_first_which_post_order_has_last() -> None:
    """Ways are counted up to the number of instructions, their bytes up to what is made until then in post-order.

    Here each value is read by the next two. The first result needs them all, the second but some: post-order makes the
    first before it. By their kernels' numbers it would be the other way round.
    """
    chain = [("add", (max(0, n - 2), n - 1), (n,)) for n in range(1, 31)]
    ends = [("add", (18, 19, 20), (31,)), ("add", (28, 29, 30), (32,))]
    made = program([SHAPE] * 33, [*chain, *ends], (0,), (32, 31))
    order = depth_first_order(flow(made, form_bytes, lambda _: 0))
    assert order.index(30) < order.index(20)
    assert post_order(flow(made, form_bytes, lambda _: 0))[-2:] == [31, 30]


def test_copies_of_donated_weights_come_first_and_of_their_next_values_last() -> None:
    """As v4's programs hold all the weights whose updates are shared out: twice throughout."""
    copies = (Op(kind=TURNED_COPY, operands=(n,), results=(n + 3,), attributes=COPIED_IN_ORDER) for n in (0, 1))
    products = (
        Op(kind="dot_general", operands=(2, 3), results=(5,)),
        Op(kind="dot_general", operands=(5, 4), results=(6,)),
        Op(kind="tanh", operands=(4,), results=(8,)),
        Op(kind="tanh", operands=(3,), results=(7,)),
    )
    back = (Op(kind=TURNED_COPY, operands=(n + 7,), results=(n + 9,), attributes=COPIED_IN_ORDER) for n in (0, 1))
    values = (Value((1024, 1024), "f32"),) * 11
    made = of_ops(values, (*copies, *products, *back), (0, 1, 2), (9, 10, 6), aliases={0: 0, 1: 1})
    order = [kernel.writes[0] for kernel in schedule(made).kernels]
    assert (order[:2], order[-2:]) == ([3, 4], [9, 10])


def looped(made: int) -> Program:
    """What an argument makes (2) is read by what a loop is given (3), and by what is large (5); the loop itself makes
    so many rows meanwhile.
    """
    rows = [Value((n, 1024), "f32") for n in (64, 8, 64, 128, 8, 160, 48)]
    body = Graph(
        values=(rows[1], rows[3], Value((made, 1024), "f32"), rows[1]),
        ops=(
            Op(kind="dot_general", operands=(0, 1), results=(2,)),
            Op(kind="dot_general", operands=(2, 1), results=(3,)),
        ),
        arguments=(0, 1),
        results=(3,),
    )
    ops = (
        Op(kind="tanh", operands=(0,), results=(2,)),
        Op(kind="dot_general", operands=(2, 2), results=(5,)),
        Op(kind="dot_general", operands=(5, 5), results=(6,)),
        Op(kind="dot_general", operands=(2, 2), results=(3,)),
        Op(kind="while", operands=(1, 3), results=(4,), bodies=(body,), trips=4),
    )
    return of_ops(tuple(rows), ops, (0, 1), (6, 4))


def test_what_a_loop_is_given_counts_once_where_orders_are_compared() -> None:
    """The list scheduler has the loop first, beside 64 rows more and the 128 that it is given; others have 48 beside
    it, but 64, 128 and 48 before. What the loop makes itself counts besides.
    """
    order, other = ([kernel.writes[0] for kernel in schedule(looped(made)).kernels] for made in (8, 128))
    assert order.index(4) < order.index(5)
    assert other.index(5) < other.index(4)
