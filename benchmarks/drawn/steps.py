"""Draws a training step, a machine and a layout from a seed: perceptrons, experts, language models, convolutions.

The letters of a weight's dims say what a layout does with it: ``N``, ``K`` (heads), ``H`` (hidden) and ``V``
(vocabulary) are split by tensor parallelism, ``E`` (experts) by expert parallelism, ``M`` (model) beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import optax
from steps import abstract, cross_entropy, ints, rms, rotary, trained

MACHINES = (
    ("v3:4x4", (4, 8)),
    ("v4:2x2x4", (8, 4)),
    ("v5e:4x4", (4, 4)),
    ("v5e:4x8", (4, 8)),
    ("v5p:2x2x4", (4, 4)),
    ("v5p:2x4x4", (8, 4)),
    ("v6e:4x4", (4, 4)),
    ("v6e:4x8", (8, 4)),
    ("tpu7x:2x2x2", (4, 4)),
)
TENSOR_DIMS = "NKHV"
FIRST_SHARED = 284
"""From this seed on data parallelism may share out the weights' update."""
LAYOUTS = ("data", "fsdp", "tensor", "fsdp+tensor")
EXPERT_LAYOUTS = ("data", "experts", "experts+fsdp", "experts+tensor")
Weights = dict[str, tuple[str, tuple[int, ...]]]
"""Of each weight, by name or path, the letters of its dims and their sizes."""
Block = Callable[[jax.Array, Any], jax.Array]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A step under a plan; ``name`` says what was drawn."""

    name: str
    plan: mw.Plan
    step: Callable[..., Any]
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """What is trained: the loss of parameters and a batch, both abstract; ``weights`` has the parameters by path."""

    name: str
    loss: Callable[[Any, Any], jax.Array]
    params: Any
    weights: Weights
    batch: Any
    has_experts: bool = False


def drawn(seed: int) -> Drawn:
    """The step of a seed: the same on every machine."""
    draw = Random(seed)
    topology, mesh = draw.choice(MACHINES)
    make = draw.choices((perceptron, experts_alone, language_model, convolutions), (2, 2, 5, 2))[0]
    model = make(draw, mesh[0] * mesh[1])
    layouts = EXPERT_LAYOUTS if model.has_experts else LAYOUTS[:2] if make is convolutions else LAYOUTS
    layout = draw.choice(layouts)
    optimiser = draw.choice(("adam", "adam", "momentum", "none"))
    step, args, state = training(model, optimiser)
    if seed >= FIRST_SHARED and layout == "data" and optimiser != "none" and draw.random() < 0.5:
        layout, state = "weight-update", shared_state(model.weights, mesh, optimiser)
    rules = [*batch_rules(model.batch, layout), *weight_rules(model.weights, layout, mesh), *state]
    if model.has_experts:
        rules += expert_rules(layout)
    lines = "".join(f"  {path}: {said}\n" for path, said in rules)
    head = f"meshwright: 1\ntopology: {topology}\nmesh: {{x: {mesh[0]}, y: {mesh[1]}}}\ntensors:\n"
    name = f"{model.name}, {optimiser}, {layout} on {topology}"
    return Drawn(name, mw.loads(head + lines), step, args)


def training(model: Model, optimiser: str) -> tuple[Callable[..., Any], tuple[Any, ...], list[tuple[str, str]]]:
    """The step, its arguments, and the rules of its state and results."""
    if optimiser == "none":
        return jax.jit(jax.value_and_grad(model.loss)), (model.params, model.batch), [("out/**", "infer")]
    made = optax.adam(1e-3) if optimiser == "adam" else optax.sgd(1e-2, momentum=0.9)
    step = jax.jit(trained(model.loss, made), donate_argnums=(0, 1))
    args = (model.params, jax.eval_shape(made.init, model.params), model.batch)
    return step, args, [("opt/**", "like params"), ("out/2", "replicate")]


# Layouts


def batch_rules(batch: Any, layout: str) -> list[tuple[str, str]]:
    axes = "x" if layout in ("tensor", "fsdp+tensor") else "x+y"
    return [("batch" if isinstance(batch, jax.ShapeDtypeStruct) else "batch/**", f"_@{axes} ...")]


def shared_state(weights: Weights, mesh: tuple[int, int], optimiser: str) -> list[tuple[str, str]]:
    """Of whole weights the optimiser's state, split as FSDP has it: each device updates its part, which is gathered."""
    split = [(path, words(*weight, "fsdp", mesh)) for path, weight in weights.items()]
    own = [(f"opt/**/{path.removeprefix('params/')}", said) for path, said in split if "@" in said]
    rest = [] if all("@" in said for _, said in split) and optimiser == "momentum" else [("opt/**", "replicate")]
    return [*own, *rest, ("out/2", "replicate")]


def weight_rules(weights: Weights, layout: str, mesh: tuple[int, int]) -> list[tuple[str, str]]:
    """One rule a weight."""
    return [(path, words(*weight, layout, mesh)) for path, weight in weights.items()]


def words(letters: str, shape: tuple[int, ...], layout: str, mesh: tuple[int, int]) -> str:
    """A weight's assignment: of each dim the axes that it is split over."""
    x, y = mesh
    axes: dict[str, str] = {}
    if "experts" in layout and "EH" in letters.replace("M", ""):
        axes["E"] = "x" if layout == "experts+tensor" else "x+y"
        if layout == "experts+tensor":
            axes["H"] = "y"
    elif layout in ("tensor", "fsdp+tensor"):
        axes |= {d: "y" for d, size in zip(letters, shape, strict=True) if d in TENSOR_DIMS and size % y == 0}
        if layout == "fsdp+tensor" and "M" in letters and len(shape) > 1:
            axes["M"] = "x"
    elif "fsdp" in layout and len(shape) > 1:
        even = [(size, d) for d, size in zip(letters, shape, strict=True) if d != "L" and size % (x * y) == 0]
        if even:
            axes[max(even)[1]] = "x+y"
    return " ".join(f"_@{axes[d]}" if d in axes else "_" for d in letters)


def expert_rules(layout: str) -> list[tuple[str, str]]:
    """How groups of tokens reach their experts, and come back."""
    if layout == "data":
        return [("acts/**", "infer")]
    sent = "E@x G@y C M" if layout == "experts+tensor" else "E@x+y G C M"
    return [("acts/moe/dispatched", sent), ("acts/moe/combined", "E G@x+y C M")]


# Models


def perceptron(draw: Random, devices: int) -> Model:
    """Layers alike, each of two products."""
    layers, width = draw.randint(1, 4), draw.choice((512, 1024, 2048, 4096, 8192))
    hidden = width * draw.choice((2, 4))
    rows = devices * draw.choice((16, 64, 128, 512))
    dtype, act = draw.choice((jnp.float32, jnp.bfloat16)), draw.choice((jax.nn.relu, jax.nn.gelu))
    has_residual, has_norm = draw.random() < 0.5, draw.random() < 0.4

    def loss(params: Any, batch: jax.Array) -> jax.Array:
        x = batch.astype(dtype)
        for w in params:
            h = rms(x, w["norm"]) if has_norm else x
            h = act(h @ w["wi"].astype(dtype)) @ w["wo"].astype(dtype)
            x = x + h if has_residual else h
        return jnp.mean(x.astype(jnp.float32) ** 2)

    one = {"wi": ("MH", (width, hidden)), "wo": ("HM", (hidden, width))}
    if has_norm:
        one["norm"] = ("M", (width,))
    params, weights = stacked(one, layers)
    name = f"perceptron {layers}x{width}x{hidden} {rows} rows {act.__name__} {short(dtype)}"
    return Model(name + " residual" * has_residual + " norm" * has_norm, loss, params, weights, abstract((rows, width)))


def experts_alone(draw: Random, devices: int) -> Model:
    """One layer of experts on groups of tokens."""
    experts, top = devices * draw.choice((1, 1, 2)), draw.choice((1, 2))
    groups, tokens = devices, draw.choice((256, 512, 1024))
    width, hidden = draw.choice((512, 1024)), draw.choice((2048, 4096))
    dtype = draw.choice((jnp.float32, jnp.bfloat16))

    def loss(params: Any, batch: jax.Array) -> jax.Array:
        return jnp.mean(mixed(batch.astype(dtype), params, top).astype(jnp.float32) ** 2)

    weights = {f"params/{name}": weight for name, weight in expert_weights(width, hidden, experts).items()}
    params = abstract({name: shape for name, (_, shape) in expert_weights(width, hidden, experts).items()})
    batch = abstract((groups, tokens, width))
    name = f"{experts} experts {width}x{hidden} top-{top} {groups}x{tokens} {short(dtype)}"
    return Model(name, loss, params, weights, batch, has_experts=True)


def language_model(draw: Random, devices: int) -> Model:
    """A decoder as people write them: scanned or unrolled, gated or not, with experts or without."""
    layers, width = draw.choice((1, 2, 2, 3, 4)), draw.choice((512, 1024, 2048))
    heads, shared, hidden = width // 64, draw.choice((1, 1, 4)), width * draw.choice((2, 4))
    vocabulary, length = draw.choice((8192, 32000, 32768)), draw.choice((256, 512, 1024))
    rows = devices * draw.choice((1, 1, 2))
    dtype = draw.choice((jnp.float32, jnp.bfloat16))
    is_gated, is_tied, is_rotated = draw.random() < 0.5, draw.random() < 0.4, draw.random() < 0.3
    has_experts = draw.random() < 0.35
    is_scanned, is_recomputed = not has_experts and draw.random() < 0.4, draw.random() < 0.3
    top = draw.choice((1, 2))

    def block(x: jax.Array, w: Any) -> jax.Array:
        w = jax.tree.map(lambda a: a.astype(dtype), w)
        x = x + attention(rms(x, w["norm1"]), w, is_rotated)
        h = rms(x, w["norm2"])
        if "router" in w:
            return x + mixed(h, w, top)
        up = jax.nn.silu(h @ w["gate"]) * (h @ w["wi"]) if is_gated else jax.nn.relu(h @ w["wi"])
        return x + up @ w["wo"]

    def loss(params: Any, batch: jax.Array) -> jax.Array:
        x = params["embedding"].astype(dtype)[batch]
        body: Block = jax.checkpoint(block) if is_recomputed else block
        if is_scanned:
            x = jax.lax.scan(lambda x, w: (body(x, w), None), x, params["layers"])[0]
        else:
            for w in params["layers"]:
                x = body(x, w)
        head = params["embedding"].T if is_tied else params["head"]
        return cross_entropy(x @ head.astype(dtype), batch)

    one = attention_weights(width, heads, heads // shared)
    dense = one | {"wi": ("MH", (width, hidden)), "wo": ("HM", (hidden, width))}
    if is_gated:
        dense["gate"] = ("MH", (width, hidden))
    sparse = one | expert_weights(width, hidden, devices)
    if is_scanned:
        scanned = {name: (f"L{letters}", (layers, *shape)) for name, (letters, shape) in dense.items()}
        weights = {f"params/layers/{name}": weight for name, weight in scanned.items()}
        blocks: Any = abstract({name: shape for name, (_, shape) in scanned.items()})
    else:
        kinds = [sparse if has_experts and i == layers - 1 else dense for i in range(layers)]
        weights = {f"params/layers/{i}/{n}": w for i, kind in enumerate(kinds) for n, w in kind.items()}
        blocks = [abstract({name: shape for name, (_, shape) in kind.items()}) for kind in kinds]
    params = {"layers": blocks, "embedding": abstract((vocabulary, width))}
    weights["params/embedding"] = "VM", (vocabulary, width)
    if not is_tied:
        params["head"] = abstract((width, vocabulary))
        weights["params/head"] = "MV", (width, vocabulary)
    said = {"scanned": is_scanned, "remat": is_recomputed, "gated": is_gated, "tied": is_tied, "rotary": is_rotated}
    said |= {"grouped": shared > 1, f"top-{top} experts": has_experts}
    name = f"lm {layers}x{width}x{hidden} {vocabulary} {rows}x{length} {short(dtype)}"
    name += "".join(f" {word}" for word, holds in said.items() if holds)
    return Model(name, loss, params, weights, ints(rows, length), has_experts)


def convolutions(draw: Random, devices: int) -> Model:
    """Convolutions one after the other, on images that shrink or do not."""
    layers, edge = draw.randint(2, 4), draw.choice((56, 64, 128, 256))
    window, stride = draw.choice((1, 3, 3, 5)), draw.choice((1, 2))
    widths = [draw.choice((3, 32, 64)), *(draw.choice((32, 64, 128, 256)) for _ in range(layers))]
    rows, dtype = devices * draw.choice((1, 2, 4)), draw.choice((jnp.float32, jnp.bfloat16))
    has_bias = draw.random() < 0.5

    def loss(params: Any, batch: jax.Array) -> jax.Array:
        x = batch.astype(dtype)
        for i, w in enumerate(params):
            steps = (stride, stride) if i else (1, 1)
            kernel = w["kernel"].astype(dtype)
            x = jax.lax.conv_general_dilated(x, kernel, steps, "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jax.nn.relu(x + w["bias"].astype(dtype) if has_bias else x)
        return jnp.mean(x.astype(jnp.float32) ** 2)

    shapes = [{"kernel": ("YXIO", (window, window, a, b)), "bias": ("O", (b,))} for a, b in pairwise(widths)]
    kept = [{n: w for n, w in each.items() if has_bias or n != "bias"} for each in shapes]
    weights = {f"params/{i}/{n}": w for i, each in enumerate(kept) for n, w in each.items()}
    params = [abstract({n: shape for n, (_, shape) in each.items()}) for each in kept]
    batch = abstract((rows, edge, edge, widths[0]))
    name = f"convolutions {window}x{window}/{stride} {'-'.join(map(str, widths))} {rows}x{edge} {short(dtype)}"
    return Model(name + " bias" * has_bias, loss, params, weights, batch)


# Parts of models


def stacked(one: Weights, layers: int) -> tuple[Any, Weights]:
    """The abstract parameters of layers alike, a dictionary each, and their weights by path."""
    params = [abstract({name: shape for name, (_, shape) in one.items()}) for _ in range(layers)]
    return params, {f"params/{i}/{name}": weight for i in range(layers) for name, weight in one.items()}


def attention_weights(width: int, heads: int, shared: int) -> Weights:
    size = width // heads
    kv = ("MKD", (width, shared, size))
    norm = ("M", (width,))
    return {
        "q": ("MND", (width, heads, size)),
        "k": kv,
        "v": kv,
        "o": ("NDM", (heads, size, width)),
        "norm1": norm,
        "norm2": norm,
    }


def attention(x: jax.Array, w: Any, is_rotated: bool) -> jax.Array:
    """Causal, heads of queries in groups that share keys and values."""
    q, k, v = (jnp.einsum("btm,mnd->btnd", x, w[name]) for name in "qkv")
    if is_rotated:
        q, k = rotary(q), rotary(k)
    rows, length, heads, size = q.shape
    q = q.reshape(rows, length, k.shape[2], heads // k.shape[2], size)
    scores = jnp.einsum("btkgd,bskd->bkgts", q, k).astype(jnp.float32) * size**-0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e30)
    found = jnp.einsum("bkgts,bskd->btkgd", jax.nn.softmax(scores).astype(x.dtype), v)
    return jnp.einsum("btnd,ndm->btm", found.reshape(rows, length, heads, size), w["o"])


def expert_weights(width: int, hidden: int, experts: int) -> Weights:
    return {
        "router": ("ME", (width, experts)),
        "wi": ("EMH", (experts, width, hidden)),
        "wo": ("EHM", (experts, hidden, width)),
    }


def mixed(x: jax.Array, w: Any, top: int) -> jax.Array:
    """Each token through its best experts while these have room, by masks; ``x`` is groups, tokens, model."""
    experts = w["router"].shape[-1]
    capacity = max(1, 2 * x.shape[1] // experts)
    gates = jax.nn.softmax(x.astype(jnp.float32) @ w["router"].astype(jnp.float32))
    left, filled = gates, jnp.zeros((x.shape[0], 1, experts))
    combine = jnp.zeros((*gates.shape, capacity), jnp.float32)
    for _ in range(top):
        mask = jax.nn.one_hot(jnp.argmax(left, -1), experts)
        place = (jnp.cumsum(mask, 1) - 1 + filled) * mask
        mask *= place < capacity
        slots = jax.nn.one_hot(jnp.sum(place * mask, -1).astype(jnp.int32), capacity)
        combine += ((gates * mask)[..., None]) * slots[:, :, None]
        filled += jnp.sum(mask, 1, keepdims=True)
        left = left * (1 - mask)
    slots, weights = (combine > 0).astype(x.dtype), combine.astype(x.dtype)
    sent = mw.tag(jnp.einsum("gsec,gsm->egcm", slots, x), "moe/dispatched")
    hidden = jax.nn.relu(jnp.einsum("egcm,emh->egch", sent, w["wi"].astype(x.dtype)))
    back = mw.tag(jnp.einsum("egch,ehm->egcm", hidden, w["wo"].astype(x.dtype)), "moe/combined")
    return jnp.einsum("gsec,egcm->gsm", weights, back)


def short(dtype: Any) -> str:
    return "bf16" if dtype == jnp.bfloat16 else "f32"
