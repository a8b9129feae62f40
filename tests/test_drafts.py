"""A step laid out from its draft is the step lowered under the plan; its graph before any layout names its values."""

import gc
import random
import re
import weakref
from collections import Counter

import jax
import jax.numpy as jnp
import meshwright as mw
import meshwright.backends.jax.estimate as estimate_module
import meshwright.backends.jax.step_drafts as step_drafts_module
import pytest
from meshwright.backends.jax.drafts import Drafts
from meshwright.backends.jax.estimate import drafts_of
from meshwright.backends.jax.graph_cache import GraphCache
from meshwright.backends.jax.lowered.donation import donations
from meshwright.backends.jax.lowered.draft import Draft
from meshwright.backends.jax.lowered.step_graph import step_graph
from meshwright.backends.jax.step_drafts import StepDrafts
from meshwright.backends.jax.trace import trace
from meshwright.dsl.plan import Remat
from meshwright.dsl.reader import loads
from meshwright.planner.operands import operand_paths, readers_of
from meshwright.planner.search.workload import SKETCHED
from unrolled import arguments, step

MESHES = ({"x": 2, "y": 4}, {"x": 8}, {"x": 2, "y": 2, "z": 2})


def looped(layers=3):
    def loss(w, x):
        x, kept = jax.lax.scan(lambda x, w: (jnp.tanh(mw.tag(x @ w, "h")), x.sum(-1)), x, w)
        return (x**2).mean() + kept.mean()

    def step(w, x):
        value, grad = jax.value_and_grad(loss)(w, mw.split(x, 0, "x"))
        return w - grad, value

    return jax.jit(step, donate_argnums=0), (jax.ShapeDtypeStruct((layers, 32, 32), jnp.float32), *arguments()[1:])


def convolved():
    def step(kernel, images):
        dims = ("NHWC", "HWIO", "NHWC")

        def run(k, x):
            return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=dims)

        return jax.grad(lambda k: (run(k, jax.nn.relu(run(k, images))) ** 2).mean())(kernel)

    return step, (jax.ShapeDtypeStruct((3, 3, 8, 8), jnp.float32), jax.ShapeDtypeStruct((16, 8, 8, 8), jnp.float32))


def called():
    """A function large enough for XLA to leave it one, of which two calls read what lies differently."""

    @jax.jit
    def deep(w, x, unused, bias):
        for _ in range(10):
            x = jnp.tanh(x @ w) + 1
        return jax.lax.scan(lambda x, w: (jnp.sin(x * w), None), x + bias, w)[0]

    def step(w, x):
        once = deep(w, mw.split(x, 0, "x"), 2.0, 3.0)
        return w - once.T @ deep(w, once, 3.0, 4.0), once.mean()

    return step, (jax.ShapeDtypeStruct((32, 32), jnp.float32), *arguments()[1:])


STEPS = {"unrolled": lambda: (step, arguments()), "looped": looped, "convolved": convolved}


def text_of(shape, mesh, rng):
    """A random layout that divides."""
    free, words = list(mesh), []
    for n in shape:
        axes = [a for a in free if rng.random() < 0.4 and n % mesh[a] == 0][:1]
        free = [a for a in free if a not in axes]
        words.append("_" + "".join(f"@{a}" for a in axes))
    return " ".join(words)


def drawn(traced, rng, num_values, top=""):
    """A random legal plan with rules for all arguments, and for so many tagged and computed values."""
    mesh = rng.choice(MESHES)
    chosen = [t for t in traced.arguments if t.shape] + list(traced.tagged)
    chosen += rng.sample(traced.values.tensors, num_values)
    lines = "".join(f"  {t.path}: {text_of(t.shape, mesh, rng)}\n" for t in {t.path: t for t in chosen}.values())
    sizes = ", ".join(f"{axis}: {size}" for axis, size in mesh.items())
    out = "".join(f"  {t.path}: infer\n" for t in traced.results if t.shape)
    return loads(f"meshwright: 1\ntopology: v5e:2x4\nmesh: {{{sizes}}}\ntensors:\n{lines}{out}{top}")


def said(graph) -> str:
    """A graph in words, without lines: what JAX traced once for several callers has the line of the first."""
    return re.sub(r"source=('[^']*'|None)", "", repr(graph))


@pytest.mark.parametrize("name", [*STEPS, "called"])
@pytest.mark.parametrize("remat", ["", "remat: full\n"])
def test_a_draft_gives_the_graph_of_the_whole_way(name, remat) -> None:
    workload, args = (STEPS | {"called": called})[name]()
    if remat and name != "unrolled":
        pytest.skip("marks no blocks")
    traced = trace(workload, args, Remat(policy="full") if remat else None)
    drafts, rng = StepDrafts(), random.Random(name)
    from_draft = 0
    for k in range(6):
        plan = drawn(traced, rng, num_values=0 if k % 2 else 5, top=remat)
        fast, slow = drafts.step_graph(plan, workload, args), step_graph(plan, workload, args)
        assert said(fast.graph) == said(slow.graph)
        assert fast.notes == slow.notes
        from_draft += drafts._from_draft(plan, fast.layouts) is not None
    assert from_draft >= (1 if name == "convolved" else 6)


@pytest.mark.parametrize("name", ["unrolled", "looped"])
def test_a_module_that_is_prepared_keeps_nothing_of_a_plan(name) -> None:
    workload, args = STEPS[name]()
    traced, drafts = trace(workload, args, None), StepDrafts()
    first = traced.arguments[0]
    value = next(t for t in traced.values.tensors if len(t.shape) == 2 and all(n % 8 == 0 for n in t.shape))

    def plan(mesh, layout, weights):
        lines = "".join(f"  {t.path}: {weights if t == first else 'replicate'}\n" for t in traced.arguments)
        lines += "".join(f"  {t.path}: infer\n" for t in (*traced.results, *traced.tagged) if t.shape)
        return loads(f"meshwright: 1\ntopology: v5e:2x4\nmesh: {mesh}\ntensors:\n{lines}  {value.path}: {layout}\n")

    plans = [
        plan("{x: 2, y: 4}", "_@x _", "replicate"),
        plan("{x: 2, y: 4}", "_ _@y", " ".join([*["_"] * (len(first.shape) - 1), "_@x"])),
        plan("{x: 8, y: 1}", "_ _@x", "replicate"),
    ]
    for each in (*plans, *plans):
        graph = drafts._from_draft(each, drafts.layouts(each, workload, args))
        assert said(graph) == said(step_graph(each, workload, args).graph)
    ((draft, _),) = drafts._drafts.values()
    assert len(draft._prepared) < len(plans)


def test_estimates_are_those_of_the_whole_way(monkeypatch) -> None:
    traced, rng = trace(step, arguments()), random.Random(3)
    plans = [drawn(traced, rng, num_values=4 * k) for k in range(3)]
    fast = [Drafts(step, arguments()).estimate(plan) for plan in plans]
    monkeypatch.setattr(estimate_module, "_GRAPHS", GraphCache())
    monkeypatch.setattr(StepDrafts, "_from_draft", lambda *_: None)
    slow = [mw.estimate(plan, step, arguments()) for plan in plans]
    assert [e.step_time_s for e in fast] == [e.step_time_s for e in slow]
    assert [e.peak_bytes for e in fast] == [e.peak_bytes for e in slow]
    assert [e.collectives for e in fast] == [e.collectives for e in slow]


@pytest.mark.parametrize(
    "lines",
    [
        "  w: _ _@x+y _\n  x: _@y+x _\n",  # two orders of the same axes
        "  w: _ _ _@y!pad\n  x: replicate\n",
        "  w: {shard: {device_assignment: [[[0], [2], [4], [6], [1], [3], [5], [7]]]}}\n  x: replicate\n",
    ],
)
def test_what_no_draft_can_be_goes_the_whole_way(lines) -> None:
    def plain(w, x):
        return (x @ w[0]).sum()

    shapes = (1, 16, 15 if "pad" in lines else 16), (8, 16)
    args = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)
    plan = loads(f"meshwright: 1\ntopology: v5e:2x4\nmesh: {{x: 2, y: 4}}\ntensors:\n{lines}")
    drafts = StepDrafts()
    fast, slow = drafts.step_graph(plan, plain, args), step_graph(plan, plain, args)
    assert drafts._from_draft(plan, fast.layouts) is None
    assert repr(fast.graph) == repr(slow.graph)


def test_a_step_that_names_a_mesh_itself_goes_the_whole_way() -> None:
    mesh = jax.sharding.AbstractMesh((2, 4), ("x", "y"))

    @jax.shard_map(mesh=mesh, in_specs=jax.P("x"), out_specs=jax.P("x"))
    def region(x):
        return x * 2

    plan = loads("meshwright: 1\ntopology: v5e:2x4\nmesh: {x: 2, y: 4}\ntensors: {x: _@x _, out: infer}")
    args = (arguments()[1],)

    def run(x):
        return region(x) + 1

    drafts = StepDrafts()
    assert repr(drafts.step_graph(plan, run, args).graph) == repr(step_graph(plan, run, args).graph)
    graph = Drafts(run, args).graph(plan)
    (kept,) = [op for op in graph.ops if op.kind == "manual_computation"]
    assert kept.attributes["in_shardings"] == ((("x",), ()),)


@pytest.mark.parametrize("name", STEPS)
def test_the_unlaid_graph_is_whole_and_names_its_values(name) -> None:
    workload, args = STEPS[name]()
    drafts = Drafts(workload, args)
    graph = drafts.graph(loads("meshwright: 1\ntopology: v5e:2x4\nmesh: {x: 2, y: 4}"))
    shapes = {tensor.path: tensor.shape for tensor in drafts.tensors}
    found = [(inner, op) for inner, op, _ in graph.walk()]
    named = [(inner.shape(op.results[0]), op) for inner, op in found if op.origin.value]
    assert all(shapes.get(op.origin.value, ()) == shape for shape, op in named)  # of single numbers only operands are
    products = {"dot_general", "convolution"}
    assert all(op.origin.value for _, op in found if op.kind in products)
    assert max(Counter(op.origin.value for _, op in named).values()) == 1
    split = [op.kind for inner, op in found for r in op.results if any(inner.values[r].sharding or ())]
    assert split == (["sharding_constraint"] if name == "looped" else [])
    assert graph.mesh == {"x": 2, "y": 4}
    assert set(graph.names) == {t.path for t in drafts.tensors if t.role == "argument"}
    assert graph.aliases == ({0: 0} if name == "looped" else {})


def test_names_change_nothing_that_is_compiled() -> None:
    plan = loads("meshwright: 1\ntopology: cpu:8\nmesh: {x: 8}\ntensors: {'**': replicate}")
    told = []
    for _ in range(2):
        told.append(mw.apply(plan, step, arguments()).lower(*arguments()).as_text(debug_info=True))
        Drafts(step, arguments()).graph(plan)
    before, after = told
    assert before == after
    assert "meshwright.value" not in after


@pytest.mark.parametrize("name", STEPS)
def test_prices_are_the_same_once_a_plan_was_laid_out_with_names(name) -> None:
    rng, (workload, args) = random.Random(name), STEPS[name]()
    plans = [drawn(trace(workload, args, None), rng, 4) for _ in range(3)]
    nameless, named = StepDrafts(None), StepDrafts(None)
    for plan in plans:
        first = nameless.step_graph(plan, workload, args).graph
        laid = named.laid(plan, workload, args)
        assert named.step_graph(plan, workload, args).graph == first
        if name != "convolved":  # of which only the whole way knows how it is computed
            assert [op.kind for op in laid.ops] == [op.kind for op in first.ops]
            assert any(op.origin.value for op in laid.ops)


@pytest.mark.parametrize("name", ["unrolled", "looped"])
def test_values_have_the_same_names_whichever_places_are_left(name, monkeypatch) -> None:
    rng, (workload, args) = random.Random(name), STEPS[name]()
    plans = [drawn(trace(workload, args, None), rng, count) for count in (2, 9, 0, 4)]
    asked, named = StepDrafts(None), StepDrafts(None)
    asked.step_graph(plans[0], workload, args)  # its places stay when others are named
    few = [[each.laid(plan, workload, args) for plan in plans] for each in (asked, named)]
    monkeypatch.setattr(Draft, "_with_places", lambda self, _: self._module)
    every = StepDrafts(None)
    whole = [every.laid(plan, workload, args) for plan in plans]
    assert few == [whole, whole]
    assert any(op.origin.value for op in whole[-1].ops)


def test_what_is_named_beside_what_goes_is_laid_out_anew_by_each_plan() -> None:
    """A library function's result is also what its call makes, whose place goes while what it is made of changes."""

    def loss(w, x):
        x = x @ w
        return jnp.mean((x / jnp.sqrt(jnp.var(x, axis=-1, keepdims=True) + 1)) ** 2)

    workload, args = jax.value_and_grad(loss), tuple(jax.ShapeDtypeStruct((64, 64), jnp.float32) for _ in "wx")
    head = "meshwright: 1\ntopology: cpu:8\nmesh: {x: 8}\ntensors:\n  ops/loss/_var.mul.0: "
    rows, columns = (loads(f"{head}{said}\n  '**': replicate\n") for said in ("_@x _", "_ _@x"))
    named = StepDrafts(None)
    first, then = (named.laid(plan, workload, args) for plan in (rows, columns))
    assert then == StepDrafts(None).laid(columns, workload, args) != first


def test_policies_are_those_of_a_step_with_blocks() -> None:
    assert Drafts(step, arguments()).remat_policies == ("none", "full", "dots")
    assert Drafts(*looped()).remat_policies == ("none",)
    drafts = StepDrafts()
    drafts.traced(step, arguments(), None)  # which JAX remembers, and would not go through the blocks again
    assert drafts.marks_blocks(step, arguments())
    full = Drafts(step, arguments()).tensors_under(Remat(policy="full"))
    assert any("/remat/" in tensor.path for tensor in full)


def test_a_policy_that_computes_nothing_anew_is_traced_as_none(monkeypatch) -> None:
    """It takes seconds of large steps, and says whether blocks are marked too."""
    drafts, traces = StepDrafts(), []

    def tracing(*given):
        traces.append(given)
        return trace(*given)

    monkeypatch.setattr(step_drafts_module, "trace", tracing)
    first = drafts.traced(step, arguments(), Remat(policy="none"), noting=True)
    assert drafts.traced(step, arguments(), None) is first
    assert drafts.marks_blocks(step, arguments())
    assert len(traces) == 1


def test_a_step_with_drafts_can_be_forgotten() -> None:
    workload, args = looped()
    kept = weakref.ref(workload)
    drafts_of(workload, args).unlaid(loads("meshwright: 1\ntopology: v5e:2x4\nmesh: {x: 2, y: 4}"), workload, args)
    del workload
    jax.clear_caches()
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("known", [(True, True), (False, True), (False, False)])
@pytest.mark.parametrize("donated", [(True, True, False), (True, False, True)])
def test_donations_are_paired_as_jax_pairs_them(known, donated) -> None:
    from jax._src.interpreters.mlir import _set_up_aliases

    shapes = [(4, 4), (2, 8), (4, 4)]

    def aval(shape):
        return jax.core.ShapedArray(shape, jnp.float32)

    arguments, results = [aval(s) for s in shapes], [aval((4, 4)), aval((16,))]
    whole = jax.sharding.NamedSharding(jax.make_mesh((8,), ("x",)), jax.P())
    said = [whole if k else None for k in known]
    aliased, left, given = _set_up_aliases(None, arguments, results, donated, None, None, None, None, said)
    given = given or [False] * 3
    if not all(known):
        given = [g or unpaired for g, unpaired in zip(given, left, strict=True)]
    assert donations(arguments, results, donated, known) == (aliased, given)


def test_a_scatter_that_takes_in_a_sum_goes_by_the_name_of_the_sum():
    """A tied table's gradient: annotated by the name of the scatter, that would stay one by itself."""

    def loss(table, rows):
        return ((jnp.tanh(table[rows]) @ table.T) ** 2).sum()

    args = (jax.ShapeDtypeStruct((64, 16), jnp.float32), jax.ShapeDtypeStruct((32,), jnp.int32))
    graph = Drafts(jax.grad(loss), args).graph(loads("meshwright: 1\ntopology: v3:2x2\nmesh: {x: 8}\n"))
    (scatter,) = [op for op in graph.ops if op.kind == "scatter"]
    assert scatter.origin.value.startswith("ops/loss/grad/add_any")


def added_twice(table, rows, x):
    """A scatter, and an equal one that takes in a sum."""
    return jnp.tanh(table.at[rows].add(x)), jnp.sin(table + jnp.zeros_like(table).at[rows].add(x))


def multiplied_twice(x, w):
    """A product, and an equal one that takes the place of its transpose."""
    turned = jax.lax.dot_general(w, x, (((0,), (1,)), ((), ())))
    return jnp.tanh(x @ w), jnp.sin(turned.T)


def trained(w, x):
    """Products, whose gradients are of operands the other way round, and read what others read."""

    def loss(w):
        hidden = jnp.tanh(x @ w["a"])
        return jnp.mean((hidden @ w["b"] + hidden @ w["c"]) ** 2)

    return jax.tree.map(lambda own, gradient: own - 0.1 * gradient, w, jax.grad(loss)(w))


@pytest.mark.parametrize(
    "lines",
    [
        ["ops/loss/grad/dot_general.{0,1,2}.in0: _ _@x", "ops/loss/grad/dot_general.{0,1,2}.in1: _@y ..."],
        ["ops/loss/dot_general.[12].in0: _@y _", "ops/loss/tanh.0: _ _@x"],
        ["ops/loss/grad/dot_general.[01234].in[01]: replicate"],
    ],
)
def test_what_a_sketch_takes_is_what_the_step_takes(lines) -> None:
    of = {name: jax.ShapeDtypeStruct((256, 256), jnp.float32) for name in "abc"}
    args, drafts = (of, jax.ShapeDtypeStruct((512, 256), jnp.float32)), StepDrafts()
    text = "".join(f"  {line}\n" for line in ["w/**: _ _@y", "x: _@x _", "out/**: _ _@y", *lines])
    plan = loads(f"meshwright: 1\ntopology: v5e:2x4\nmesh: {{x: 2, y: 4}}\ntensors:\n{text}")
    nearly, whole = (drafts.step_graph(plan, trained, args, nearly=each) for each in (True, False))
    assert nearly.notes == (SKETCHED,)
    assert changing(nearly.graph) == changing(whole.graph)


def changing(graph):
    """How often each operation stands with its operands and results so, but for what reshards to what there is."""
    of = ((op.kind, *(graph.values[value].sharding for value in (*op.operands, *op.results))) for op in graph.ops)
    return Counter(each for each in of if each[0] != "reshard" or each[1] != each[2])


def turned_twice(x, w):
    """A product that takes the place of its transpose, and then of that one's."""
    turned = jnp.concatenate([jnp.einsum("bij,bjk->bik", x, w).transpose(0, 2, 1)], 0)
    return jnp.sin(turned.transpose(0, 2, 1))


@pytest.mark.parametrize(
    ("step", "kind", "shapes"),
    [
        (added_twice, "scatter", ((64, 8), (16,), (16, 8))),
        (multiplied_twice, "dot_general", ((64, 32), (32, 16))),
        (turned_twice, "dot_general", ((8, 64, 32), (8, 32, 16))),
    ],
)
def test_what_takes_the_place_of_several_reads_values_of_these_paths(step, kind, shapes) -> None:
    args = [jax.ShapeDtypeStruct(shape, jnp.int32 if shape == (16,) else jnp.float32) for shape in shapes]
    drafts = Drafts(step, args)
    known = {tensor.path: tensor.shape for tensor in drafts.tensors}
    graph = drafts.graph(loads("meshwright: 1\ntopology: v3:2x2\nmesh: {x: 8}\n"))
    [(number, paths)] = [found for found in readers_of(graph).items() if graph.ops[found[0]].kind == kind]
    for place, operand in enumerate(graph.ops[number].operands):
        said = operand_paths(graph.ops[number], place, paths)
        assert said
        assert {known[path] for path in said} == {graph.shape(operand)}


def test_what_makes_several_values_has_one_path_for_what_all_of_them_read() -> None:
    """The parts of a split are slices, each of which is told to read what a plan calls ``split.0.in0``."""

    def gated(x: jax.Array, w: jax.Array) -> jax.Array:
        up, gate = jnp.split(x @ w, 2, -1)
        return up * jnp.tanh(gate)

    drafts = Drafts(gated, [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((64, 32), (32, 16))])
    known = {tensor.path: tensor.shape for tensor in drafts.tensors}
    graph = drafts.graph(loads("meshwright: 1\ntopology: v3:2x2\nmesh: {x: 8}\n"))
    readers = [(graph.ops[number], paths) for number, paths in readers_of(graph).items()]
    said = [operand_paths(op, 0, paths) for op, paths in readers if op.kind == "slice"]
    assert said == [("ops/gated/split.0.in0",)] * 2
    assert known["ops/gated/split.0.in0"] == (64, 16)


def test_of_what_is_computed_in_either_order_both_paths_say_what_they_read() -> None:
    """``a * b`` and ``b * a`` are one: the second reads ``a`` as its second operand, as a square's gradient does."""

    def either(x: jax.Array, w: jax.Array) -> jax.Array:
        a, b = jnp.sin(x), jnp.cos(w)
        return jnp.tanh(a * b) + jnp.exp(b * a)

    args = [jax.ShapeDtypeStruct((64, 32), jnp.float32)] * 2
    graph = Drafts(either, args).graph(loads("meshwright: 1\ntopology: v3:2x2\nmesh: {x: 8}\n"))
    makers = {value: op for op in graph.ops for value in op.results}
    [(op, paths)] = [(graph.ops[n], own) for n, own in readers_of(graph).items() if graph.ops[n].kind == "multiply"]
    said = {makers[value].kind: operand_paths(op, place, paths) for place, value in enumerate(op.operands)}
    assert said == {
        "sine": ("ops/either/mul.0.in0", "ops/either/mul.1.in1"),
        "cosine": ("ops/either/mul.0.in1", "ops/either/mul.1.in0"),
    }


def test_a_constant_that_is_put_last_changes_no_path_of_what_is_read() -> None:
    """XLA has constants behind what they are combined with, and ``2 * a`` and ``a * 2`` once."""

    def scaled(x: jax.Array) -> jax.Array:
        a = jnp.sin(x)
        return jnp.tanh(jnp.full_like(a, 3) * a) + jnp.exp(a * jnp.full_like(a, 3))

    drafts = Drafts(scaled, [jax.ShapeDtypeStruct((64, 32), jnp.float32)])
    graph = drafts.graph(loads("meshwright: 1\ntopology: v3:2x2\nmesh: {x: 8}\n"))
    makers = {value: op for op in graph.ops for value in op.results}
    [(op, paths)] = [(graph.ops[n], own) for n, own in readers_of(graph).items() if graph.ops[n].kind == "multiply"]
    [place] = [place for place, value in enumerate(op.operands) if makers[value].kind == "sine"]
    assert operand_paths(op, place, paths) == ("ops/scaled/mul.0.in1", "ops/scaled/mul.1.in0")


def test_what_a_predicate_chooses_has_no_operand_that_there_is_not() -> None:
    """``mask * x`` and ``x * mask`` are one choice, of three operands."""

    def masked(x: jax.Array) -> jax.Array:
        mask = (x > 0).astype(x.dtype)
        return jnp.tanh(mask * x) + jnp.exp(x * mask)

    drafts = Drafts(masked, [jax.ShapeDtypeStruct((64, 32), jnp.float32)])
    graph = drafts.graph(loads("meshwright: 1\ntopology: v3:2x2\nmesh: {x: 8}\n"))
    [(op, paths)] = [(graph.ops[n], own) for n, own in readers_of(graph).items() if graph.ops[n].kind == "select"]
    said = [path for place in range(len(op.operands)) for path in operand_paths(op, place, paths)]
    assert said
    assert all(re.search(r"\.in\d$", path) for path in said)
