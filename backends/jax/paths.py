"""Tensor paths: the argument's name, then the pytree's own keys, joined with ``/``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax


def segments(key_path: tuple[Any, ...]) -> list[str]:
    """The segments of a JAX key path: dict keys, attribute names, positions."""
    return [_segment(key) for key in key_path]


def leaf_paths(prefix: str, tree: Any) -> list[str]:
    """One path for each leaf of ``tree``, in JAX's order: ``prefix`` alone for a single array."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return ["/".join([prefix, *segments(path)] if prefix else segments(path)) for path, _ in leaves]


def argument_names(step: Callable[..., Any], count: int) -> list[str]:
    """The names of the first ``count`` positional arguments of ``step``; ``arg0``… where it does not say."""
    try:
        parameters = list(inspect.signature(step).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}{i}" for i in range(count - len(names))]
    names += [f"arg{i}" for i in range(len(names), count)]
    return names[:count]


def _segment(key: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key).strip(".[]'\"")
