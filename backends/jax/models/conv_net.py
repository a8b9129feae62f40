"""An image conv net whose spatial dims can be split over devices (GShard section 3.2 and appendix A.4).

Convolution, strided convolution and pooling with SAME padding, and their gradients, need their neighbours' edges when
a spatial dim is split: the partitioner's halo exchange. Dims: B images, Y rows, X columns, F features.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import optax

from ....dsl.errors import problem, raise_errors
from ..annotate import tag
from ..workload import Workload
from .parameters import Params
from .settings import nearest, read_settings
from .shapes import SHAPES, shape_images

Batch = dict[str, jax.Array]
"""``image`` float32 [B, Y, X, 3] and ``label`` int32 [B]."""
Metrics = dict[str, jax.Array]
Step = Callable[[Params, Any, Batch], tuple[Params, Any, Metrics]]

_SHRINKING = 4  # a convolution of stride 2, then pooling by 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvNetConfig:
    """Settings of the conv net."""

    batch: int = field(default=32, metadata={"least": 1})
    height: int = field(default=64, metadata={"least": 4})
    width: int = field(default=64, metadata={"least": 4})
    features: int = field(default=16, metadata={"least": 1})
    """F of the first convolutions; twice that after the strided one."""
    learning_rate: float = field(default=0.1, metadata={"least": 0})


def conv_net(**settings: Any) -> Workload:
    """The training step of a small image classifier: ``step(params, opt, batch) -> (params, opt, metrics)``.

    ``settings`` are the fields of ``ConvNetConfig``. Its images are synthetic: shapes drawn by ``shapes.py``.
    Raises ``PlanError`` for settings that do not exist or do not go together.
    """
    config = read_settings("conv_net", ConvNetConfig, {}, settings)
    _check(config)
    init = functools.partial(_initial_state, config)
    batches = functools.partial(_batches, config)
    return Workload(training_step(config), _abstract_arguments(config), init=init, batches=batches, evaluate=_evaluate)


def training_step(config: ConvNetConfig) -> Step:
    """One step of gradient descent with momentum on the cross-entropy of the shapes."""

    def step(params: Params, opt: Any, batch: Batch) -> tuple[Params, Any, Metrics]:
        gradients, metrics = jax.grad(loss, has_aux=True)(params, batch)
        metrics["grad_norm"] = optax.tree.norm(gradients)
        updates, opt = _optimizer(config).update(gradients, opt, params)
        return optax.apply_updates(params, updates), opt, metrics

    return step


def _optimizer(config: ConvNetConfig) -> optax.GradientTransformation:
    return optax.sgd(config.learning_rate, momentum=0.9)


def loss(params: Params, batch: Batch) -> tuple[jax.Array, Metrics]:
    """Mean cross-entropy of the labels, and metrics."""
    logits = forward(params, batch["image"])
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()
    accuracy = jnp.mean(jnp.argmax(logits, axis=-1) == batch["label"], dtype=jnp.float32)
    return nll, {"loss": nll, "accuracy": accuracy}


def forward(params: Params, image: jax.Array) -> jax.Array:
    """Logits [B, shapes] of ``image`` [B, Y, X, 3]."""
    x = tag(_convolve(params["stem"], image), "conv/stem")
    x = x + tag(_convolve(params["wide"], x), "conv/wide")
    x = tag(_convolve(params["strided"], x, stride=2), "conv/strided")
    x = tag(_pool(x), "conv/pooled")
    x = x + tag(_convolve(params["deep"], x), "conv/deep")
    logits: jax.Array = x.mean(axis=(1, 2)) @ params["head"]["w"] + params["head"]["b"]
    return tag(logits, "logits")


def _convolve(params: Params, x: jax.Array, stride: int = 1) -> jax.Array:
    """ReLU of a 3x3 SAME convolution, [B, Y, X, F]; kernels are [3, 3, F in, F out]."""
    y = jax.lax.conv_general_dilated(
        x, params["w"], (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jax.nn.relu(y + params["b"])


def _pool(x: jax.Array) -> jax.Array:
    """Mean over windows of 3x3 that overlap, every second one: [B, Y/2, X/2, F]."""
    sums = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    return jnp.asarray(sums / 9.0)


def _initial_state(config: ConvNetConfig, seed: int) -> tuple[Params, Any]:
    features, key = config.features, jax.random.key(seed)
    widths = {"stem": (3, features), "wide": (features, features), "strided": (features, 2 * features)}
    widths["deep"] = (2 * features, 2 * features)
    params: Params = {name: _kernel(jax.random.fold_in(key, i), *w) for i, (name, w) in enumerate(widths.items())}
    head = jax.random.normal(jax.random.fold_in(key, len(widths)), (2 * features, len(SHAPES)))
    params["head"] = {"w": head * (2 * features) ** -0.5, "b": jnp.zeros(len(SHAPES))}
    return params, _optimizer(config).init(params)


def _kernel(key: jax.Array, inputs: int, outputs: int) -> Params:
    scale = (2 / (9 * inputs)) ** 0.5  # He et al. 2015, for ReLU
    return {"w": scale * jax.random.normal(key, (3, 3, inputs, outputs)), "b": jnp.zeros(outputs)}


def _evaluate(params: Params, opt: Any, batch: Batch) -> Metrics:
    return loss(params, batch)[1]


def _abstract_arguments(config: ConvNetConfig) -> tuple[Any, Any, Any]:
    params, opt = jax.eval_shape(lambda: _initial_state(config, 0))
    image = jax.ShapeDtypeStruct((config.batch, config.height, config.width, 3), jnp.float32)
    return params, opt, {"image": image, "label": jax.ShapeDtypeStruct((config.batch,), jnp.int32)}


def _batches(config: ConvNetConfig, seed: int, split: str) -> Iterator[Any]:
    return shape_images(batch=config.batch, height=config.height, width=config.width, seed=seed, split=split)


def _check(config: ConvNetConfig) -> None:
    raise_errors(
        problem("MW608", name=name, value=value, nearest=nearest(_around(value), value), multiple=_SHRINKING)
        for name, value in (("height", config.height), ("width", config.width))
        if value % _SHRINKING
    )


def _around(value: int) -> tuple[int, int]:
    below = value // _SHRINKING * _SHRINKING
    return below, below + _SHRINKING
