"""Puts a pytree where the plan says: ``device_put`` with the plan's shardings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from ...dsl.errors import PlanError, listing, problem
from ...dsl.given import plan_given
from ...dsl.plan import Plan
from ...dsl.resolve import Resolution, key_of, resolve
from ...dsl.rule_matches import match_rules
from ...dsl.tensors import Layout, Tensor
from .devices import are_here
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

    ``value`` is one argument of the step, a tuple of its first arguments, or a dictionary of arguments by name. Which
    is known from ``name``, from ``step`` and ``args`` or the plan's model, or else from the plan's patterns. Arrays
    that the plan leaves to propagation (``infer``) stay where they are, for the step to place.

    Raises ``PlanError`` where it cannot be told what ``value`` is, or the plan does not fit its shapes.
    """
    plan_given(plan)
    if not jax.tree.leaves(value):
        return value
    if step is None and plan.model is not None and name is None:
        step, args = load_workload(plan)
    if step is not None and args is not None:
        layouts = _agreed(plan, _from_step(value, step, args, name))
    else:
        layouts = _chosen(plan, list(_from_patterns(plan, value, name)))
    assignments = [layout.device_assignment for layout in layouts if layout.device_assignment is not None]
    placed = device_mesh(plan, devices, assignments)
    if not are_here(placed.mesh.devices.flat):
        raise PlanError([problem("MW406", what="A state")])
    leaves, structure = jax.tree.flatten(value)
    return jax.tree.unflatten(structure, [_put(x, to, placed) for x, to in zip(leaves, layouts, strict=True)])


def _put(leaf: Any, layout: Layout, placed: DeviceMesh) -> Any:
    sharding = placed.sharding(layout, tuple(getattr(leaf, "shape", ())), padding=False)
    return leaf if sharding is None else jax.device_put(leaf, sharding)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """One way to take a value for arguments of the step: its tensors, and every tensor known beside them."""

    what: str
    tensors: tuple[Tensor, ...]
    table: tuple[Tensor, ...]


def _from_step(value: PyTree, step: Step, args: Sequence[PyTree], name: str | None) -> list[_Reading]:
    """The readings of ``value`` as an argument of this step, or as its first ones.

    Raises ``PlanError`` (MW310) where it is neither.
    """
    names = argument_names(step, len(args))
    table = tuple(t for n, a in zip(names, args, strict=True) for t in _argument(n, a))
    fitting = [n for n, a in zip(names, args, strict=True) if _form(a) == _form(value)]
    whole = [n for n in names if n == name] if name else fitting
    parts = [] if whole or name else _named_parts(value, names)
    if not whole and not parts:
        state = f"'{name}'" if name else "The state"
        reason = f"the step's arguments are {listing(names)}, and it is none of them in name, structure and shapes"
        raise PlanError([problem("MW310", state=state, reason=reason)])
    if parts:
        readings = [_Reading(what=", ".join(n for n, _ in parts), tensors=_joined(parts), table=table)]
    else:
        readings = [_Reading(what=n, tensors=_argument(n, value), table=table) for n in whole]
    if strange := _strange(readings[0]):
        raise PlanError([problem("MW310", state=f"'{readings[0].what}'", reason=listing(strange))])
    return readings


def _strange(reading: _Reading) -> list[str]:
    """What a value has that the step's arguments have not, or have in another shape."""
    planned = {tensor.path: tensor for tensor in reading.table}
    others = [tensor for tensor in reading.tensors if key_of(tensor) not in map(key_of, reading.table)]
    return [
        f"{t} is {str(planned[t.path]).split(' ')[-1]} in the step" if t.path in planned else f"the step has no {t}"
        for t in others
    ]


def _from_patterns(plan: Plan, value: PyTree, name: str | None) -> Iterator[_Reading]:
    """Each reading that the arguments named by the plan's patterns allow."""
    first = (rule.pattern.split("/")[0] for rule in plan.rules)
    roots = [name] if name else list(dict.fromkeys(r for r in first if r.isidentifier() and r not in RESERVED))
    for root in roots:
        yield _Reading(what=root, tensors=_argument(root, value), table=_argument(root, value))
    if not name and (parts := _named_parts(value, roots)):
        tensors = _joined(parts)
        yield _Reading(what=", ".join(n for n, _ in parts), tensors=tensors, table=tensors)


def _named_parts(value: PyTree, names: Sequence[str]) -> list[tuple[str, PyTree]]:
    """A dictionary by argument names, or a plain tuple or list of the first arguments, as pairs; else nothing."""
    if isinstance(value, dict) and value and set(map(str, value)) <= set(names):
        return [(str(key), value[key]) for key in sorted(value)]
    if type(value) in (tuple, list) and len(value) <= len(names):
        return list(zip(names, value, strict=False))
    return []


def _joined(parts: Sequence[tuple[str, PyTree]]) -> tuple[Tensor, ...]:
    return tuple(t for n, v in parts for t in _argument(n, v))


def _argument(name: str, tree: PyTree) -> tuple[Tensor, ...]:
    leaves = [x if hasattr(x, "dtype") else jax.numpy.asarray(x) for x in jax.tree.leaves(tree)]
    paths = leaf_paths(name, tree)
    return tuple(abstract_tensor(p, x, role="argument") for p, x in zip(paths, leaves, strict=True))


def _form(tree: PyTree) -> tuple[Any, list[tuple[int, ...]]]:
    return jax.tree.structure(tree), [tuple(getattr(x, "shape", ())) for x in jax.tree.leaves(tree)]


def _agreed(plan: Plan, readings: list[_Reading]) -> list[Layout]:
    """The layouts of the value's leaves, which must be the same in every reading."""
    found = [_chosen(plan, [reading]) for reading in readings]
    if any(layouts != found[0] for layouts in found):
        raise PlanError([problem("MW309", candidates=listing([reading.what for reading in readings]))])
    return found[0]


def _chosen(plan: Plan, readings: list[_Reading]) -> list[Layout]:
    """The layouts of the value's leaves under the one reading that the plan's rules fit best.

    A reading fits better where more leaves are decided by a pattern that names more than the argument.
    """
    legal, illegal = [], []
    for reading in readings:
        partial = _deciding_rules(plan, reading.table)
        if reading.tensors and not partial.rules:
            continue  # no rule says anything of it
        resolution = resolve(partial, reading.table)
        errors = [p for p in resolution.problems if p.severity == "error"]
        if errors:
            illegal.append((reading, errors))
        else:
            layouts = [resolution.layouts[key_of(t)] for t in reading.tensors]
            legal.append((_specific(resolution, reading), reading.what, layouts))
    if not legal:
        fewest = sorted((errors for _, errors in illegal), key=len)[:1]
        raise PlanError(*fewest or [[problem("MW310", state="The state", reason="no rule of the plan names it")]])
    best = max(score for score, _, _ in legal)
    chosen = [(what, layouts) for score, what, layouts in legal if score == best]
    waiting = [r.what for r, errors in illegal if all(p.code == "MW114" for p in errors)]  # 'like' what is not here
    if any(layouts != chosen[0][1] for _, layouts in chosen) or (waiting and best == 0):
        raise PlanError([problem("MW309", candidates=listing([*(what for what, _ in chosen), *waiting]))])
    return chosen[0][1]


def _specific(resolution: Resolution, reading: _Reading) -> int:
    rules = (resolution.rules.get(key_of(t)) for t in reading.tensors)
    return sum(1 for rule in rules if rule and any(s.strip("*") for s in rule.pattern.split("/")[1:]))


def _deciding_rules(plan: Plan, tensors: Sequence[Tensor]) -> Plan:
    """The plan less the rules for what is not here: a part of the workload is being placed, not the whole."""
    deciding = {rule.pattern for rule in match_rules(plan.rules, tensors).deciding.values() if rule}
    return replace(plan, rules=tuple(rule for rule in plan.rules if rule.pattern in deciding))
