"""Arguments of an applied step that are other than those planned for: how they differ, said to the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding

from ...dsl.errors import PlanError, listing, problem
from .paths import leaf_paths
from .trace import Traced, abstract_tensor
from .workload import PyTree


def refuse_others(traced: Traced, args: Sequence[PyTree]) -> None:
    """Raises ``PlanError`` with what differs, if ``args`` are not those that the step was applied to."""
    names = [*traced.names[: len(args)], *(f"arg{i}" for i in range(len(traced.names), len(args)))]
    paths = [path for name, arg in zip(names, args, strict=True) for path in leaf_paths(name, arg)]
    now = {
        p: str(abstract_tensor(p, _aval(v), role="argument")) for p, v in zip(paths, jax.tree.leaves(args), strict=True)
    }
    planned = {t.path: str(t) for t in traced.arguments}
    changed = [f"{planned[p]} is {now[p].split(' ')[-1]}" for p in planned if p in now and now[p] != planned[p]]
    changed += [f"{planned[p]} is missing" for p in planned if p not in now]
    changed += [f"{now[p]} is new" for p in now if p not in planned]
    if changed:
        raise PlanError([problem("MW308", changed=listing(changed))])


def named_in_order(traced: Traced, args: tuple[PyTree, ...], named: dict[str, PyTree]) -> tuple[PyTree, ...]:
    """Positional and named arguments in the step's order. Raises ``PlanError`` for a name that it does not have."""
    left = traced.names[len(args) :]
    strange = [f"{name} is new" for name in named if name not in left]
    if strange:
        raise PlanError([problem("MW308", changed=listing(strange))])
    return (*args, *(named[name] for name in left if name in named))


def refuse_elsewhere(traced: Traced, args: Sequence[PyTree], mesh: Any) -> None:
    """Raises ``PlanError`` if arrays among ``args`` are committed where JAX does not move them from."""
    leaves = zip(traced.arguments, jax.tree.leaves(args), strict=True)
    wrong = [tensor.path for tensor, leaf in leaves if isinstance(leaf, jax.Array) and _is_elsewhere(leaf, mesh)]
    if wrong:
        raise PlanError([problem("MW318", tensors=listing(wrong))])


def _is_elsewhere(leaf: jax.Array, mesh: Any) -> bool:
    if isinstance(leaf, jax.core.Tracer) or not leaf.committed:
        return False
    own = leaf.sharding.mesh if isinstance(leaf.sharding, NamedSharding) else mesh
    return leaf.sharding.device_set != set(mesh.devices.flat) or own.axis_types != mesh.axis_types


def _aval(value: Any) -> Any:
    return value if hasattr(value, "dtype") else jax.eval_shape(lambda: jax.numpy.asarray(value))
