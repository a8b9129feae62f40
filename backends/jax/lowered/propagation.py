"""Shardy's passes over a lowered step: layouts propagated to every value, and the loop nest of every operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .attributes import note_reducers
from .captures import open_for_loops, take_from_outside
from .collectives import make_collectives
from .inline import inline_calls
from .order import in_order_of_use
from .passes import Passes, run_passes
from .rewrites.simplify import NESTING, nested, simplify
from .windows import RULES, size_windows

PROPAGATION = "sdy-propagation-pipeline"
CONSTANTS = (
    "symbol-dce,sdy-lift-inlined-meshes,sdy-remove-size-one-axes,sdy-constant-or-scalar-splitter,symbol-dce,"
    "sdy-manual-axes-cleanup,func.func(sdy-constant-or-scalar-merger)"
)
"""What of the propagation has nothing to do with layouts."""

SPLIT = f"symbol-dce,sdy-lift-inlined-meshes,sdy-constant-or-scalar-splitter,symbol-dce,{RULES}"
"""What of the propagation is the same whatever the layouts: each that reads a constant has one of its own."""

TAKEN = (
    "sdy-lift-inlined-meshes",
    "sdy-remove-size-one-axes",
    "sdy-propagate-sharding-from-func-to-call",
    "sdy-manual-axes-cleanup",
    "sdy-add-data-flow-edges",
    "sdy-flatten-call-graph",
    "sdy-import-func-calls{add-data-flow-edges-on-named-computations=true}",
    "symbol-dce",
    "sdy-apply-sharding-constraints",
    "sdy-sharding-group-import",
    "sdy-pre-order-funcs",
    "sdy-user-priority-propagate{keep-sharding-rules=true propagation-strategy=aggressive "
    "run-op-priority-propagation=true}",
    "sdy-export-named-computations",
    "sdy-propagate-to-func-results",
    "sdy-unflatten-call-graph{dedup-functions-fully=false}",
)
"""What of the propagation finds the layouts."""

SPREAD = (
    *TAKEN,
    "symbol-dce",
    "sdy-insert-func-call-reshards",
    "func.func(sdy-constant-or-scalar-merger,sdy-sink-data-flow-edges)",
    "sdy-remove-sharding-groups",
    "func.func(sdy-sharding-constraint-to-reshard)",
    "sdy-update-non-divisible-input-output-shardings",
    "sdy-remove-sub-axes-in-input-output-shardings",
    "sdy-close-shardings",
    "func.func(sdy-insert-explicit-reshards{enable-full-version=false})",
    "canonicalize{region-simplify=aggressive top-down=false enable-patterns=sdy-collective}",
)
"""The rest of ``PROPAGATION``, pass by pass as it prints them: what a module that is split goes through for a plan."""

SPREAD_ALL = SPREAD[:-2]
"""The same where ``make_collectives`` does the rest: on TPU7x."""

OF_SEVERAL = frozenset(
    each
    for each in SPREAD
    if any(word in each for word in ("symbol-dce", "-func-", "-call-", "-funcs", "-named-computations", "lift-inlined"))
)
"""The passes that change nothing where there is but one function, and one mesh that all layouts name."""


def propagated(lowered: Any, *, tpu: bool = True, reshards_all: bool = False) -> Any:
    """A copy of a lowered step's module (``jax.stages.Lowered``) as it stands after Shardy's propagation.

    What only the TPUs' compiler rewrites is rewritten too if ``tpu``, what only TPU7x's reshards is resharded if it
    ``reshards_all``. Every operation that Shardy knows has its ``sdy.sharding_rule``.
    """
    copy = lowered.compiler_ir("stablehlo").operation.clone()  # JAX keeps the original to compile
    prepare(copy, tpu=tpu)
    propagate(copy, reshards_all=reshards_all)
    return copy


def prepare(module: Any, *, tpu: bool) -> None:
    """Makes a module's calls, operations and their order, in place, those that XLA propagates over.

    What propagation finds depends on what it is given.
    """
    with module.context:
        inline_calls(module, large=False)
        simplify(module, tpu=tpu)
        in_order_of_use(module)
        take_from_outside(module)
        if tpu:
            size_windows(module)
        if not module.verify():
            raise ValueError("The rewritten module is not valid.")


def split(module: Any) -> None:
    """Does to a prepared module, in place, what propagation begins with whatever the layouts, and notes what regions
    do that no layouts reach.
    """
    with module.context:
        run_passes(SPLIT, module)
        for operation, name in nested(module):
            if len(operation.regions) and name not in NESTING:
                note_reducers(operation)


def propagate_split(
    module: Any,
    passes: Passes,
    *,
    has_loops: bool = True,
    convolves: bool = True,
    inlines: bool = False,
    reshards_all: bool = False,
) -> None:
    """Propagates layouts over a prepared and ``split`` module, in place; ``passes`` are those of its context.

    ``has_loops`` and ``convolves`` say what may be in it: these are looked for. Calls that were left until then stay,
    unless it ``inlines`` them, whose operations then have names of their own.
    """
    if has_loops:
        open_for_loops(module)
    spread = SPREAD_ALL if reshards_all else SPREAD
    if inlines:
        _finish(module, ",".join(spread), reshards_all=reshards_all)
        return
    with module.context:
        passes.run(_needed(module, spread if reshards_all else (*spread, RULES)), module)
        if reshards_all:
            make_collectives(module, lambda each: passes.run(each, module), convolves=convolves)
            passes.run(RULES, module)


def propagate(module: Any, *, reshards_all: bool = False) -> None:
    """Propagates layouts over a prepared module, in place, then inlines the calls that were left until then."""
    open_for_loops(module)
    _finish(module, ",".join((SPLIT, *SPREAD_ALL)) if reshards_all else PROPAGATION, reshards_all=reshards_all)


def propagate_only(module: Any, passes: Passes, *, has_loops: bool = True) -> None:
    """As ``propagate_split``, in place, and does nothing else to the module."""
    if has_loops:
        open_for_loops(module)
    with module.context:
        passes.run(_needed(module, (*TAKEN, "func.func(sdy-sink-data-flow-edges)")), module)


def _needed(module: Any, passes: Sequence[str]) -> str:
    """The passes that may change a split module: fewer where it is one function over one mesh."""
    simple = is_simple(module)
    return ",".join(each for each in passes if not (simple and each in OF_SEVERAL))


def is_simple(module: Any) -> bool:
    """Whether a module is one function over one mesh."""
    kinds = sorted(op.operation.name for op in module.regions[0].blocks[0].operations)
    return kinds in (["func.func"], ["func.func", "sdy.mesh"])


def split_constants(module: Any) -> None:
    """Does to a prepared module what propagation does, but for layouts: those that it has stay where they are."""
    _finish(module, CONSTANTS)


def _finish(module: Any, passes: str, *, reshards_all: bool = False) -> None:
    with module.context:
        run_passes(passes, module)
        if reshards_all:
            make_collectives(module, lambda each: run_passes(each, module))
        inline_calls(module)
        run_passes(RULES, module)


def functions(module: Any) -> dict[str, Any]:
    """The functions of a module by name."""
    operations = (op.operation for op in module.regions[0].blocks[0].operations)
    return {op.attributes["sym_name"].value: op for op in operations if op.name == "func.func"}


def main_function(module: Any) -> Any:
    """The function that a module starts with."""
    return functions(module)["main"]
