"""Shardy's passes over a lowered step: layouts propagated to every value, and the loop nest of every operation."""

from __future__ import annotations

from typing import Any

from .captures import open_for_loops, take_from_outside
from .inline import inline_calls
from .order import in_order_of_use
from .passes import run_passes
from .rewrites.simplify import simplify

PROPAGATION = "sdy-propagation-pipeline"
CONSTANTS = (
    "symbol-dce,sdy-lift-inlined-meshes,sdy-remove-size-one-axes,sdy-constant-or-scalar-splitter,symbol-dce,"
    "sdy-manual-axes-cleanup,func.func(sdy-constant-or-scalar-merger)"
)
"""What of the propagation has nothing to do with layouts."""

RULES = "func.func(sdy-populate-op-sharding-rules)"


def propagated(lowered: Any, *, tpu: bool = True) -> Any:
    """A copy of a lowered step's module (``jax.stages.Lowered``) as it stands after Shardy's propagation.

    What only the TPUs' compiler rewrites is rewritten too if ``tpu``. Every operation that Shardy knows has its
    ``sdy.sharding_rule``.
    """
    copy = lowered.compiler_ir("stablehlo").operation.clone()  # JAX keeps the original to compile
    prepare(copy, tpu=tpu)
    propagate(copy)
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
        if not module.verify():
            raise ValueError("The rewritten module is not valid.")


def propagate(module: Any, *, has_loops: bool = True) -> None:
    """Propagates layouts over a prepared module, in place, then inlines the calls that were left until then.

    ``has_loops`` says whether there may be loops in it: they are looked for.
    """
    if has_loops:
        open_for_loops(module)
    _finish(module, PROPAGATION)


def propagate_only(module: Any, *, has_loops: bool = True) -> None:
    """Propagates layouts over a prepared module, in place, and does nothing else to it."""
    if has_loops:
        open_for_loops(module)
    with module.context:
        run_passes(PROPAGATION, module)


def split_constants(module: Any) -> None:
    """Does to a prepared module what propagation does, but for layouts: those that it has stay where they are."""
    _finish(module, CONSTANTS)


def _finish(module: Any, passes: str) -> None:
    with module.context:
        run_passes(passes, module)
        inline_calls(module)
        run_passes(RULES, module)


def main_function(module: Any) -> Any:
    """The function that a module starts with."""
    return next(op.operation for op in module.regions[0].blocks[0].operations if _is_main(op.operation))


def _is_main(operation: Any) -> bool:
    return bool(operation.name == "func.func" and operation.attributes["sym_name"].value == "main")
