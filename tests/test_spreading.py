"""Layouts are spread over a step as Shardy spreads them, whatever it computes."""

import random
from dataclasses import replace

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from meshwright.backends.jax.estimate import drafts_of
from meshwright.backends.jax.lowered.draft import Draft
from meshwright.backends.jax.lowered.sketch import Sketch
from meshwright.backends.jax.lowered.spreading.constrained import Spot, made_once

MESHES = {"v5e:2x4": {"x": 2, "y": 4}, "v3:4x4": {"x": 4, "y": 8}, "h100:8x1": {"x": 2, "z": 2, "y": 2}}
F32, I32 = jnp.float32, jnp.int32


def shapes(*each, dtype=F32):
    return tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in each)


def norm(x, scale):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale


def rotated(x):
    left, right = jnp.split(x, 2, -1)
    return jnp.concatenate([left * 0.5 - right, right * 0.5 + left], -1)


def attention(x, w):
    heads = 8
    q, k, v = (rotated((x @ w[n]).reshape(*x.shape[:2], heads, -1)) for n in "qkv")
    scores = jnp.einsum("btnd,bsnd->bnts", q, k) + jnp.tril(jnp.ones((x.shape[1],) * 2))
    out = jnp.einsum("bnts,bsnd->btnd", jax.nn.softmax(scores), v)
    return out.reshape(x.shape) @ w["o"]


def model():
    """A language model's step with Adam: lookups, products, reshapes that merge dims, concatenations."""

    def loss(w, tokens):
        x = mw.tag(w["table"][tokens], "looked")
        x = x + attention(norm(x, w["scale"]), w)
        x = x + mw.tag(jax.nn.gelu(norm(x, w["scale"]) @ w["up"], approximate=False), "wide") @ w["down"]
        logits = jnp.einsum("btm,vm->btv", x, w["table"])
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], -1).mean()

    def step(w, mu, nu, tokens):
        value, grad = jax.value_and_grad(loss)(w, tokens)
        size = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grad)))
        grad = jax.tree.map(lambda g: g / jnp.maximum(size, 1.0), grad)
        mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mu, grad)
        nu = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, nu, grad)
        return jax.tree.map(lambda p, m, v: p - m / (jnp.sqrt(v) + 1e-8), w, mu, nu), mu, nu, value

    m, h, v = 64, 128, 96
    names = {"q": (m, m), "k": (m, m), "v": (m, m), "o": (m, m), "up": (m, h), "down": (h, m), "table": (v, m)}
    w = {name: jax.ShapeDtypeStruct(shape, F32) for name, shape in (names | {"scale": (m,)}).items()}
    return step, (w, w, w, jax.ShapeDtypeStruct((16, 32), I32))


def routed():
    """Tokens sent to experts: sorts, cumulative sums, one-hot masks, reshapes that split dims."""

    def loss(w, x):
        x = x.reshape(8, -1, x.shape[-1])
        gates = jax.nn.softmax(x @ w["gate"])
        best, which = jax.lax.top_k(gates, 2)
        mask = jax.nn.one_hot(which, gates.shape[-1]).sum(-2)
        place = (jnp.cumsum(mask, 1) - 1) * mask
        sent = jax.nn.one_hot(place.astype(I32), 16) * mask[..., None]
        y = jax.nn.relu(jnp.einsum("gsec,gsm,emh->egch", sent, x, w["in"]))
        y = jnp.einsum("gsec,egch,ehm->gsm", sent, y, w["out"]) * best.sum(-1, keepdims=True)
        return (jnp.sort(y, 1)[:, ::-1] ** 2).mean() + jnp.max(gates)

    def step(w, x):
        value, grad = jax.value_and_grad(loss)(w, x)
        return jax.tree.map(lambda p, g: p - jnp.sign(g) * 1e-3, w, grad), value

    gate, inner, outer = shapes((32, 8), (8, 32, 64), (8, 64, 32))
    return step, ({"gate": gate, "in": inner, "out": outer}, *shapes((16, 32, 32)))


def parts():
    """What takes parts and puts them elsewhere."""

    def step(x, y, at):
        row = jax.lax.dynamic_slice(x, (at, 0), (8, x.shape[1]))
        z = jax.lax.dynamic_update_slice(y, row * 2, (0, at))
        z = jnp.pad(z[1:-1], ((1, 1), (0, 0))) + jnp.flip(z, 0) + jnp.cumsum(z, 1)
        z = z + jnp.where(z > 0, z.T.T, -z) + jax.lax.reduce_window(z, 0.0, jax.lax.add, (1, 3), (1, 1), "SAME")
        return z.reshape(-1), jnp.argmax(z, 1), jnp.linalg.norm(z), x.at[0].set(1.0)

    return step, (*shapes((64, 32), (64, 32)), jax.ShapeDtypeStruct((), I32))


def numbers():
    """What works number by number, read once and again."""

    def step(x, y, z):
        u = jax.scipy.special.erfinv(jnp.tanh(x)) + jax.lax.erfc(y) * jax.lax.erf(x + z)
        v = jnp.exp(u) + jnp.log1p(jnp.abs(y)) + jnp.cbrt(z) + jnp.expm1(x) + jnp.sin(y) * jnp.cos(u) + jnp.tan(z)
        w = jnp.clip(v, -1.0, x) + jnp.sign(u) + jnp.floor(v) + jnp.ceil(y) + jnp.round(z) + jnp.arctan2(u, v)
        k = (w * 100).astype(I32)
        k = (k & 7) | (k ^ 3) << 1 | jax.lax.population_count(k) | jax.lax.clz(k) >> 1 | k % 5
        real = jnp.real(jax.lax.complex(w, v)) + jnp.imag(jax.lax.complex(u, w))
        kept = jnp.where(jnp.isfinite(w) & ~(k > 2), jax.lax.reduce_precision(w, 5, 10), jnp.power(x * x, u))
        return kept + jax.nn.sigmoid(real), k, jnp.minimum(u, jax.lax.rsqrt(v * v)) / jnp.sqrt(w * w), v.T

    return step, shapes(*[(64, 32)] * 3)


def layers():
    """Scanned layers that are computed anew, their gradients and Adam's step: what a loop carries has a name."""

    def layer(x, w):
        x = x + attention(x, w)
        return mw.tag(x + mw.tag(jax.nn.gelu(x @ w["up"]), "wide") @ w["down"], "carried"), x.mean()

    def loss(w, table, tokens):
        x, means = jax.lax.scan(jax.checkpoint(layer), table[tokens], w)
        return -jnp.take_along_axis(jax.nn.log_softmax(x @ table.T), tokens[..., None], -1).mean() + means.sum()

    def step(w, table, mu, tokens):
        value, (grad, of_table) = jax.value_and_grad(loss, (0, 1))(w, table, tokens)
        mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mu, grad)
        return jax.tree.map(lambda p, m: p - m, w, mu), table - of_table, mu, value

    m, h = 64, 128
    names = {"q": (m, m), "k": (m, m), "v": (m, m), "o": (m, m), "up": (m, h), "down": (h, m)}
    w = {name: jax.ShapeDtypeStruct((4, *shape), F32) for name, shape in names.items()}
    return step, (w, *shapes((96, m)), w, *shapes((16, 32), dtype=I32))


def turns():
    """Loops in loops, one that swaps what it carries, and what they read from outside; barriers."""

    def step(x, w, y):
        def outer(carry, row):
            inner = jax.lax.scan(lambda d, k: (jnp.tanh(d @ row) * k + y, d.sum(0)), carry, jnp.arange(3.0))
            return inner[0] + y, inner[1]

        x, sums = jax.lax.scan(outer, x, w)
        x, y = jax.lax.optimization_barrier((x, y @ w[0]))
        one, other = jax.lax.fori_loop(0, 6, lambda _, two: (two[1] @ w[1], mw.tag(two[0] + two[1], "both")), (x, y))
        return one * 2 + jnp.sort(other, 0), sums, x

    return step, shapes((64, 32), (4, 32, 32), (64, 32))


def counted():
    """A loop that counts, and its gradient: constants in and out of it are the same and stay apart."""

    def step(w, x):
        return jax.grad(lambda w: (jax.lax.fori_loop(0, 4, lambda i, c: jnp.tanh(c @ w[i]), x) ** 2).sum())(w)

    return step, shapes((4, 32, 32), (64, 32))


STEPS = {each.__name__: each for each in (model, routed, parts, numbers, layers, turns, counted)}


def a_layout(shape, mesh, rng):
    free, words = list(mesh), []
    for size in shape:
        axes = [axis for axis in free if rng.random() < 0.4 and size % mesh[axis] == 0]
        axes = axes[: 1 + (len(axes) > 1 and size % (mesh[axes[0]] * mesh[axes[1]]) == 0)]
        free = [axis for axis in free if axis not in axes]
        words.append("_@" + "+".join(axes) if axes else "_")
    return " ".join(words)


def a_plan(tensors, topology, rng, values):
    """A random plan: some tensors laid out, the others inferred, and some of the values that it can name."""
    mesh = MESHES[topology]
    edges = [t for t in tensors if t.path.split("/")[0] not in ("ops", "acts")]
    rows = {t.path: a_layout(t.shape, mesh, rng) if rng.random() < 0.7 else "infer" for t in edges}
    inner = [t for t in tensors if t not in edges]
    for t in rng.sample(inner, min(values, len(inner))):
        rows[t.path] = a_layout(t.shape, mesh, rng)
    axes = ", ".join(f"{axis}: {size}" for axis, size in mesh.items())
    said = "".join(f'  "{path}": "{layout or "replicate"}"\n' for path, layout in rows.items())
    return mw.loads(f"meshwright: 1\ntopology: {topology}\nmesh: {{{axes}}}\ntensors:\n{said}")


def both(monkeypatch, owner, name, compute, *given):
    """What is found without Shardy and with it, and how often the former was known."""
    known, own = [], getattr(owner, name)

    def watched(*args):
        known.append(own(*args))
        return known[-1]

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, watched)
        without = compute(*given)
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, lambda *args: None)
        return without, compute(*given), sum(each is not None for each in known)


@pytest.mark.parametrize("topology", MESHES)
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("values", [0, 12])
def test_a_plan_is_laid_out_as_by_shardy(monkeypatch, name, topology, values):
    step, args = STEPS[name]()
    drafts, rng, found = drafts_of(step, args), random.Random(f"{name} {topology} {values}"), 0
    for _ in range(6):
        traced = drafts.traced(step, args, None)
        plan = a_plan(traced.tensors + traced.values.tensors, topology, rng, values)
        try:
            layouts = drafts.layouts(plan, step, args)
        except mw.PlanError:
            continue
        one, other, known = both(monkeypatch, Draft, "graph", drafts._from_draft, plan, layouts)
        found += known
        assert one == other
    assert found


@pytest.mark.parametrize("topology", ["v5e:2x4", "h100:8x1"])
@pytest.mark.parametrize("name", STEPS)
def test_values_are_said_to_lie_where_shardy_takes_them(monkeypatch, name, topology):
    step, args = STEPS[name]()
    drafts, rng, found = drafts_of(step, args), random.Random(f"{name} {topology}"), 0
    for values in (0, 6, 40):
        traced = drafts.traced(step, args, None)
        plan = a_plan(traced.tensors + traced.values.tensors, topology, rng, values)
        one, other, known = both(monkeypatch, Sketch, "_known", drafts.lies, plan, step, args)
        found += known
        assert one == other
    assert found


def test_loops_that_ask_more_than_numbers_whether_they_turn_are_left_to_shardy(monkeypatch):
    def step(x, w):
        return jax.lax.while_loop(lambda x: x.sum() > 0, lambda x: jnp.tanh(x @ w), x)

    args = shapes((64, 32), (32, 32))
    drafts = drafts_of(step, args)
    plan = a_plan(drafts.traced(step, args, None).tensors, "v5e:2x4", random.Random(1), 0)
    one, other, known = both(monkeypatch, Draft, "graph", drafts._from_draft, plan, drafts.layouts(plan, step, args))
    assert one == other
    assert not known


def test_what_a_function_is_given_is_made_elsewhere():
    """Turns of an unrolled loop are calls of one function, whose carry has the name of the loop's."""
    _, (w, table, _, tokens) = layers()

    def step(w, table, tokens):
        turn = lambda x, w: (x + jnp.tanh(x @ w["up"]) @ w["down"] + attention(x, w), None)  # noqa: E731
        loss = lambda w: (jax.lax.scan(turn, table[tokens], w, unroll=2)[0] ** 2).mean()  # noqa: E731
        return jax.grad(loss)(w)

    args = w, table, tokens
    drafts = drafts_of(step, args)
    traced = drafts.traced(step, args, None)
    named = [each.path for each in traced.values.tensors]
    plan = a_plan(traced.tensors + traced.values.tensors, "v5e:2x4", random.Random(1), len(named))
    assert set(drafts.lies(plan, step, args)) & set(named)


def test_what_is_read_alike_in_two_loops_is_laid_out_in_each():
    """A weight that turns read, forward and backward."""

    def step(w, xs):
        return jax.grad(
            lambda w: (
                jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), jnp.zeros(xs.shape[1:]), xs)[0] ** 2
            ).sum()
        )(w)

    args = shapes((64, 64), (4, 32, 64))
    drafts = drafts_of(step, args)
    named = [each.path for each in drafts.traced(step, args, None).values.tensors if each.shape == (64, 64)]
    read = [path for path in named if ".in1" in path]
    said = "".join(f'  "{path}": "_@x _"\n' for path in read)
    plan = mw.loads(
        f"meshwright: 1\ntopology: v5e:2x4\nmesh: {{x: 2, y: 4}}\ntensors:\n{said}  w: _ _@y\n  '**': replicate\n"
    )
    assert len(read) > 1
    assert drafts.step_graph(plan, step, args, nearly=True).graph.ops


def test_what_several_read_of_a_value_laid_out_alike_is_laid_out_once():
    first, second, other, again = (Spot(value=1, maker=0, reader=at, position=0) for at in (5, 3, 4, 3))
    whole = Spot(value=1, maker=0)
    found = made_once([(first, "a"), (whole, "a"), (second, "a"), (other, "b"), (again, "a")], [0] * 6)
    assert found == [(whole, "a"), (replace(second, others=((5, 0),)), "a"), (other, "b")]


def test_what_is_concatenated_but_lies_otherwise_is_left_to_shardy(monkeypatch):
    step, args = lambda x, y: jnp.concatenate([x, y]) * 2, shapes((64, 32), (16, 32))
    drafts, rng, found = drafts_of(step, args), random.Random(0), []
    for _ in range(30):
        plan = a_plan(drafts.traced(step, args, None).tensors, "v5e:2x4", rng, 0)
        layouts = drafts.layouts(plan, step, args)
        one, other, known = both(monkeypatch, Draft, "graph", drafts._from_draft, plan, layouts)
        found.append(known)
        assert one == other
    assert 0 < sum(found) < len(found)
