"""The rules, by the kind of operation that they rewrite, and the pass that applies them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jaxlib.mlir import ir

from . import algebra, scatters, whole_scatters
from .branches import CASE, takes_known
from .common import without_repetition
from .convolutions import CONVOLUTION, unreversed
from .expanded import EXPANDED, number_by_number
from .products import DOT, transpose
from .ragged import ragged_dot
from .reshapes import ELEMENTWISE, broadcast, reshape, sink
from .rewriter import BROADCAST, CONSTANT, RESHAPE, Rewriter, splat_of
from .slices import whole_gather, whole_slice, whole_update
from .top_k import top_k
from .vectors import by_vector

NESTING = ("func.func", "stablehlo.while", "stablehlo.case", "stablehlo.if", "sdy.manual_computation")

ALGEBRA: Mapping[str, Callable[[Any, Rewriter], bool]] = {
    **dict.fromkeys(algebra.NEUTRAL, algebra.combine),
    "stablehlo.subtract": algebra.subtract,
    "stablehlo.divide": algebra.divide,
    "stablehlo.convert": algebra.convert,
    "stablehlo.select": algebra.select,
    "stablehlo.reduce": algebra.reduce,
    "stablehlo.reverse": algebra.reverse,
    "chlo.square": algebra.square,
}

STRUCTURE: Mapping[str, Callable[[Any, Rewriter], object]] = {
    BROADCAST: broadcast,
    RESHAPE: reshape,
    "stablehlo.scatter": whole_scatters.scatter,
    "stablehlo.transpose": transpose,
    "stablehlo.gather": whole_gather,
    "stablehlo.dynamic_slice": whole_slice,
    "stablehlo.dynamic_update_slice": whole_update,
    "chlo.top_k": top_k,
    "chlo.ragged_dot": ragged_dot,
    **dict.fromkeys(EXPANDED, number_by_number),
    **dict.fromkeys(ELEMENTWISE, sink),
}

OF_TPU: Mapping[str, Callable[[Any, Rewriter], object]] = {
    "stablehlo.scatter": scatters.scatter,
    DOT: by_vector,
    CONVOLUTION: unreversed,
}

UNIFORM = frozenset({CONSTANT, BROADCAST, RESHAPE})
"""Only these make what is known to be one number everywhere."""

CHANGING = UNIFORM | {algebra.CONVERT, algebra.SCATTER, algebra.DIVIDE}
"""Without any of these among what it reads no rule applies to an elementwise operation, a conversion aside."""

READING = ELEMENTWISE | algebra.FOLDED.keys()
"""Whether a rule applies to these hangs on what kinds of operations make what they read."""


def simplify(module: Any, *, tpu: bool) -> None:
    """Rewrites a module in place, as the compilers do, and as the one for TPUs does beside."""
    structure = {**STRUCTURE, **OF_TPU} if tpu else STRUCTURE
    with module.context, ir.Location.unknown():
        without_repetition(module)
        ruled = algebra.FOLDED.keys() | ALGEBRA.keys() | structure.keys()
        found = list(nested(module))
        while takes_known(found):
            found = list(nested(module))
        for operation, name in found:
            if name in ruled:
                _rewrite(operation, name, structure)
        without_repetition(module, within=NESTING)


def constants_ahead(module: Any) -> None:
    """Does of ``simplify``, in place, what it does to constants of constants and to quotients by them; nothing where
    there are conditionals, of which it takes only branches that are known before.
    """
    with module.context, ir.Location.unknown():
        found = list(nested(module))
        for operation, name in () if any(name == CASE for _, name in found) else found:
            if name not in algebra.FOLDED or algebra.fold(operation, Rewriter()):
                continue
            if name == algebra.DIVIDE and splat_of(operation.operands[1]):
                algebra.divide(operation, Rewriter())


def _rewrite(operation: Any, name: str, structure: Mapping[str, Callable[[Any, Rewriter], object]]) -> None:
    """Applies the rules to an operation of this name, then to those that they make of it."""
    pending = [(operation, name)]
    while pending:
        current, name = pending.pop()
        of = _makers(current) if name in READING else set[str]()
        if name in ELEMENTWISE and name != algebra.CONVERT and of.isdisjoint(CHANGING):
            continue
        rewriter = Rewriter()
        done = (name in algebra.FOLDED and of <= UNIFORM and algebra.fold(current, rewriter)) or (
            name in ALGEBRA and ALGEBRA[name](current, rewriter)
        )
        if not done and name in structure and (RESHAPE in of or name not in ELEMENTWISE):
            structure[name](current, rewriter)
        pending += [(made, made.name) for made in reversed(rewriter.made)]


def _makers(operation: Any) -> set[str]:
    """What kinds of operations make the operands of one."""
    owners = [value.owner for value in operation.operands]
    return {owner.name for owner in owners if type(owner) is not ir.Block}


def nested(parent: Any) -> Iterator[tuple[Any, str]]:
    """The operations of functions, loops, branches and manual regions, each with its name; not those that reductions
    are made of.
    """
    for region in parent.regions:
        for block in region.blocks:
            for op in block.operations:
                operation = op.operation
                name = operation.name
                yield operation, name
                if name in NESTING:
                    yield from nested(operation)
