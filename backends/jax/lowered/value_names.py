"""Which of a step's computed values an operation makes: written on the operation's location, around all else.

So it changes nothing of the program, and goes where the operation goes. An operation of several results may make
several named values.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from jaxlib.mlir import ir

PREFIX, WHILE = "meshwright.value:", "stablehlo.while"
NOTES, EXCHANGED = "mhlo.frontend_attributes", "meshwright.exchanged"
"""Where a product that took the place of its transpose has the path of that, whose operands it has exchanged."""


def value_names(location: Any) -> dict[int, str]:
    """The paths of the values that an operation at this location makes, by the number of its result."""
    if not isinstance(location, ir.NameLoc) or not location.name_str.startswith(PREFIX):
        return {}
    said = (each.partition("=") for each in location.name_str.removeprefix(PREFIX).split(" "))
    return {int(number): path for number, _, path in said}


def exchanged(attributes: Mapping[str, Any]) -> str | None:
    """The path of the product whose operands one with these attributes has exchanged."""
    notes = attributes.get(NOTES)
    return notes[EXCHANGED].value if notes is not None and EXCHANGED in notes else None


def without_names(location: Any) -> Any:
    """The location less the names of values."""
    return location.child_loc if value_names(location) else location


def with_names(location: Any, names: Mapping[int, str]) -> Any:
    """The location, without names before, with these."""
    if not names:
        return location
    text = " ".join(f"{number}={path}" for number, path in names.items())
    return ir.Location.name(PREFIX + text, location)


def name_value(value: Any, path: str) -> None:
    """Writes a path on the operation that makes ``value``; the first one that it is given stays."""
    if not isinstance(value.owner, ir.Block):
        _name(value.owner.operation, value.result_number, path)


def name_carried(value: Any, path: str) -> None:
    """The same of what a loop carries, on the loop: where ``value`` is the argument of its body, or its result."""
    if isinstance(value.owner, ir.Block):
        _name(value.owner.owner.operation, value.arg_number, path)
    elif value.owner.name == WHILE:
        name_value(value, path)


def _name(operation: Any, number: int, path: str) -> None:
    names = value_names(operation.location)
    if number not in names:
        operation.location = with_names(without_names(operation.location), names | {number: path})


def name_once(operations: Iterable[Any], shared: Container[str]) -> None:
    """Leaves each path, but for ``shared`` ones, to the first operation that has it: constants are copied."""
    seen: set[str] = set()
    for operation in operations:
        names = value_names(operation.location)
        kept = {number: path for number, path in names.items() if path in shared or path not in seen}
        if len(kept) < len(names):
            operation.location = with_names(without_names(operation.location), kept)
        seen.update(kept.values())


def pass_names(operation: Any, values: Any) -> None:
    """Names ``values``, which take the place of an operation's results, as those are."""
    for number, path in value_names(operation.location).items():
        if operation.results[number].type == values[number].type:
            name_value(values[number], path)
