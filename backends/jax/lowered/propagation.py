"""Shardy's passes over a lowered step: layouts propagated to every value, and the loop nest of every operation."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import passmanager

from .inline import inline_calls
from .order import in_order_of_use
from .rewrites.simplify import simplify

PROPAGATION = "sdy-propagation-pipeline"
RULES = "func.func(sdy-populate-op-sharding-rules)"


def propagated(lowered: Any, *, tpu: bool = True) -> Any:
    """A copy of a lowered step's module (``jax.stages.Lowered``) as it stands after Shardy's propagation.

    What propagation finds depends on what it is given: so calls, operations and their order are first made those that
    XLA propagates over, with what only the TPUs' compiler rewrites if ``tpu``. The calls that it leaves are inlined
    afterwards. Every operation that Shardy knows has its ``sdy.sharding_rule``.
    """
    module = lowered.compiler_ir("stablehlo").operation
    with module.context:
        copy = module.clone()  # JAX keeps the original to compile
        inline_calls(copy, large=False)
        simplify(copy, tpu=tpu)
        in_order_of_use(copy)
        _run(PROPAGATION, copy)
        inline_calls(copy)
        _run(RULES, copy)
    return copy


def _run(passes: str, module: Any) -> None:
    passmanager.PassManager.parse(f"builtin.module({passes})").run(module)


def main_function(module: Any) -> Any:
    """The function that a module starts with."""
    return next(op.operation for op in module.regions[0].blocks[0].operations if _is_main(op.operation))


def _is_main(operation: Any) -> bool:
    return bool(operation.name == "func.func" and operation.attributes["sym_name"].value == "main")
