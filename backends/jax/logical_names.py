"""Reads the logical names that frameworks leave on arrays: Flax Linen's boxes, Flax NNX's variables.

They are known by what they have, so no framework is imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax

from ...dsl.logical.rules import Name, TensorNames
from .paths import argument_names, leaf_paths, segments
from .workload import PyTree, Step

SHARDING_KEYS = ("out_sharding", "sharding", "sharding_names")  # NNX's, the newest name first


def logical_names(step: Step, args: Sequence[PyTree]) -> dict[str, TensorNames]:
    """The logical names of the arguments' leaves that carry some, by path."""
    found: dict[str, TensorNames] = {}
    for argument, tree in zip(argument_names(step, len(args)), args, strict=True):
        for path, box in jax.tree_util.tree_flatten_with_path(tree, is_leaf=_carries_names)[0]:
            if not _carries_names(box):
                continue
            names = _names(box)
            if names is not None:
                at = "/".join([argument, *segments(path)])
                found.update(dict.fromkeys(leaf_paths(at, box), names))
    return found


def _carries_names(node: Any) -> bool:
    """Whether a node of a pytree is one of Flax's boxes or variables."""
    return _is_box(node) or _is_variable(node)


def _is_box(node: Any) -> bool:
    return hasattr(node, "names") and hasattr(node, "unbox") and hasattr(node, "value")


def _is_variable(node: Any) -> bool:
    return hasattr(node, "get_metadata") and hasattr(node, "set_metadata")


def _names(node: Any) -> TensorNames | None:
    """The names that a box or variable has; None for a variable without."""
    if _is_box(node):
        return _tensor_names(node.names, getattr(node, "rules", None), literal=not hasattr(node, "rules"))
    metadata = node.get_metadata()
    names = next((metadata[key] for key in SHARDING_KEYS if metadata.get(key)), None)
    return None if names is None else _tensor_names(names, metadata.get("sharding_rules"), literal=True)


def _tensor_names(names: Any, own_rules: Any, *, literal: bool) -> TensorNames:
    if own_rules:
        return TensorNames(names=(), literal=literal, strange="rules of its own in its metadata")
    names = getattr(names, "spec", names)  # a NamedSharding
    if not isinstance(names, (tuple, list, jax.sharding.PartitionSpec)):
        return TensorNames(names=(), literal=literal, strange=f"a {type(names).__name__} for its names")
    entries = list(_entries(names))
    if any(entry is ... for entry in entries):
        return TensorNames(names=(), literal=literal, strange="a dim that is UNCONSTRAINED")
    return TensorNames(names=tuple(entries), literal=literal)


def _entries(names: Any) -> Iterator[Name | Any]:
    """Each dim's entry; ``...`` for one that is neither a name, nor axes, nor None."""
    for entry in names:
        if isinstance(entry, list):
            entry = tuple(entry)
        known = entry is None or isinstance(entry, str)
        yield entry if known or (isinstance(entry, tuple) and all(isinstance(a, str) for a in entry)) else ...
