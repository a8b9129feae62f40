"""A small step of unrolled layers, with remat blocks, a scan and an attention; and a process that prints its paths."""

import jax
import jax.numpy as jnp
import meshwright as mw
from meshwright.backends.jax.trace import trace

B, D, H = 16, 32, 64


def normed(x, g):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g


def attend(w, x):
    q, k = x @ w["q"], x @ w["k"]
    return jax.nn.softmax(q @ k.T) @ x


def layer(w, x):
    x = x + attend(w, normed(x, w["g"]))
    return x + jax.nn.relu(normed(x, w["g"]) @ w["wi"]) @ w["wo"]


def step(params, batch):
    def loss(params):
        x = batch
        for w in params["layers"]:
            x = mw.remat(layer)(w, x)
        x, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, params["scanned"])
        return jnp.mean(mw.tag(x, "end") ** 2)

    value, gradients = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value


def arguments(layers=2, turns=3):
    shapes = {"q": (D, D), "k": (D, D), "g": (D,), "wi": (D, H), "wo": (H, D)}
    one = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    scanned = jax.ShapeDtypeStruct((turns, D, D), jnp.float32)
    return {"layers": [one] * layers, "scanned": scanned}, jax.ShapeDtypeStruct((B, D), jnp.float32)


def paths(layers=2, turns=3, remat=None):
    return [tensor.path for tensor in trace(step, arguments(layers, turns), remat).values.tensors]


if __name__ == "__main__":
    print(*paths(), sep="\n")
