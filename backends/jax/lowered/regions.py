"""The parts of an operation that depend on what its regions are: a loop's body, branches, one device's program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from jaxlib.mlir import ir

from ....planner.graph import Sharding
from .attributes import reducer
from .device_groups import axes_of_groups
from .loops import trips
from .shardings import manual_axes

if TYPE_CHECKING:
    from .body import Body
    from .reading import Form

Parts = dict[str, Any]


def operation_parts(body: Body, operation: Any, form: Form) -> Parts:
    """Operands and attributes of any operation; a region of scalars is named by what it does."""
    found = form.with_reducers(reducer(operation.regions)) if len(operation.regions) else form.plain
    return {"operands": body.operands(operation), "attributes": found}


def _while(body: Body, operation: Any, form: Form) -> Parts:
    carry, begins = body.reading.results(operation.results, form), body.operands(operation)
    inside = body.inner(operation.regions[1].blocks[0], carry)
    outside = list(inside.captured)
    turns = trips(operation)
    return {
        "operands": (*begins, *map(body.number, outside)),
        "attributes": {} if turns is not None else {"trips_unknown": True},
        "bodies": (inside.graph(outside),),
        "trips": 1 if turns is None else turns,
    }


def _branches(body: Body, operation: Any, form: Form) -> Parts:
    """All branches have the same arguments: whatever one of them reads from outside."""
    branches = [body.inner(region.blocks[0]) for region in operation.regions]
    outside = list(dict.fromkeys(value for branch in branches for value in branch.captured))
    return {
        "operands": tuple(map(body.number, (*operation.operands, *outside))),
        "bodies": tuple(branch.graph(outside) for branch in branches),
    }


def _manual(body: Body, operation: Any, form: Form) -> Parts:
    manual = manual_axes(form.attributes["manual_axes"])
    entering = body.reading.per_value(form.attributes["in_shardings"])
    block = operation.regions[0].blocks[0]
    arguments = (
        body.reading.value(v.type, _left(sharding, manual))
        for v, sharding in zip(block.arguments, entering, strict=True)
    )
    inside = body.inner(block, arguments)
    outside = list(inside.captured)
    leaving = body.reading.per_value(form.attributes["out_shardings"])
    return {
        "operands": tuple(map(body.number, (*operation.operands, *outside))),
        "attributes": {"in_shardings": entering, "out_shardings": leaving, "manual_axes": manual},
        "bodies": (inside.graph(outside),),
    }


def _call(body: Body, operation: Any, form: Form) -> Parts:
    """An operation that StableHLO has no name for: the uneven all-to-all is a collective all the same."""
    parts = operation_parts(body, operation, form)
    if str(form.attributes["call_target_name"]).strip('"') != "ragged_all_to_all":
        return parts
    groups = ir.DictAttr(form.attributes["backend_config"])["replica_groups"]
    return {
        "kind": "ragged_all_to_all",
        "operands": parts["operands"],
        "attributes": axes_of_groups(groups, body.reading.mesh),
    }


def _left(sharding: Sharding, manual: tuple[str, ...]) -> Sharding:
    """What is left to split over inside of a region where some axes are manual."""
    return tuple(tuple(axis for axis in axes if axis.partition(":")[0] not in manual) for axes in sharding)


BUILDERS: Mapping[str, Callable[[Body, Any, Form], Parts]] = {
    "stablehlo.while": _while,
    "stablehlo.case": _branches,
    "stablehlo.if": _branches,
    "sdy.manual_computation": _manual,
    "stablehlo.custom_call": _call,
}
