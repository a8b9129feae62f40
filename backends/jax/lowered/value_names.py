"""Which of a step's computed values an operation makes: written on the operation's location, around all else.

So it changes nothing of the program, and goes where the operation goes. An operation of several results may make
several named values, and one of one result that stands for others that computed the same makes theirs too.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any

from jaxlib.mlir import ir

from ....planner.operands import operand_path

PREFIX, WHILE = "meshwright.value:", "stablehlo.while"
NOTES, READS = "mhlo.frontend_attributes", "meshwright.reads"
"""Where an operation that took the place of several has the paths of its operands."""


def all_names(location: Any) -> tuple[tuple[int, str], ...]:
    """The numbers of the results that an operation at this location makes with the paths of each, its own first."""
    if not isinstance(location, ir.NameLoc) or not location.name_str.startswith(PREFIX):
        return ()
    said = (each.partition("=") for each in location.name_str.removeprefix(PREFIX).split(" "))
    return tuple((int(number), path) for number, _, path in said)


def value_names(location: Any) -> dict[int, str]:
    """The paths of the values that an operation at this location makes, by the number of its result."""
    return dict(reversed(all_names(location)))


def reads(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """The paths of the operands of an operation with these attributes, as far as they are noted: "" has none."""
    notes = attributes.get(NOTES)
    return tuple(notes[READS].value.split(" ")) if notes is not None and READS in notes else ()


def reading(operands: Sequence[tuple[Any, int]]) -> dict[str, Any]:
    """What notes of an operation whose operands it reads in the place of others: operations, and which of theirs."""
    text = " ".join(_read(operation, place) for operation, place in operands)
    return {NOTES: ir.DictAttr.get({READS: ir.StringAttr.get(text)})} if text.strip() else {}


def _read(operation: Any, place: int) -> str:
    noted, path = reads(operation.attributes), value_names(operation.location).get(0)
    if noted:
        return noted[place] if place < len(noted) else ""
    return "" if path is None else operand_path(path, place)


def without_names(location: Any) -> Any:
    """The location less the names of values."""
    return location.child_loc if all_names(location) else location


def with_names(location: Any, names: Collection[tuple[int, str]]) -> Any:
    """The location, without names before, with these: numbers of results and paths."""
    if not names:
        return location
    text = " ".join(f"{number}={path}" for number, path in names)
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


def _name(operation: Any, number: int, path: str, *, beside: bool = False) -> None:
    names = all_names(operation.location)
    if (number, path) not in names if beside else number not in dict(names):
        operation.location = with_names(without_names(operation.location), (*names, (number, path)))


def name_once(operations: Iterable[Any], shared: Container[str]) -> None:
    """Leaves each path, but for ``shared`` ones, to the first operation that has it: constants are copied."""
    seen: set[str] = set()
    for operation in operations:
        names = all_names(operation.location)
        kept = [(number, path) for number, path in names if path in shared or path not in seen]
        if len(kept) < len(names):
            operation.location = with_names(without_names(operation.location), kept)
        seen.update(path for _, path in kept)


def pass_names(operation: Any, values: Any) -> None:
    """Names ``values``, which take the place of an operation's results, as those are, if they have no names."""
    names = all_names(operation.location)
    if not names:
        return
    bare = [not isinstance(v.owner, ir.Block) and v.result_number not in value_names(v.owner.location) for v in values]
    for number, path in names:
        if bare[number] and operation.results[number].type == values[number].type:
            _name(values[number].owner.operation, values[number].result_number, path, beside=True)


def join_names(operation: Any, same: Any) -> None:
    """Gives an operation the names of another that computes the same of the same operands, beside its own. Where the
    other's paths are not those of its operands, the operation's own are noted, if it has any.
    """
    if reads(operation.attributes) and not reads(same.attributes):
        own = reading([(same, place) for place in range(len(same.operands))])
        same.attributes[NOTES] = own.get(NOTES, operation.attributes[NOTES])
    for number, path in all_names(operation.location):
        _name(same, number, path, beside=True)
