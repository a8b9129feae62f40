"""Puts the bodies of called functions in the places of their calls. MLIR's own inliner leaves StableHLO's alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import sdy


def inline_calls(module: Any) -> None:
    """Inlines every ``func.call`` of a module, in place. What no call needs any more is dropped."""
    functions = {f.attributes["sym_name"].value: f for f in _operations(module) if f.name == "func.func"}
    inliner = _Inliner(functions)
    for name in functions:
        inliner.inline_in(name)
    with module.context:
        passmanager.PassManager.parse("builtin.module(symbol-dce)").run(module)


class _Inliner:
    """The functions of one module, each freed of calls once, before it is itself put anywhere."""

    def __init__(self, functions: dict[str, Any]):
        self.functions = functions
        self.done: set[str] = set()

    def inline_in(self, name: str) -> None:
        if name in self.done:
            return
        self.done.add(name)
        for call in [op for op in _nested(self.functions[name]) if op.name == "func.call"]:
            callee = call.attributes["callee"].value
            if callee in self.functions:
                self.inline_in(callee)
                _put(self.functions[callee].clone(), call)


def _put(function: Any, call: Any) -> None:
    """Moves the operations of ``function``, a copy, before ``call`` and drops both."""
    block = function.regions[0].blocks[0]
    for number, (argument, operand) in enumerate(zip(block.arguments, call.operands, strict=True)):
        argument.replace_all_uses_with(_as_declared(function, number, operand, call))
    *body, ret = [op.operation for op in block.operations]
    for op in body:
        op.location = ir.Location.callsite(op.location, [call.location])
        op.move_before(call)
    for result, value in zip(call.results, list(ret.operands), strict=True):
        result.replace_all_uses_with(value)
    call.erase()
    function.erase()


def _as_declared(function: Any, number: int, operand: Any, call: Any) -> Any:
    """The operand, laid out as the function declares its argument where it does."""
    if "arg_attrs" not in function.attributes:
        return operand
    declared = function.attributes["arg_attrs"][number]
    if "sdy.sharding" not in declared:
        return operand
    with ir.InsertionPoint(call), call.location:
        return sdy.ShardingConstraintOp(operand, declared["sdy.sharding"]).result


def _operations(parent: Any) -> Iterator[Any]:
    for region in parent.regions:
        for block in region.blocks:
            for op in block.operations:
                yield op.operation


def _nested(parent: Any) -> Iterator[Any]:
    for op in _operations(parent):
        yield op
        yield from _nested(op)
