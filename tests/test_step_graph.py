"""The graph of a step under a plan is the program that would be compiled, laid out as the compiler lays it out."""

import collections

import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
import optax
import pytest
from jax.sharding import AbstractMesh, AxisType, PartitionSpec
from meshwright.backends.jax.apply import apply
from meshwright.backends.jax.layouts import step_layouts
from meshwright.backends.jax.lowered.step_graph import step_graph
from meshwright.backends.jax.planned import planned
from meshwright.backends.jax.shardings import abstract_mesh
from meshwright.backends.jax.trace import trace
from meshwright.planner.graph import Graph

F32 = jnp.float32
MESH = AbstractMesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def abstract(*shape, dtype=F32):
    return jax.ShapeDtypeStruct(shape, dtype)


def plan(tensors, topology="cpu:8", mesh="x: 4, y: 2"):
    lines = "\n".join(f"  {line.strip()}" for line in tensors.splitlines())
    return mw.loads(f"meshwright: 1\ntopology: {topology}\nmesh: {{{mesh}}}\ntensors:\n{lines}\n")


def graph(tensors, step, *args, donate=None, **where):
    return step_graph(plan(tensors, **where), step, args, donate_argnums=donate).graph


def kinds(found: Graph):
    return collections.Counter(op.kind for _, op, _ in found.walk())


def the(kind, found: Graph):
    (one,) = [op for op in found.ops if op.kind == kind]
    return one


def regression(w, opt, x):
    def loss(w):
        return jnp.mean(mw.tag(jnp.tanh(x @ w["in"]), "hidden") @ w["out"])

    value, gradients = jax.value_and_grad(loss)(w)
    updates, opt = optax.adamw(1e-3).update(gradients, opt, w)
    return optax.apply_updates(w, updates), opt, value


WEIGHTS = {"in": abstract(16, 64), "out": abstract(64, 8)}
ARGS = (WEIGHTS, jax.eval_shape(optax.adamw(1e-3).init, WEIGHTS), abstract(32, 16))
LAYOUTS = """w/in: a b@y
w/out: b@y c
opt/**: infer
x: n@x a
acts/hidden: n@x b@y
out/**: infer"""


@pytest.mark.parametrize(
    "tensors",
    [
        LAYOUTS,
        LAYOUTS.replace("w/in: a b@y", "w/in: infer").replace("b@y c", "b@y+x c"),
        LAYOUTS.replace("x: n@x a", "x: n@y+x!pad a"),
        LAYOUTS.replace("opt/**: infer", "opt/**/count: replicate\nopt/**: like w"),
    ],
)
def test_without_devices_the_same_module_is_lowered_as_with_them(tensors):
    made = plan(tensors)
    layouts = step_layouts(made, trace(regression, ARGS))
    without = planned(layouts, abstract_mesh(made, layouts.device_assignments), 0, "cpu").lower("cpu")
    with_them = apply(made, regression, ARGS, donate_argnums=0).lower(*ARGS)
    assert told(without) == told(with_them)


def told(lowered):
    """The text of a module; JAX itself lays scalars of which nothing is said over a mesh of no axes."""
    lines = lowered.as_text().replace("sdy.sharding<@empty_mesh, []>", "sdy.sharding<@mesh, []>").splitlines()
    return [line for line in lines if "sdy.mesh @empty_mesh" not in line]


def test_arguments_and_results_lie_as_the_compiler_puts_them():
    made = plan(LAYOUTS)
    found = step_graph(made, regression, ARGS).graph
    compiled = apply(made, regression, ARGS).lower(*ARGS).compile()
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
    taken = [s for s in jax.tree.leaves(compiled.input_shardings[0], is_leaf=lambda s: s is None) if s is not None]
    for numbers, shardings in ((found.arguments, taken), (found.results, jax.tree.leaves(compiled.output_shardings))):
        for number, sharding in zip(numbers, shardings, strict=True):
            value = found.values[number]
            mine = jax.sharding.NamedSharding(mesh, PartitionSpec(*value.sharding))
            assert mine.is_equivalent_to(sharding, len(value.shape))


def test_arguments_and_results_are_named_and_shaped_as_in_the_step():
    found = graph(LAYOUTS, regression, *ARGS)
    assert found.names[:2] == ("w/in", "w/out")
    assert found.names[-1] == "x"
    assert found.result_names[:2] == ("out/0/in", "out/0/out")
    assert [found.shape(n) for n in found.arguments[:2]] == [(16, 64), (64, 8)]
    assert found.values[found.arguments[found.names.index("opt/0/count")]].dtype == "s32"
    assert dict(found.mesh) == {"x": 4, "y": 2}


def test_an_argument_that_nothing_uses_is_not_in_the_program():
    found = graph("a: i@x\nb: i\nout: infer", lambda a, b: a * 2, abstract(8), abstract(8))
    assert found.names == ("a",)


def test_donated_arguments_are_written_over_by_results_of_their_kind():
    found = graph(LAYOUTS, regression, *ARGS, donate=(0, 1))
    pairs = {found.result_names[result]: found.names[argument] for result, argument in found.aliases.items()}
    assert pairs["out/0/in"] in ("w/in", "opt/0/mu/in", "opt/0/nu/in")
    assert len(pairs) == 7
    assert graph(LAYOUTS, regression, *ARGS).aliases == {}


@pytest.mark.parametrize(
    "step", [lambda a: (a * 2).T, lambda a: (a * 2).reshape(1024, 256), lambda a: (a * 2).astype("int32")]
)
def test_a_result_may_lie_in_a_donated_argument_of_another_shape_or_dtype(step):
    """As large a part of a device is enough: the TPU compiler needs 2.1 MiB for such a step of 2 MiB, and not 4.7."""
    assert graph("a: i@x j\nout: infer", step, abstract(512, 512), donate=(0,)).aliases == {0: 0}
    assert graph("a: i@x j\nout: infer", lambda a: step(a)[:256], abstract(512, 512), donate=(0,)).aliases == {}


def test_a_machine_need_not_be_here():
    found = graph(LAYOUTS, regression, *ARGS, topology="h100:8x8", mesh="x: 16, y: 4")
    assert found.mesh["x"] == 16
    many = graph(LAYOUTS, regression, *ARGS, topology="v5p:16x20x28", mesh="x: 32, y: 4, z: 70")
    assert kinds(many) == kinds(graph(LAYOUTS, regression, *ARGS, topology="v5p:2x2x2", mesh="x: 4, y: 2, z: 1"))


def test_products_have_their_loop_nest_and_their_dims():
    found = graph("a: i@x k@y\nb: k@y j\nout: infer", lambda a, b: a @ b, abstract(8, 16), abstract(16, 4))
    dot = the("dot_general", found)
    assert dot.attributes["lhs_contracting_dimensions"] == (1,)
    assert dot.attributes["precision_config"] == ("DEFAULT", "DEFAULT")
    assert dot.factors.sizes == (8, 4, 16)
    assert dot.factors.reduction == (2,)
    assert dot.factors.operands == (((0,), (2,)), ((2,), (1,)))
    assert found.values[dot.results[0]].sharding == (("x",), ())


def test_operations_say_which_line_and_which_name_asked_for_them():
    found = graph(LAYOUTS, regression, *ARGS)
    tanh = the("tanh", found)
    assert tanh.origin.source.rpartition("/")[2].startswith("test_step_graph.py:")
    assert tanh.origin.scope.endswith("jvp()/tanh")
    assert [op.origin.scope for op in found.ops if "acts/hidden" in (op.origin.scope or "")]


def loops(a, xs):
    def outer(c, x):
        def inner(d, y):
            return d @ y, None

        return jax.lax.scan(inner, c, x)[0], jnp.sum(c)

    c, sums = jax.lax.scan(outer, a, xs)
    c = jax.lax.fori_loop(2, 9, lambda i, c: c + i, c)
    c = jax.lax.while_loop(lambda c: jnp.sum(c) < 9, lambda c: c * 2, c)
    return jax.lax.fori_loop(0, jnp.argmax(c).astype(int), lambda i, c: c - a, c), sums


def test_loops_are_entered_once_and_know_their_turns():
    found = graph("a: i@x j\nxs: o l i j\nout/**: infer", loops, abstract(8, 8), abstract(3, 5, 8, 8))
    first, *others = [op for op in found.ops if op.kind == "while"]
    (inner,) = [op for op in first.bodies[0].ops if op.kind == "while"]
    assert (first.trips, inner.trips) == (3, 5)
    assert [op.trips for op in others] == [7, 1, 1]
    assert ["trips_unknown" in op.attributes for op in others] == [False, True, True]
    assert {times for _, op, times in found.walk() if op.kind == "dot_general"} == {15}


def test_what_a_loop_reads_from_outside_follows_its_state():
    found = graph("a: i@x j\nout: infer", lambda a: jax.lax.fori_loop(0, 4, lambda i, c: c @ a, a), abstract(8, 8))
    loop = the("while", found)
    body = loop.bodies[0]
    assert len(loop.operands) == len(body.arguments)
    for number, argument in zip(loop.operands, body.arguments, strict=True):
        assert found.values[number].shape == body.values[argument].shape
    assert len(body.results) == len(loop.results)


def test_branches_share_their_arguments():
    def choose(p, a, b):
        return jax.lax.cond(p, lambda: a * 2.0, lambda: a @ b)

    found = graph("p: replicate\na: i@x j\nb: j k\nout: infer", choose, abstract(dtype=bool), *[abstract(8, 8)] * 2)
    case = the("case", found)
    assert len(case.bodies) == 2
    assert {len(body.arguments) for body in case.bodies} == {len(case.operands) - 1} == {2}


def test_manual_regions_have_the_shapes_of_one_device_and_name_the_axes_of_their_collectives():
    def step(a):
        region = jax.shard_map(
            lambda a: jax.lax.psum(a @ a.T, "y"),
            mesh=MESH,
            in_specs=PartitionSpec("x", "y"),
            out_specs=PartitionSpec("x"),
        )
        return region(a)

    found = graph("a: i@x j@y\nout: infer", step, abstract(16, 8))
    manual = the("manual_computation", found)
    (body,) = manual.bodies
    assert manual.attributes["manual_axes"] == ("x", "y")
    assert manual.attributes["in_shardings"] == ((("x",), ("y",)),)
    assert body.shape(body.arguments[0]) == (4, 4)
    assert the("all_reduce", body).attributes["axes"] == ("y",)
    assert the("all_reduce", body).attributes["reducer"] == "add"


def test_rematerialised_blocks_are_computed_again():
    def loss(w, x):
        block = mw.remat(lambda x: jnp.sin(x @ w) @ w.T)
        return jnp.sum(block(x) ** 2)

    tensors = "w: i j\nx: n@x i\nout: infer"
    args = abstract(16, 32), abstract(8, 16)
    plain = step_graph(plan(tensors), jax.grad(loss), args).graph
    again = step_graph(mw.loads(f"{_text(tensors)}remat: full\n"), jax.grad(loss), args).graph
    assert kinds(again)["dot_general"] > kinds(plain)["dot_general"]


def _text(tensors):
    lines = "\n".join(f"  {line}" for line in tensors.splitlines())
    return f"meshwright: 1\ntopology: cpu:8\nmesh: {{x: 4, y: 2}}\ntensors:\n{lines}\n"


def test_a_part_of_an_axis_that_propagation_splits_off_is_an_axis_everywhere():
    found = graph("a: i@x j\nout: infer", lambda a: a.reshape(2, 4, 6), abstract(8, 6))
    assert dict(found.mesh) == {"x:(1)2": 2, "x:(2)2": 2, "y": 2}
    assert found.values[found.arguments[0]].sharding == (("x:(1)2", "x:(2)2"), ())
    inside = [value.sharding for value in found.values if value.shape == (2, 4, 6)]
    assert (("x:(1)2",), ("x:(2)2",), ()) in inside


def test_a_result_that_leaves_otherwise_than_it_is_computed_is_resharded():
    found = graph("a: i@x j\nout: i j@x", lambda a: a, abstract(8, 8))
    last = found.ops[-1]
    assert last.kind == "reshard"
    assert found.values[last.operands[0]].sharding == (("x",), ())
    assert found.values[last.results[0]].sharding == ((), ("x",))


@jax.custom_vjp
def clipped(x):
    return x


clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1, 1),))


def test_calls_and_custom_gradients_are_followed():
    def step(x):
        return jax.grad(lambda x: jnp.sum(clipped(jax.nn.silu(jax.nn.relu(x))) ** 2))(x)

    found = kinds(graph("x: i@x j\nout: infer", step, abstract(8, 8)))
    assert found["call"] == 0
    assert found["clamp"] or found["maximum"]


def test_a_vmapped_scan_over_convolutions_and_lookups_is_read():
    def step(table, kernel, tokens):
        x = table[tokens].reshape(4, 8, 8, 4)

        def layer(x, k):
            return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")), None

        x = jax.lax.scan(layer, x, kernel)[0]
        return jax.vmap(lambda row: jax.lax.scan(lambda c, v: (c + v, c), jnp.zeros(8), row)[0])(x[..., 0])

    args = abstract(32, 4), abstract(3, 3, 3, 4, 4), abstract(4, 64, dtype=jnp.int32)
    found = graph("table: v c\nkernel: l h w i o\ntokens: b@x t\nout: infer", step, *args)
    conv = next(op for _, op, _ in found.walk() if op.kind == "convolution")
    assert conv.attributes["input_spatial_dimensions"] == (1, 2)
    assert conv.attributes["padding"] == ((1, 1), (1, 1))
    gather = the("gather", found)
    assert gather.attributes["slice_sizes"] == (1, 4)
    assert gather.attributes["collapsed_slice_dims"] == (0,)
    assert [op.trips for op in found.ops if op.kind == "while"] == [3, 8]
