"""Puts the bodies of called functions in the places of their calls. MLIR's own inliner leaves StableHLO's alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from ....planner.graph import Sharding
from .passes import run_passes
from .shardings import axes_by_dim, sharding_of
from .value_names import all_names, pass_names, with_names, without_names

LARGE = 20
"""The instructions, arguments among them, from which on XLA leaves a function that several calls share as it is."""


def inline_calls(module: Any, *, large: bool = True) -> None:
    """Inlines the calls of a module, in place; without ``large`` only those that XLA inlines before it partitions.

    What no call needs any more is dropped.
    """
    functions = {f.attributes["sym_name"].value: f for f in _operations(module) if f.name == "func.func"}
    if len(functions) == 1:
        return
    inliner = _Inliner(functions, large)
    with module.context:
        for name in functions:
            inliner.inline_in(name)
        run_passes("symbol-dce", module)


class _Inliner:
    """The functions of one module, each freed of calls once, before it is itself put anywhere."""

    def __init__(self, functions: dict[str, Any], large: bool):
        self.functions = functions
        self.large = large
        self.calls = {name: _calls(function) for name, function in functions.items()}
        self.uses = Counter(call.attributes["callee"].value for calls in self.calls.values() for call in calls)
        self.done: set[str] = set()

    def inline_in(self, name: str) -> None:
        """Inlines the calls in a function, and before that those in what it calls."""
        if name in self.done:
            return
        self.done.add(name)
        for call in self.calls[name]:
            callee = call.attributes["callee"].value
            if callee in self.functions:
                self.inline_in(callee)
                if self._is_inlined(callee):
                    _put(self.functions[callee].clone(), call)

    def _is_inlined(self, name: str) -> bool:
        return self.large or self.uses[name] <= 1 or _size(self.functions[name]) < LARGE


def _calls(function: Any) -> list[Any]:
    return [op for op in _nested(function) if op.name == "func.call"]


def _size(function: Any) -> int:
    """How many instructions HLO has for a function: its arguments and operations, and a tuple of several results."""
    block = function.regions[0].blocks[0]
    *operations, ret = block.operations
    return len(block.arguments) + len(operations) + (len(ret.operation.operands) > 1)


def _put(function: Any, call: Any) -> None:
    """Moves the operations of ``function``, a copy, before ``call`` and drops both."""
    block = function.regions[0].blocks[0]
    for number, (argument, operand) in enumerate(zip(block.arguments, call.operands, strict=True)):
        argument.replace_all_uses_with(_as_declared(function, number, operand, call))
    *body, ret = [op.operation for op in block.operations]
    caller = without_names(call.location)
    for op in body:
        for each in (op, *_nested(op)):
            names = all_names(each.location)
            each.location = with_names(ir.Location.callsite(without_names(each.location), [caller]), names)
        op.move_before(call)
    pass_names(call, ret.operands)
    for result, value in zip(call.results, list(ret.operands), strict=True):
        result.replace_all_uses_with(value)
    call.erase()
    function.erase()


def _as_declared(function: Any, number: int, operand: Any, call: Any) -> Any:
    """The operand, laid out as the function declares its argument where it does."""
    attributes = function.attributes
    declared = attributes["arg_attrs"][number] if "arg_attrs" in attributes else {}
    if "sdy.sharding" not in declared:
        return operand
    wanted, stated = declared["sdy.sharding"], sharding_of(operand)
    alike = stated is not None and stated == wanted
    if alike or _axes(operand, stated) == axes_by_dim(wanted):
        return operand
    with ir.InsertionPoint(call), call.location:
        return sdy.ShardingConstraintOp(operand, wanted).result


def _axes(value: Any, stated: Any) -> Sharding:
    return axes_by_dim(stated) if stated is not None else ((),) * len(value.type.shape)


def _operations(parent: Any) -> Iterator[Any]:
    for region in parent.regions:
        for block in region.blocks:
            for op in block.operations:
                yield op.operation


def _nested(parent: Any) -> Iterator[Any]:
    for op in _operations(parent):
        yield op
        if len(op.regions):
            yield from _nested(op)
