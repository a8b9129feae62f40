"""Which of a step's computed values an operation makes: written on the operation's location, around all else.

So it changes nothing of the program, and goes where the operation goes. An operation of several results may make
several named values, and one of one result that stands for others that computed the same makes theirs too: of ``a + b``
and ``b + a`` one.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxlib.mlir import ir

from ....planner.operands import operand_path

PREFIX, WHILE, SWAPPED, PAIR = "meshwright.value:", "stablehlo.while", "~", 2
NOTES, READS = "mhlo.frontend_attributes", "meshwright.reads"
"""Where an operation that took the place of several has the paths of its operands."""


class Name(NamedTuple):
    """A path, and the number of the result that it names. Where what has this path reads its two operands in the other
    order, it is swapped.
    """

    number: int
    path: str
    is_swapped: bool = False


def all_names(location: Any) -> tuple[Name, ...]:
    """The names of the results that an operation at this location makes, of each its own first."""
    if not isinstance(location, ir.NameLoc) or not location.name_str.startswith(PREFIX):
        return ()
    said = (each.partition("=") for each in location.name_str.removeprefix(PREFIX).split(" "))
    return tuple(Name(int(place.rstrip(SWAPPED)), path, place.endswith(SWAPPED)) for place, _, path in said)


def value_names(location: Any) -> dict[int, str]:
    """The paths of the values that an operation at this location makes, by the number of its result."""
    return {name.number: name.path for name in reversed(all_names(location))}


def reads(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """The paths of the operands of an operation with these attributes, as far as they are noted: "" has none."""
    notes = attributes.get(NOTES)
    return tuple(notes[READS].value.split(" ")) if notes is not None and READS in notes else ()


def reading(operands: Sequence[tuple[Any, int]]) -> dict[str, Any]:
    """What notes of an operation whose operands it reads in the place of others: operations, and which of theirs."""
    paths = [_read(operation, place) for operation, place in operands]
    return {NOTES: _noted(paths)} if any(paths) else {}


def _noted(paths: Iterable[str]) -> Any:
    return ir.DictAttr.get({READS: ir.StringAttr.get(" ".join(paths))})


def _read(operation: Any, place: int) -> str:
    noted = reads(operation.attributes)
    if noted:
        return noted[place] if place < len(noted) else ""
    own = next((name for name in all_names(operation.location) if not name.number), None)
    return "" if own is None else operand_path(own.path, 1 - place if own.is_swapped and place < PAIR else place)


def without_names(location: Any) -> Any:
    """The location less the names of values."""
    return location.child_loc if all_names(location) else location


def with_names(location: Any, names: Collection[Name]) -> Any:
    """The location, without names before, with these."""
    if not names:
        return location
    text = " ".join(f"{number}{SWAPPED if is_swapped else ''}={path}" for number, path, is_swapped in names)
    return ir.Location.name(PREFIX + text, location)


def name_value(value: Any, path: str) -> None:
    """Writes a path on the operation that makes ``value``; the first one that it is given stays."""
    if not isinstance(value.owner, ir.Block):
        _name(value.owner.operation, Name(value.result_number, path))


def name_carried(value: Any, path: str) -> None:
    """The same of what a loop carries, on the loop: where ``value`` is the argument of its body, or its result."""
    if isinstance(value.owner, ir.Block):
        _name(value.owner.owner.operation, Name(value.arg_number, path))
    elif value.owner.name == WHILE:
        name_value(value, path)


def _name(operation: Any, name: Name, *, beside: bool = False) -> None:
    names = all_names(operation.location)
    if all(each.number != name.number or (beside and each.path != name.path) for each in names):
        operation.location = with_names(without_names(operation.location), (*names, name))


def name_once(operations: Iterable[Any], shared: Container[str]) -> None:
    """Leaves each path, but for ``shared`` ones, to the first operation that has it: constants are copied."""
    seen: set[str] = set()
    for operation in operations:
        names = all_names(operation.location)
        kept = [name for name in names if name.path in shared or name.path not in seen]
        if len(kept) < len(names):
            operation.location = with_names(without_names(operation.location), kept)
        seen.update(name.path for name in kept)


def pass_names(operation: Any, values: Any) -> None:
    """Names ``values``, which take the place of an operation's results, as those are, if they have no names. Of what
    has not two operands none are swapped.
    """
    names = all_names(operation.location)
    if not names:
        return
    bare = [not isinstance(v.owner, ir.Block) and v.result_number not in value_names(v.owner.location) for v in values]
    for name in names:
        value = values[name.number]
        if bare[name.number] and operation.results[name.number].type == value.type:
            is_swapped = name.is_swapped and len(value.owner.operands) == PAIR
            _name(value.owner.operation, Name(value.result_number, name.path, is_swapped), beside=True)


def swap_names(operation: Any) -> None:
    """Says that an operation's two operands were exchanged, of its names and of what is noted of them."""
    names = [name._replace(is_swapped=not name.is_swapped) for name in all_names(operation.location)]
    operation.location = with_names(without_names(operation.location), names)
    if noted := reads(operation.attributes):
        operation.attributes[NOTES] = _noted(reversed(noted))


def join_names(operation: Any, same: Any) -> None:
    """Gives an operation the names of another that computes the same of the same operands, beside its own; it may read
    them in the other order. Where the other's paths are not those of its operands, the operation's own are noted, if it
    has any.
    """
    is_swapped = list(operation.operands) != list(same.operands)
    if (noted := reads(operation.attributes)) and not reads(same.attributes):
        own = reading([(same, place) for place in range(len(same.operands))])
        same.attributes[NOTES] = own.get(NOTES, _noted(reversed(noted) if is_swapped else noted))
    for name in all_names(operation.location):
        _name(same, Name(name.number, name.path, name.is_swapped != is_swapped), beside=True)
