"""What loops do not change: they take it from outside, as XLA has them when it propagates layouts.

JAX hands a loop everything that it reads, and takes it back unchanged. XLA reads such values where they stand, so that
they have one layout inside and outside, but for what has a stated one: that is opened again for each loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from .shardings import sharding_of
from .value_names import WHILE, all_names, with_names, without_names

RETURN, CONSTRAINT = "stablehlo.return", "sdy.sharding_constraint"


def take_from_outside(module: Any) -> None:
    """Lets every loop of a module, in place, read what its turns hand on unchanged from outside of it."""
    with module.context:
        for loop in list(_loops(module)):
            unchanged = _unchanged(loop)
            if unchanged and "sdy.sharding" not in loop.attributes:
                _take(loop, unchanged)


def open_for_loops(module: Any) -> None:
    """Puts an open constraint before a loop on whatever it reads from outside that has a stated layout, in place."""
    with module.context:
        for loop in list(_loops(module)):
            for value in _read_from_outside(loop):
                stated = sharding_of(value)
                if stated is not None and ir.RankedTensorType(value.type).rank:
                    _open(loop, value, stated)


def _loops(operation: Any) -> Iterator[Any]:
    """The loops in an operation, inner ones first."""
    for block in _blocks(operation):
        for inner in [each.operation for each in block.operations]:
            if len(inner.regions):
                yield from _loops(inner)
            if inner.name == WHILE:
                yield inner


def _blocks(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        yield from region.blocks


def _last(block: Any) -> Any:
    operations = block.operations
    return operations[len(operations) - 1].operation


def _unchanged(loop: Any) -> list[int]:
    """The positions of a loop's state that its body returns as they came."""
    body = loop.regions[1].blocks[0]
    pairs = zip(body.arguments, _last(body).operands, strict=True)
    return [position for position, (before, after) in enumerate(pairs) if after == before]


def _take(loop: Any, unchanged: Sequence[int]) -> None:
    """Replaces a loop by one without this of its state."""
    kept = [position for position in range(len(loop.operands)) if position not in unchanged]
    for position in unchanged:
        for block in _blocks(loop):
            block.arguments[position].replace_all_uses_with(loop.operands[position])
        loop.results[position].replace_all_uses_with(loop.operands[position])
    made = ir.Operation.create(
        WHILE,
        results=[loop.results[position].type for position in kept],
        operands=[loop.operands[position] for position in kept],
        attributes={each.name: each.attr for each in loop.attributes},
        regions=len(loop.regions),
        loc=_location(loop, kept),
        ip=ir.InsertionPoint(loop),
    )
    for region, new in zip(loop.regions, made.regions, strict=True):
        block = region.blocks[0]
        block.append_to(new)
        for position in reversed(unchanged):
            block.erase_argument(position)
    _return_only(made.regions[1].blocks[0], kept)
    for position, result in zip(kept, made.results, strict=True):
        loop.results[position].replace_all_uses_with(result)
    loop.erase()


def _location(loop: Any, kept: Sequence[int]) -> Any:
    """A loop's location, with the names of the results that are left where these now stand."""
    names = all_names(loop.location)
    left = [name._replace(number=now) for now, before in enumerate(kept) for name in names if name.number == before]
    return with_names(without_names(loop.location), left)


def _return_only(block: Any, kept: Sequence[int]) -> None:
    old = _last(block)
    values = [old.operands[position] for position in kept]
    ir.Operation.create(RETURN, operands=values, loc=old.location, ip=ir.InsertionPoint(old))
    old.erase()


def _read_from_outside(loop: Any) -> list[Any]:
    """The values from outside of a loop that something in it reads, in the order in which they are read."""
    found: dict[Any, None] = {}
    _collect(loop, [], found)
    return list(found)


def _collect(operation: Any, inside: list[Any], found: dict[Any, None]) -> None:
    for block in _blocks(operation):
        here = [*inside, block]
        for inner in block.operations:
            for value in inner.operation.operands:
                if not _is_made_in(value, here):
                    found.setdefault(value)
            _collect(inner.operation, here, found)


def _is_made_in(value: Any, blocks: Sequence[Any]) -> bool:
    owner = value.owner
    block = owner if isinstance(owner, ir.Block) else owner.operation.block
    return block in blocks


def _open(loop: Any, value: Any, stated: Any) -> None:
    rank = ir.RankedTensorType(value.type).rank
    mesh = sdy.TensorShardingAttr(stated).mesh_or_ref
    dims = [sdy.DimensionShardingAttr.get([], is_closed=False)] * rank
    constraint = ir.Operation.create(
        CONSTRAINT,
        results=[value.type],
        operands=[value],
        attributes={"sharding": sdy.TensorShardingAttr.get(mesh, dims)},
        loc=without_names(loop.location),
        ip=ir.InsertionPoint(loop),
    )
    for use in list(value.uses):
        if _is_within(use.owner.operation, loop):
            use.owner.operation.operands[use.operand_number] = constraint.results[0]


def _is_within(operation: Any, loop: Any) -> bool:
    parent = operation.parent
    while parent is not None and parent.operation.name != "builtin.module":
        if parent.operation == loop:
            return True
        parent = parent.operation.parent
    return False
