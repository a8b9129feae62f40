"""Layouts of real steps written as short plans: at the same price, by the real propagation and partitioner."""

import time

import jax
import jax.numpy as jnp
import pytest
from meshwright.backends.jax.drafts import Drafts
from meshwright.dsl.checks import check
from meshwright.dsl.plan import Like, Plan
from meshwright.dsl.reader import loads
from meshwright.dsl.resolve import key_of, resolve
from meshwright.dsl.writer import dumps
from meshwright.planner.graph import Graph, Op, Origin, Value
from meshwright.planner.minimise import minimise
from meshwright.planner.minimise.dims import logical_dims
from meshwright.planner.minimise.flow import Flow
from meshwright.planner.program import build
from meshwright.planner.search.workload import lying
from meshwright.planner.topology import physical

LAYERS, BATCH, WIDTH, HIDDEN = 3, 512, 1024, 4096


def step(params, mu, batch):
    def loss(params):
        x = batch
        for layer in params:
            x = x + jax.nn.relu(x @ layer["wi"]) @ layer["wo"]
        return jnp.mean(x**2)

    found, gradients = jax.value_and_grad(loss)(params)
    mu = jax.tree.map(lambda m, g: 0.9 * m + g, mu, gradients)
    return jax.tree.map(lambda w, m: w - 1e-3 * m, params, mu), mu, found


def arguments():
    layer = {
        "wi": jax.ShapeDtypeStruct((WIDTH, HIDDEN), "float32"),
        "wo": jax.ShapeDtypeStruct((HIDDEN, WIDTH), "float32"),
    }
    return [layer] * LAYERS, [layer] * LAYERS, jax.ShapeDtypeStruct((BATCH, WIDTH), "float32")


PLANS = {
    "tensor parallel": """
  "{params,mu}/**/wi": M H@model
  "{params,mu}/**/wo": H@model M
  batch: replicate
""",
    "fully sharded": """
  "{params,mu}/**": _@data _@model
  batch: B@data+model _
  "ops/loss/dot_general.*.in1/*": replicate
  "ops/loss/{add,dot_general}.*/*": B@data+model _
""",
    "rows and columns": """
  "{params,mu}/**/wi": M H@model
  "{params,mu}/**/wo": H@model M
  batch: B@data _
  "ops/loss/dot_general.1/*": B@data M
""",
}


def planned(rules):
    head = "meshwright: 1\ntopology: v3:2x2\nmesh: {data: 2, model: 4}\ntensors:"
    return loads(head + rules)


@pytest.fixture(scope="module")
def workload():
    return Drafts(step, arguments())


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_found_again_from_its_layouts(workload, name):
    plan = planned(PLANS[name])
    given = resolve(plan, workload.tensors)
    chosen = {
        t.path: given.layouts[key_of(t)].axes for t in workload.tensors if given.layouts[key_of(t)].how == "split"
    }
    chosen |= {p: axes for p, axes in lying(workload.laid(plan)).items() if p not in chosen}
    promised = workload.estimate(plan)
    start = Plan(topology=plan.topology, mesh=plan.mesh)
    found = minimise(chosen, start, workload, deadline=time.monotonic() + 60)
    assert found.estimate.step_time_s <= promised.step_time_s * 1.001
    assert found.estimate.step_time_s <= found.exact.step_time_s * 1.001
    assert len(found.plan.rules) <= 8
    assert any(rule.assignment == Like(target="params") for rule in found.plan.rules)
    assert loads(dumps(found.plan)) == found.plan
    assert not [p for p in check(found.plan, workload.tensors) if p.severity == "error"]
    assert workload.estimate(found.plan).step_time_s == found.estimate.step_time_s


def test_exact_says_how_every_value_lies(workload):
    plan = planned(PLANS["rows and columns"])
    chosen = {p: axes for p, axes in lying(workload.laid(plan)).items() if p.startswith("ops/")}
    given = resolve(plan, workload.tensors)
    chosen |= {t.path: given.layouts[key_of(t)].axes for t in workload.tensors if t.role in ("argument", "result")}
    start = Plan(topology=plan.topology, mesh=plan.mesh)
    found = minimise(chosen, start, workload, deadline=time.monotonic() + 60, exact=True)
    written = resolve(found.plan, workload.tensors).layouts
    said = chosen.keys() - Flow(workload.graph(start)).constant
    assert all(written[key_of(t)].axes == chosen[t.path] for t in workload.tensors if t.path in said and t.shape)


def scattering(x, labels):
    """Zeros into which one number a row is written, as the gradient of a cross entropy has them."""
    return jnp.zeros_like(x).at[jnp.arange(x.shape[0]), labels].add(1.0) * x, jnp.zeros((8, 8)) + 1.0


@pytest.mark.parametrize("exact", [False, True])
def test_what_no_argument_decides_is_not_named(exact):
    given = jax.ShapeDtypeStruct((512, 4096), "float32"), jax.ShapeDtypeStruct((512,), "int32")
    workload = Drafts(scattering, given)
    start = Plan(topology=planned(PLANS["tensor parallel"]).topology, mesh=planned(PLANS["tensor parallel"]).mesh)
    chosen = {
        t.path: (("data",), ()) if t.shape == (512, 4096) else ((),) * len(t.shape) for t in workload.tensors if t.shape
    }
    zeros = {"ops/scattering/broadcast_in_dim.0", "ops/scattering/scatter-add.0.in0", "ops/scattering/add.1.in0"}
    found = minimise(chosen, start, workload, deadline=time.monotonic() + 60, exact=exact)
    named = {path for (path, _), rule in resolve(found.plan, workload.tensors).rules.items() if rule is not None}
    assert zeros < chosen.keys()
    assert not named & zeros
    assert not exact or "ops/scattering/scatter-add.0" in named


def picking(x, w, labels):
    """The numbers of a product that rows ask for: a gather that JAX fills where they ask beyond it."""
    return jnp.take_along_axis(jnp.exp(x @ w), labels[:, None], 1)


def test_what_an_operation_without_a_path_reads_is_known_at_its_place():
    given = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((512, 64), (64, 4096))]
    workload = Drafts(picking, (*given, jax.ShapeDtypeStruct((512,), "int32")))
    flow = Flow(workload.graph(planned(PLANS["tensor parallel"])))
    read = set().union(*(paths for (_, scope), paths in flow.unnamed.items() if scope and scope.endswith("gather")))
    assert "ops/picking/exp.0" in read
    assert read - {"ops/picking/exp.0"}


def looked_up(table, rows):
    """What ``jnp.take`` finds, zeros where there is no such row: a gather and a choice, which are one place."""
    return jnp.take(table, rows, axis=0, mode="fill", fill_value=0) * 2.0


def test_how_a_lookup_reads_its_table_is_said_though_what_it_found_is_chosen_from():
    given = jax.ShapeDtypeStruct((8192, 512), "float32"), jax.ShapeDtypeStruct((65536,), "int32")
    workload = Drafts(looked_up, given)
    plan = loads("meshwright: 1\ntopology: v3:2x2\nmesh: {data: 8}\n")
    pins = {"table": (("data",), ()), "out": (("data",), ())}
    program = build(workload.graph(plan), plan.mesh, physical(plan.topology), pins=pins)
    found = program.solve(time_limit_s=60, seed=0)
    assert found.layouts["ops/looked_up/_take.gather.0.in0"] == ((), ())
    short = minimise(found.layouts, plan, workload, deadline=time.monotonic() + 60, promised_s=found.objective_s)
    assert short.estimate.step_time_s <= found.objective_s * 1.01


def spread(x):
    """A norm's variance beside its mean, which ``jnp.var`` computes for itself: the compiler computes it once."""
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True))


def test_what_is_computed_once_for_several_is_laid_out_for_each():
    workload = Drafts(spread, (jax.ShapeDtypeStruct((8192, 4096), "float32"),))
    plan = loads("meshwright: 1\ntopology: v3:2x2\nmesh: {data: 8}\n")
    pins = {"x": ((), ("data",)), "out": (("data",), ())}
    found = build(workload.graph(plan), plan.mesh, physical(plan.topology), pins=pins).solve(time_limit_s=60, seed=0)
    rows = {path: layout for path, layout in found.layouts.items() if ".in0" in path and "sub" in path}
    assert rows == dict.fromkeys(("ops/spread/sub.0.in0", "ops/spread/_var.sub.0.in0"), (("data",), ()))
    short = minimise(found.layouts, plan, workload, deadline=time.monotonic() + 60, promised_s=found.objective_s)
    assert short.estimate.step_time_s <= found.objective_s * 1.01
    dims = logical_dims(workload.graph(plan))
    assert all(dims.find((path, 0)) == dims.find(("x", 0)) != dims.find((path, 1)) for path in rows)


def test_every_name_of_a_constant_is_known_as_one():
    made = Op(
        kind="exponential", operands=(0,), results=(1,), origin=Origin(value="ops/f/exp.0", also=("ops/g/exp.0",))
    )
    given = Op(kind="constant", results=(0,), attributes={"splat": 1.0})
    flow = Flow(Graph(arguments=(), values=(Value((8, 8), "f32"),) * 2, ops=(given, made), results=(1,)))
    assert {"ops/f/exp.0", "ops/g/exp.0", "ops/f/exp.0.in0", "ops/g/exp.0.in0"} <= flow.constant
