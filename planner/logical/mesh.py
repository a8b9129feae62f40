"""MaxText's parallelism fields as a mesh on a machine, and back."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from ...dsl.errors import PlanError, Problem, problem, raise_errors, suggest
from ...dsl.logical.rules import LogicalRules
from ...dsl.plan import Axis, Mesh, OverDim, Place
from ..device_order import device_numbers
from ..topology import Machine

SLICE = "slice"
MAXTEXT_AXES = (
    "data",
    "stage",
    "fsdp",
    "fsdp_transpose",
    "sequence",
    "context",
    "context_autoregressive",
    "tensor",
    "tensor_transpose",
    "tensor_sequence",
    "expert",
    "autoregressive",
)
"""The axes that MaxText has fields for."""


def mesh_of(rules: LogicalRules, machine: Machine | None) -> Mesh:
    """The mesh that a file of rules means on ``machine``; sizes that it leaves to a machine are open without one.

    An axis of the rules that has no field has one device where any axis has a field, else its size is open.
    Raises ``PlanError`` (MW660 to MW663, MW666; with these MW652, which is ``plan_of``'s else).
    """
    of_rules = tuple(dict.fromkeys(axis for rule in rules.rules for axis in rule.axes))
    names = rules.mesh_axes if rules.mesh_axes is not None else of_rules
    place = rules.places.get("mesh_axes", Place())
    if not (rules.ici or rules.dcn):
        return Mesh(axes=tuple(Axis(name=name, size=None, place=place) for name in names), place=place)
    slices = dict(machine.dims).get(SLICE, 1) if machine else 1
    problems = [
        found for kind in ("ici", "dcn") for found in (*_open_twice(rules, kind), *_homeless(rules, kind, names))
    ]
    if machine is None:
        problems += _slices_unsaid(rules)
    unknown = list(unknown_axes(rules, names))
    raise_errors([*problems, *unknown] if problems else [])
    dcn, wrong = _filled(rules, "dcn", names, slices, "slices", machine)
    within = machine.num_devices // slices if machine else None
    ici, also_wrong = _filled(rules, "ici", names, within, "devices in a slice", machine)
    wrong += also_wrong
    raise_errors([*wrong, *unknown] if wrong else [])
    sizes = {name: None if ici[name] is None else (ici[name] or 1) * (dcn[name] or 1) for name in names}
    over = _over(rules, ici, dcn) if slices > 1 else {}
    axes = tuple(Axis(name=name, size=sizes[name], over=over.get(name), place=place) for name in names)
    return Mesh(axes=axes, place=place)


def unknown_axes(rules: LogicalRules, names: Collection[str]) -> Iterator[Problem]:
    """A problem for each axis of a rule that a mesh with these axes does not have."""
    for rule in rules.rules:
        for axis in rule.axes:
            if axis not in names:
                yield problem("MW652", rule.place, name=rule.name, axis=axis, suggestion=suggest(axis, names))


def _field(kind: str, axis: str) -> str:
    return f"{kind}_{axis}_parallelism"


def _place(rules: LogicalRules, kind: str, axis: str) -> Place | None:
    return rules.places.get(_field(kind, axis)) or rules.places.get(_field(kind, "pipeline"))


def _open_twice(rules: LogicalRules, kind: str) -> Iterator[Problem]:
    fields: Mapping[str, int] = getattr(rules, kind)
    filling = [axis for axis, size in fields.items() if size == -1]
    for other in filling[1:]:
        where = _place(rules, kind, other)
        yield problem("MW661", where, first=_field(kind, filling[0]), second=_field(kind, other))


def _homeless(rules: LogicalRules, kind: str, names: tuple[str, ...]) -> Iterator[Problem]:
    """A problem for each size of an axis that the mesh does not have."""
    fields: Mapping[str, int] = getattr(rules, kind)
    for axis, size in fields.items():
        if size != 1 and axis not in names and not (kind == "dcn" and size == -1):
            where, hint = _place(rules, kind, axis), suggest(axis, names)
            yield problem("MW666", where, field=_field(kind, axis), value=size, axis=axis, suggestion=hint)


def _slices_unsaid(rules: LogicalRules) -> Iterator[Problem]:
    for axis, size in rules.dcn.items():
        if size > 1:
            yield problem("MW662", _place(rules, "dcn", axis), field=_field("dcn", axis), value=size)


def _filled(
    rules: LogicalRules, kind: str, names: tuple[str, ...], count: int | None, what: str, machine: Machine | None
) -> tuple[dict[str, int | None], list[Problem]]:
    """The sizes by axis with -1 filled in, None where nothing says how many there are; and a product that is wrong."""
    fields: Mapping[str, int] = getattr(rules, kind)
    sizes: dict[str, int | None] = {name: fields.get(name, 1) for name in names}
    known = math.prod(size for size in sizes.values() if size and size > 0)
    filling = [name for name, size in sizes.items() if size == -1]
    for name in filling:
        sizes[name] = None if count is None else count // known
    wrong = count is not None and (count % known if filling else count != known)
    if not wrong or (kind == "dcn" and not fields):
        return sizes, []
    large = next((name for name, size in fields.items() if size > 1), next(iter(fields), names[0]))
    topology = str(machine.topology) if machine else ""
    numbers: dict[str, Any] = {
        "field": f"The product of {kind}_*_parallelism",
        "value": known,
        "count": count,
        "what": what,
    }
    return sizes, [problem("MW660", _place(rules, kind, large), **numbers, topology=topology, kind=kind)]


def _over(
    rules: LogicalRules, ici: Mapping[str, int | None], dcn: Mapping[str, int | None]
) -> dict[str, tuple[OverDim, ...]]:
    """Where axes lie across slices: nothing to say where the first axis alone does, as the default order has it."""
    crossing = [name for name in ici if (dcn[name] or 1) > 1]
    first = next((name for name in ici if (ici[name] or 1) * (dcn[name] or 1) > 1), None)
    if crossing == [first]:
        return {}
    both = [name for name in crossing if (ici[name] or 1) > 1]
    raise_errors(problem("MW663", _place(rules, "dcn", name), axis=name, dcn=dcn[name], ici=ici[name]) for name in both)
    return {name: (OverDim(name=SLICE, size=dcn[name]),) for name in crossing}


def parallelism(mesh: Mesh, machine: Machine | None) -> tuple[dict[str, int], dict[str, int]]:
    """How many devices each axis has inside a slice, and across slices.

    Raises ``PlanError`` for an axis that MaxText does not have (MW675) or that crosses slices other than with its major
    part (MW676).
    """
    raise_errors(
        problem("MW675", axis.place, axis=axis.name, suggestion=suggest(axis.name, MAXTEXT_AXES))
        for axis in mesh.axes or ()
        if axis.name not in MAXTEXT_AXES
    )
    sizes = {name: size or 1 for name, size in mesh.sizes.items()}
    slices = dict(machine.dims).get(SLICE, 1) if machine else 1
    if machine is None or slices == 1:
        return sizes, {}
    lies_in = device_numbers(mesh, machine) // (machine.num_devices // slices)
    dcn = {name: _crossed(lies_in, i) for i, name in enumerate(sizes)}
    if any(size % dcn[name] for name, size in sizes.items()) or not np.array_equal(_major(sizes, dcn), lies_in):
        found = ", ".join(f"{name} {count}" for name, count in dcn.items())
        raise PlanError([problem("MW676", mesh.place, slices=slices, found=found)])
    return {name: size // dcn[name] for name, size in sizes.items()}, dcn


def _crossed(lies_in: np.ndarray, dim: int) -> int:
    """How many slices one meets along a dim of the mesh; ``lies_in`` has the slice of each device."""
    return len(np.unique(np.moveaxis(lies_in, dim, 0).reshape(lies_in.shape[dim], -1)[:, 0]))


def _major(sizes: Mapping[str, int], dcn: Mapping[str, int]) -> np.ndarray:
    """The slice of each device, in an array shaped as the mesh, where each axis crosses slices with its major part."""
    found = np.zeros(tuple(sizes.values()), dtype=np.int64)
    for i, (name, size) in enumerate(sizes.items()):
        part = np.arange(size) // (size // dcn[name])
        found = found * dcn[name] + part.reshape([-1 if j == i else 1 for j in range(len(sizes))])
    return found
