"""Logical names to mesh axes, by Flax's own rules of precedence."""

from __future__ import annotations

from collections.abc import Sequence

from .rules import LogicalRule, Name, TensorNames

Axes = tuple[tuple[str, ...], ...]
Decision = tuple[tuple[str, ...], LogicalRule | None]


def mesh_axes(named: TensorNames, rules: Sequence[LogicalRule]) -> Axes:
    """The mesh axes of each named dim, as Flax finds them (``flax.linen.logical_to_mesh_axes``; NNX's if literal)."""
    return tuple(axes for axes, _ in decisions(named, rules))


def decisions(named: TensorNames, rules: Sequence[LogicalRule]) -> tuple[Decision, ...]:
    """For each named dim its axes and the rule that gave them; None where no rule did."""
    return _last(named.names, rules) if named.literal else _first_free(named.names, rules)


def _last(names: Sequence[Name], rules: Sequence[LogicalRule]) -> tuple[Decision, ...]:
    """NNX: the last rule of a name; a name without one is an axis."""
    table = {rule.name: rule for rule in rules}
    found = []
    for name in names:
        rule = table.get(name) if isinstance(name, str) else None
        found.append((rule.axes, rule) if rule else (outright(name, literal=True), None))
    return tuple(found)


def _first_free(names: Sequence[Name], rules: Sequence[LogicalRule]) -> tuple[Decision, ...]:
    """Linen: rules in order, each taking its dim if that has none yet and all its axes are free in this tensor."""
    chosen: dict[int, LogicalRule] = {}
    taken = {axis for name in names for axis in outright(name)}
    for rule in rules:
        if rule.name not in names:
            continue
        dim = list(names).index(rule.name)
        if dim not in chosen and taken.isdisjoint(rule.axes):
            chosen[dim] = rule
            taken.update(rule.axes)
    return tuple(
        (chosen[dim].axes, chosen[dim]) if dim in chosen else (outright(name), None) for dim, name in enumerate(names)
    )


def outright(name: Name, *, literal: bool = False) -> tuple[str, ...]:
    """The axes that a name gives without any rule."""
    if isinstance(name, tuple):
        return name
    return (name,) if literal and name else ()
