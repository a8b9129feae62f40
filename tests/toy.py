"""A small regression as a workload in plain JAX, for tests that run plans: ``model: toy:workload``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from meshwright.backends.jax.workload import Workload

ROWS = 32


def loss_of(params: Any, batch: Any) -> jax.Array:
    hidden = jnp.tanh(batch["x"] @ params["w"])
    return jnp.mean((hidden @ params["v"] - batch["y"]) ** 2)


def step(params: Any, opt: Any, batch: Any) -> tuple[Any, Any, dict[str, jax.Array]]:
    loss, gradients = jax.value_and_grad(loss_of)(params, batch)
    params = jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)
    metrics = {"loss": loss, "tokens": jnp.float32(ROWS), "expert_load": jnp.arange(4.0)}
    return params, {"count": opt["count"] + 1}, metrics


def diverging_step(params: Any, opt: Any, batch: Any) -> tuple[Any, Any, dict[str, jax.Array]]:
    params, after, metrics = step(params, opt, batch)
    return params, after, metrics | {"loss": jnp.where(opt["count"] == 3, jnp.nan, metrics["loss"])}


def evaluate(params: Any, opt: Any, batch: Any) -> dict[str, jax.Array]:
    return {"loss": loss_of(params, batch)}


def evaluate_without_loss(params: Any, opt: Any, batch: Any) -> dict[str, jax.Array]:
    return {"error": loss_of(params, batch)}


def init(seed: int) -> tuple[Any, Any]:
    first, second = jax.random.split(jax.random.key(seed))
    params = {"w": jax.random.normal(first, (8, 16)), "v": jax.random.normal(second, (16, 4))}
    return params, {"count": jnp.zeros((), jnp.int32)}


def untraceable_init(seed: int) -> tuple[Any, Any]:
    return jax.tree.map(np.asarray, init(seed))  # type: ignore[no-any-return]


def batches(seed: int, split: str) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    rng = np.random.default_rng([seed, split == "train"])
    while True:
        x = rng.normal(size=(ROWS, 8)).astype(np.float32)
        yield {"x": x, "y": np.sin(x[:, :4])}


def three_batches(seed: int, split: str) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    return islice(batches(seed, split), 3)


def no_held_out_batches(seed: int, split: str) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    return batches(seed, split) if split == "train" else iter(())


def float64_batches(seed: int, split: str) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    for batch in batches(seed, split):
        yield {"x": batch["x"].astype(np.float64), "y": batch["y"]}


def failing_batches(seed: int, split: str) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    yield from three_batches(seed, split)
    raise FileNotFoundError("no data.bin")


def failing_init(seed: int) -> tuple[Any, Any]:
    raise FileNotFoundError("no weights.bin")


def abstract_arguments() -> tuple[Any, ...]:
    batch = {"x": jax.ShapeDtypeStruct((ROWS, 8), jnp.float32), "y": jax.ShapeDtypeStruct((ROWS, 4), jnp.float32)}
    return (*jax.eval_shape(lambda: init(0)), batch)


def workload(**parts: str) -> Workload:
    """The regression; ``parts`` names functions of this module to put in place of its own, ``none`` for nothing."""
    chosen = {name: parts.get(name, name) for name in ("step", "init", "batches", "evaluate")}
    found: dict[str, Any] = {name: None if value == "none" else globals()[value] for name, value in chosen.items()}
    return Workload(found.pop("step"), abstract_arguments(), **found)


def pair() -> tuple[Any, Any]:
    return step, abstract_arguments()


def loss_only_step(params: Any, opt: Any, batch: Any) -> jax.Array:
    return loss_of(params, batch)


def bare_loss_step(params: Any, opt: Any, batch: Any) -> tuple[Any, Any, jax.Array]:
    return params, opt, loss_of(params, batch)


def failing_step(params: Any, opt: Any, batch: Any) -> tuple[Any, Any, dict[str, Any]]:
    return params, opt, {"loss": batch["x"] @ params["v"]}


def indifferent_step(params: Any, opt: Any, batch: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Uses neither ``v``, which it returns, nor ``y``."""
    return params, opt, {"loss": jnp.mean(batch["x"] @ params["w"])}


def nested_loss_step(params: Any, opt: Any, batch: Any) -> tuple[Any, Any, dict[str, Any]]:
    return params, opt, {"loss": {"nll": loss_of(params, batch)}}


def widening_step(params: Any, opt: Any, batch: Any) -> tuple[Any, Any, Any]:
    params, opt, metrics = step(params, opt, batch)
    return {"w": jnp.concatenate([params["w"]] * 2), "v": params["v"]}, opt, metrics
