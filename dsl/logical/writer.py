"""Writes logical axis rules: a list of pairs for Flax, or MaxText's fields; YAML that both read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..yaml_words import listed, word
from .reader import AXIS_OF_FIELD, MESH_AXES, RULES
from .rules import LogicalRule


def as_flax(rules: Sequence[LogicalRule]) -> str:
    """A list of pairs, one a line."""
    return "".join(f"- {_pair(rule)}\n" for rule in rules) or "[]\n"


def as_maxtext(rules: Sequence[LogicalRule], ici: Mapping[str, int], dcn: Mapping[str, int]) -> str:
    """MaxText's fields: ``mesh_axes``, the size of each axis inside slices and across them, the rules."""
    lines = [f"{MESH_AXES}: {listed([word(axis, flow=True) for axis in ici])}"]
    lines += [f"ici_{_field(axis)}_parallelism: {size}" for axis, size in ici.items()]
    lines += [f"dcn_{_field(axis)}_parallelism: {size}" for axis, size in dcn.items()]
    lines += [f"{RULES}:", *(f"  - {_pair(rule)}" for rule in rules)]
    return "\n".join(lines) + "\n"


def _pair(rule: LogicalRule) -> str:
    return listed([word(rule.name, flow=True), listed([word(axis, flow=True) for axis in rule.axes])])


def _field(axis: str) -> str:
    return next((name for name, of in AXIS_OF_FIELD.items() if of == axis), axis)
