"""Every parameter, declared once: its dims by name, which of them only stack like matrices, how it starts.

``L`` counts turns of the scan, ``M N D H E V`` are as in the paper and ``config.py``. Shapes, paths, first values and
the matrices that Adafactor factors all come from these declarations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from .config import TransformerConfig
from .moe.choices import MoeChoices

Params = dict[str, Any]
"""A pytree of nested dicts, whose paths are those of the table: ``params["encoder"]["moe"]["wi"]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter: dim names, the first ``stacked`` of which number otherwise separate variables; its first values."""

    dims: str
    shape: tuple[int, ...]
    stacked: int = 0
    std: float = 0.0
    """Standard deviation of its normal first values; 0 for constant ones."""
    constant: float = 0.0
    truncated: bool = False
    """Whether first values further than two standard deviations from zero are drawn anew."""


Table = dict[str, Parameter]


def parameter_table(config: TransformerConfig) -> Table:
    """Every parameter of the model by its path."""
    sizes = _sizes(config)
    table: Table = {
        "embedding/source": _normal(sizes, "V_source M", fan_in="M"),
        "embedding/target": _normal(sizes, "V_target M", fan_in="M"),
    }
    for stack in ("encoder", "decoder"):
        for name, kind in sublayers(stack, config):
            gate = _gate(sizes, config.moe_choices(stack)) if kind == "moe" else {}
            declared = {**_norm(sizes), **gate, **_KINDS[kind](sizes)}
            table |= {f"{stack}/{name}/{leaf}": parameter for leaf, parameter in declared.items()}
        table[f"norm/{stack}/scale"] = Parameter(dims="M", shape=(config.model_dim,), constant=1.0)
        table[f"norm/{stack}/bias"] = Parameter(dims="M", shape=(config.model_dim,))
    scale = math.sqrt(config.init_scale)
    return {path: replace(p, std=scale * p.std, truncated=config.init == "truncated") for path, p in table.items()}


def sublayers(stack: str, config: TransformerConfig) -> tuple[tuple[str, str], ...]:
    """The sublayers of one turn of the scan, in order: (name, kind). Every other feed-forward is an MoE layer."""
    cross = stack == "decoder"
    dense = [("attention", "attention"), *[("cross_attention", "cross_attention")] * cross, ("ffn", "ffn")]
    moe = [("moe_attention", "attention"), *[("moe_cross_attention", "cross_attention")] * cross, ("moe", "moe")]
    return tuple(dense + moe if config.experts else dense)


def abstract_parameters(table: Table) -> Params:
    """The parameters' shapes, as a pytree of ``jax.ShapeDtypeStruct``; float32 throughout."""
    return nest({path: jax.ShapeDtypeStruct(p.shape, jnp.float32) for path, p in table.items()})


def initial_parameters(table: Table, key: jax.Array) -> Params:
    """The parameters' first values."""
    keys = jax.random.split(key, len(table))
    return nest({path: _first_values(p, k) for (path, p), k in zip(table.items(), keys, strict=True)})


def nest(flat: Mapping[str, Any]) -> Params:
    """Nested dicts from values by path."""
    nested: Params = {}
    for path, value in flat.items():
        *folders, leaf = path.split("/")
        folder = nested
        for name in folders:
            folder = folder.setdefault(name, {})
        folder[leaf] = value
    return nested


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by path from nested dicts: the inverse of ``nest``."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        path = f"{prefix}{name}"
        flat |= flatten(value, f"{path}/") if isinstance(value, Mapping) else {path: value}
    return flat


def _sizes(config: TransformerConfig) -> dict[str, int]:
    return {
        "L": config.blocks,
        "E": config.experts,
        "M": config.model_dim,
        "H": config.hidden_dim,
        "N": config.heads,
        "D": config.head_dim,
        "V_source": config.source_vocab,
        "V_target": config.target_vocab,
    }


def _normal(sizes: dict[str, int], dims: str, *, fan_in: str, stacked: int = 0) -> Parameter:
    std = math.prod(sizes[d] for d in fan_in.split()) ** -0.5
    return Parameter(dims=dims, shape=_shape(sizes, dims), stacked=stacked, std=std)


def _shape(sizes: dict[str, int], dims: str) -> tuple[int, ...]:
    return tuple(sizes[d] for d in dims.split())


def _norm(sizes: dict[str, int]) -> Table:
    shape = _shape(sizes, "L M")
    return {
        "norm/scale": Parameter(dims="L M", shape=shape, stacked=1, constant=1.0),
        "norm/bias": Parameter(dims="L M", shape=shape, stacked=1),
    }


def _attention(sizes: dict[str, int]) -> Table:
    into = {name: _normal(sizes, "L M N D", fan_in="M", stacked=1) for name in ("wq", "wk", "wv")}
    return {**into, "wo": _normal(sizes, "L N D M", fan_in="N D", stacked=1)}


def _ffn(sizes: dict[str, int]) -> Table:
    return {
        "wi": _normal(sizes, "L M H", fan_in="M", stacked=1),
        "wo": _normal(sizes, "L H M", fan_in="H", stacked=1),
    }


def _moe(sizes: dict[str, int]) -> Table:
    return {
        "wi": _normal(sizes, "L E M H", fan_in="M", stacked=2),
        "wo": _normal(sizes, "L E H M", fan_in="H", stacked=2),
    }


def _gate(sizes: dict[str, int], choices: MoeChoices) -> Table:
    """The weights of a gate; those of a noisy one start at zero (Shazeer et al. 2017, appendix A)."""
    if choices.gate not in ("noisy_top_k", "hierarchical"):
        table = {"wg": _normal(sizes, "L M E", fan_in="M", stacked=1)}
        threshold = Parameter(dims="L E", shape=_shape(sizes, "L E"), stacked=1)
        return {**table, "threshold": threshold} if choices.gate == "batchwise" else table
    sizes = {**sizes, "A": choices.set_count(sizes["E"])}
    dims = {"wg": "L M E", "wg_noise": "L M E"}
    if choices.gate == "hierarchical":
        dims |= {"wg_set": "L M A", "wg_set_noise": "L M A"}
    return {name: Parameter(dims=d, shape=_shape(sizes, d), stacked=1) for name, d in dims.items()}


_KINDS = {"attention": _attention, "cross_attention": _attention, "ffn": _ffn, "moe": _moe}


def _first_values(parameter: Parameter, key: jax.Array) -> jax.Array:
    if parameter.std == 0:
        return jnp.full(parameter.shape, parameter.constant, jnp.float32)
    if parameter.truncated:
        return parameter.std * jax.random.truncated_normal(key, -2.0, 2.0, parameter.shape, jnp.float32)
    return parameter.std * jax.random.normal(key, parameter.shape, jnp.float32)
