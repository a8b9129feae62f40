"""Puts a pytree where the plan says: ``device_put`` with the plan's shardings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax

from ...dsl.errors import PlanError, listing, problem, raise_errors
from ...dsl.patterns import matches
from ...dsl.plan import Plan
from ...dsl.resolve import resolve
from ...dsl.tensors import Layout, Tensor
from .loading import load_workload
from .paths import argument_names, leaf_paths
from .shardings import DeviceMesh, device_mesh
from .trace import RESERVED, abstract_tensor
from .workload import PyTree, Step


def place(
    plan: Plan,
    value: PyTree,
    step: Step | None = None,
    args: Sequence[PyTree] | None = None,
    *,
    name: str | None = None,
    devices: Sequence[Any] | None = None,
) -> PyTree:
    """``value`` with each array on the devices, laid out as the plan says.

    ``value`` is one argument of the step, or a tuple of its first arguments. Which one is known from ``name``, from
    ``step`` and ``args`` or the plan's model, or else from the plan's patterns if only one reading fits; arrays that
    the plan leaves to propagation (``infer``) stay where they are, for the step to place.

    Raises ``PlanError`` where the reading is ambiguous or the plan does not fit the shapes.
    """
    placed = device_mesh(plan, devices)
    if step is None and plan.model is not None and name is None:
        step, args = load_workload(plan)
    readings = list(_readings(plan, value, step, args, name))
    layouts = _agreed(plan, readings)
    leaves, structure = jax.tree.flatten(value)
    return jax.tree.unflatten(structure, [_put(x, l, placed) for x, l in zip(leaves, layouts, strict=True)])


def _put(leaf: Any, layout: Layout, placed: DeviceMesh) -> Any:
    shape = tuple(getattr(leaf, "shape", ()))
    sharding = placed.sharding(layout, shape, padding=False)
    return leaf if sharding is None else jax.device_put(leaf, sharding)


Reading = tuple[list[Tensor], list[Tensor]]  # the value's own tensors, and every tensor known beside them


def _readings(
    plan: Plan, value: PyTree, step: Step | None, args: Sequence[PyTree] | None, name: str | None
) -> Iterator[Reading]:
    """Each way to take ``value`` for arguments of the step."""
    if step is not None and args is not None:
        known = argument_names(step, len(args))
        table = [t for n, a in zip(known, args, strict=True) for t in _argument(n, a)]
        whole = [n for n, a in zip(known, args, strict=True) if _same_form(a, value)]
        for chosen in [name] if name else whole[:1]:
            yield _argument(chosen, value), table
        if not name and not whole and isinstance(value, tuple) and len(value) <= len(args):
            yield [t for n, v in zip(known, value, strict=False) for t in _argument(n, v)], table
        return
    roots = [name] if name else _roots(plan)
    for root in roots:
        tensors = _argument(root, value)
        yield tensors, tensors
    if not name and isinstance(value, tuple):
        yield from _tuple_readings(plan, value, roots)
    if not name and isinstance(value, dict) and set(map(str, value)) <= set(roots):
        tensors = [t for key, v in value.items() for t in _argument(str(key), v)]
        yield tensors, tensors


def _tuple_readings(plan: Plan, value: tuple[PyTree, ...], roots: list[str]) -> Iterator[Reading]:
    """A tuple of the first arguments, taken in the order in which the plan's patterns name them."""
    if len(value) <= len(roots):
        for skip in range(len(roots) - len(value) + 1):
            chosen = roots[skip : skip + len(value)]
            tensors = [t for n, v in zip(chosen, value, strict=True) for t in _argument(n, v)]
            yield tensors, tensors


def _roots(plan: Plan) -> list[str]:
    """The arguments that the plan's patterns name, in order."""
    first = (rule.pattern.split("/")[0] for rule in plan.rules)
    return list(dict.fromkeys(r for r in first if r.isidentifier() and r not in RESERVED))


def _argument(name: str, tree: PyTree) -> list[Tensor]:
    leaves = jax.tree.leaves(tree)
    avals = [leaf if hasattr(leaf, "dtype") else jax.numpy.asarray(leaf) for leaf in leaves]
    return [abstract_tensor(p, a, role="argument") for p, a in zip(leaf_paths(name, tree), avals, strict=True)]


def _same_form(a: PyTree, b: PyTree) -> bool:
    def form(tree: PyTree) -> Any:
        return jax.tree.structure(tree), [tuple(getattr(x, "shape", ())) for x in jax.tree.leaves(tree)]

    return bool(form(a) == form(b))


def _agreed(plan: Plan, readings: list[Reading]) -> list[Layout]:
    """The layouts of the value's leaves, if every legal reading gives the same."""
    legal: dict[str, list[Layout]] = {}
    problems = []
    for tensors, table in readings:
        resolution = resolve(_deciding_rules(plan, table), table)
        errors = [p for p in resolution.problems if p.severity == "error"]
        if errors:
            problems.append(errors)
        else:
            legal[tensors[0].path.split("/")[0] if tensors else ""] = [
                resolution.layouts[t.path, t.shape] for t in tensors
            ]
    if not legal:
        raise_errors(min(problems, key=len, default=[problem("MW310", path="the state", reason="no rule names it")]))
    distinct = list(legal.values())
    if any(layouts != distinct[0] for layouts in distinct[1:]):
        raise PlanError([problem("MW309", candidates=listing(list(legal)))])
    return distinct[0]


def _deciding_rules(plan: Plan, tensors: list[Tensor]) -> Plan:
    """The plan less the rules for what is not here: a part of the workload is being placed, not the whole."""
    first = (next((r for r in plan.rules if matches(r.pattern, t.path)), None) for t in tensors)
    deciding = {rule.pattern for rule in first if rule is not None}
    return replace(plan, rules=tuple(rule for rule in plan.rules if rule.pattern in deciding))
