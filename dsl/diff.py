"""What changes from one plan to another: key by key, rule by rule, with the moves of rules whose order changed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .plan import ArgumentPrint, Mesh, Plan, Result
from .units import write_bytes
from .writer import assignment, at_run_time_text, axis_text, remat_text
from .yaml_words import value

Kind = Literal["added", "removed", "changed", "moved"]
_SIGNS: dict[Kind, str] = {"added": "+", "removed": "-", "changed": "~", "moved": ">"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference, at a key such as ``mesh.expert`` or ``tensors.params/**``, with what was and what is there."""

    kind: Kind
    key: str
    before: str | None = None
    after: str | None = None

    def __str__(self) -> str:
        return f"{_SIGNS[self.kind]} {self.key}: {' -> '.join(t for t in (self.before, self.after) if t is not None)}"

    def as_json(self) -> dict[str, Any]:
        """The change as plain JSON values."""
        return {"kind": self.kind, "key": self.key, "before": self.before, "after": self.after}


def diff(before: Plan, after: Plan) -> tuple[Change, ...]:
    """The changes from one plan to the other, in the order of a plan's keys; empty where they say the same."""
    old, new = _values(before), _values(after)
    changes = list(_changes(old, new))
    changes += _moves("mesh", _axes(before.mesh), _axes(after.mesh), "axis")
    changes += _moves("tensors", _patterns(before), _patterns(after), "rule")
    return tuple(changes)


def _changes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Change]:
    for key in dict.fromkeys([*old, *new]):
        if key not in new:
            yield Change(kind="removed", key=key, before=old[key])
        elif key not in old:
            yield Change(kind="added", key=key, after=new[key])
        elif old[key] != new[key]:
            yield Change(kind="changed", key=key, before=old[key], after=new[key])


def _values(plan: Plan) -> dict[str, str]:
    """Everything that a plan says, by key, as it is written."""
    values = {"meshwright": str(plan.version)}
    parts = {"name": plan.name, "model": plan.model, "topology": plan.topology}
    values |= {key: str(part) for key, part in parts.items() if part is not None}
    values |= {f"with.{key}": value(setting) for key, setting in plan.settings.items()}
    values |= _mesh_values(plan.mesh)
    values |= {f"tensors.{rule.pattern}": assignment(rule.assignment) for rule in plan.rules}
    if plan.remat:
        values["remat"] = remat_text(plan.remat)
    if plan.limits.hbm_bytes is not None:
        values["limits.hbm"] = write_bytes(plan.limits.hbm_bytes)
    return values | (_result_values(plan.result) if plan.result else {})


def _mesh_values(mesh: Mesh) -> dict[str, str]:
    if mesh.axes is None:
        return {"mesh": "auto"}
    return {f"mesh.{axis.name}": axis_text(axis) for axis in mesh.axes}


def _result_values(result: Result) -> dict[str, str]:
    values: dict[str, str] = {"result.status": result.status}
    for name in ("step_time_s", "bound_s", "gap", "seed"):
        number = getattr(result, name)
        if number is not None:
            values[f"result.{name}"] = value(number)
    values |= {f"result.peak_bytes.{kind}": write_bytes(held) for kind, held in result.peak_bytes.items()}
    values |= {f"result.versions.{name}": version for name, version in result.versions.items()}
    if result.pins:
        values["result.pins"] = value(result.pins)
    if result.fingerprint:
        prints = result.fingerprint.arguments.items()
        values |= {f"result.fingerprint.arguments.{name}": _print(p) for name, p in prints}
        values |= {f"result.fingerprint.dims.{dim}": str(size) for dim, size in result.fingerprint.dims.items()}
    for one in result.at_run_time:
        values[f"result.at_run_time.{value(one.when)}"] = at_run_time_text(one)
    return values


def _print(argument: ArgumentPrint) -> str:
    return f"{argument.tensors} tensors, {argument.elements} elements, digest {argument.digest}"


def _axes(mesh: Mesh) -> list[str]:
    return [axis.name for axis in mesh.axes or ()]


def _patterns(plan: Plan) -> list[str]:
    return [rule.pattern for rule in plan.rules]


def _moves(section: str, old: Sequence[str], new: Sequence[str], noun: str) -> Iterator[Change]:
    """The fewest moves that bring the names that both have from one order into the other."""
    common = [name for name in new if name in set(old)]
    position = {name: i for i, name in enumerate(old)}
    still = _longest_rising([position[name] for name in common])
    for name in common:
        if position[name] not in still:
            before, after = position[name] + 1, new.index(name) + 1
            yield Change(kind="moved", key=f"{section}.{name}", before=f"{noun} {before}", after=f"{noun} {after}")


def _longest_rising(numbers: Sequence[int]) -> set[int]:
    """The members of a longest rising subsequence: what can stay where it is."""
    ends: list[int] = []  # the least number that a rising subsequence of each length ends in
    lengths = []
    for number in numbers:
        length = bisect_left(ends, number)
        ends[length : length + 1] = [number]
        lengths.append(length)
    chosen: set[int] = set()
    wanted = len(ends) - 1
    for number, length in zip(reversed(numbers), reversed(lengths), strict=True):
        if length == wanted:
            chosen.add(number)
            wanted -= 1
    return chosen
