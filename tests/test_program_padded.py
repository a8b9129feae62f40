"""Dims that do not divide are split inside of a step, padded by the compiler, and lie whole between steps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
from in_process import search
from layouts import assert_close
from meshwright.backends.jax.drafts import Drafts
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.plan import Dims
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.program import build
from meshwright.planner.program.step.blueprint import Blueprint
from meshwright.planner.topology import physical
from small_graphs import Drawing, program_of, strategies


def foretelling(w: Any, x: jax.Array) -> Any:
    """Gradients of a loss of positions that foretell the next, of odd length and with odd features."""

    def loss(w: Any) -> jax.Array:
        found = jax.nn.log_softmax(jax.nn.relu(x @ w["a"]) @ w["b"])
        return -jnp.mean(found[:, :-1] * x[:, 1:, :1])

    return jax.value_and_grad(loss)(w)


def test_a_long_sequence_of_odd_length_is_split_and_computes_what_one_device_does() -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    w = {"a": jax.random.normal(keys[0], (128, 511)), "b": jax.random.normal(keys[1], (511, 515))}
    args = (w, jax.random.normal(keys[2], (1, 1029, 128)))
    found = search(foretelling, args, topology="cpu:8", mesh={"x": 8}, time_limit_s=20)
    assert found.plan is not None
    lines = [rule.assignment for rule in found.plan.rules]
    assert any(isinstance(each, Dims) and any(getattr(dim, "pad", False) for dim in each.dims) for each in lines)
    assert_close(mw.apply(found.plan, foretelling, args)(*args), foretelling(*args), 1e-4)
    whole = mw.loads(mw.dumps(found.plan).partition("tensors:")[0] + "tensors: {'**': replicate}")
    assert found.step_time_s < 0.4 * mw.estimate(whole, foretelling, args).step_time_s  # odd T is 1029: 8 parts of 129


def test_arguments_and_results_are_never_padded_whatever_is_inside() -> None:
    drawing = Drawing()
    a, b = drawing.arg(5, 8), drawing.arg(8, 7)
    c = drawing.each("tanh", drawing.dot(a, b))
    program = program_of(drawing.graph(drawing.each("add", c, drawing.arg(5, 7)), mesh={"x": 2}), "v3:1x1", {"x": 2})
    found = list(strategies(program))
    wiring, top = program.wiring, program.wiring.levels[0]
    edges = [top.source[value] for value in top.graph.arguments] + [wiring.ends[value] for value in top.graph.results]
    for choices in found:
        for value, port in zip((*top.graph.arguments, *top.graph.results), edges, strict=True):
            shape, layout = top.graph.values[value].shape, port.layouts[choices[port.node]]
            assert all(size % 2 == 0 or not axes for size, axes in zip(shape, layout, strict=True))
    inside = {layout for node in wiring.nodes for layout in node.layouts.get(c, ())}
    assert (("x",), ()) in inside
    assert ((), ("x",)) in inside


def test_one_number_everywhere_is_never_written_whole() -> None:
    values = Value((), "f32"), Value((8, 8), "f32"), Value((8, 8), "bf16"), Value((8, 8), "bf16"), Value((8, 8), "bf16")
    kinds = (("broadcast_in_dim", (0,), (1,)), ("convert", (1,), (2,)), ("add", (2, 3), (4,)))
    ops = tuple(Op(kind=kind, operands=operands, results=results) for kind, operands, results in kinds)
    blueprint = Blueprint(own=Graph(values=values, ops=ops, arguments=(0, 3), results=(2, 4)))
    assert blueprint.written_whole(2) is None
    assert blueprint.written_whole(4) == 4


def test_what_only_pads_read_is_written_where_a_part_of_it_is_cut_out() -> None:
    def chosen(w: jax.Array, x: jax.Array, labels: jax.Array) -> jax.Array:
        def loss(w: jax.Array) -> jax.Array:
            found = jax.nn.log_softmax(x @ w)
            return -jnp.mean(jnp.take_along_axis(found[:, :-1], labels[:, 1:, None], -1))

        return jax.grad(loss)(w)

    f32, s32 = jnp.float32, jnp.int32
    args = tuple(jax.ShapeDtypeStruct(*each) for each in (((512, 4096), f32), ((8, 256, 512), f32), ((8, 256), s32)))
    plan = mw.loads("meshwright: 1\ntopology: v3:2x2\nmesh: {a: 2, b: 4}\n")
    graph, machine = Drafts(chosen, args).graph(plan), physical(parse_topology("v3:2x2"))
    wiring = build(graph, plan.mesh, machine).wiring
    written = [(number, *each) for number, node in enumerate(wiring.nodes) for each in node.whole.items()]
    number, value, seconds = next(each for each in written if each[2].any())
    reader = next(b for a, b in wiring.tables if a == number and value in wiring.nodes[b].layouts)
    rows, parts = ((), ("a",), ()), ((), ("a",), ("b",))
    made, read = (wiring.nodes[node].layouts[value] for node in (number, reader))
    handed = wiring.tables[number, reader][made.index(rows)]
    assert handed[read.index(rows)] == 0 < handed[read.index(parts)] == seconds[made.index(rows)]
    mask_registers = 8 * 128 * 4096 / 1024
    assert seconds[made.index(rows)] > 4 * mask_registers / 940e6  # bytes of bits alone would take a fifth of that
