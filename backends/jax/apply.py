"""Applies a plan: the same step, jitted with the plan's shardings on its arguments, results and tagged values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from jax._src.core import trace_state_clean

from ...dsl.errors import PlanError, problem
from ...dsl.given import plan_given
from ...dsl.plan import Plan
from .arguments import named_in_order, refuse_elsewhere, refuse_others
from .devices import are_here
from .layouts import step_layouts
from .planned import Planned, planned
from .shardings import device_mesh
from .trace import trace
from .workload import PyTree, Step


class Applied:
    """A step under a plan. Called like the step; ``lower``, ``trace`` and the rest are those of the jitted function.

    ``layouts`` are what the plan gives each tensor, ``traced`` the step as it was read, ``placed`` the plan's mesh over
    the devices, ``mesh`` the same as JAX's, ``notes`` what was done to the step beyond what the plan says.
    """

    def __init__(self, planned: Planned):
        self._jitted = planned.jitted
        self._nested = planned.nested
        self.layouts = planned.layouts
        self.traced = planned.layouts.traced
        self.placed = planned.placed
        self.mesh = planned.placed.mesh
        self.notes = planned.notes
        self.__name__ = getattr(self.traced.step, "__name__", "step")
        self.__wrapped__ = self.traced.step

    def __call__(self, *args: PyTree, **named: PyTree) -> Any:
        """What the step returns, laid out as the plan says. Raises ``PlanError`` for other arguments than planned."""
        if not self._runnable:
            raise PlanError([problem("MW406", what="A step")])
        return self._told(self._jitted if trace_state_clean() else self._nested, args, named)

    def lower(self, *args: PyTree, **named: PyTree) -> Any:
        """The lowered step, to compile for devices that may not be here: ``fast.lower(*args).compile()``."""
        return self._told(self._jitted.lower, args, named)

    def trace(self, *args: PyTree, **named: PyTree) -> Any:
        """The traced step, as ``jax.jit(...).trace``."""
        return self._told(self._jitted.trace, args, named)

    @cached_property
    def _runnable(self) -> bool:
        return are_here(self.mesh.devices.flat)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._jitted, name)

    def _told(self, call: Callable[..., Any], args: tuple[PyTree, ...], named: dict[str, PyTree]) -> Any:
        """``call(*args)``; where JAX refuses arguments that differ from those planned for, says how they differ."""
        if named:
            args = named_in_order(self.traced, args, named)
        try:
            return call(*args)
        except Exception as error:
            if isinstance(error, PlanError):
                raise
            refuse_others(self.traced, args)
            refuse_elsewhere(self.traced, args, self.mesh)
            raise


def apply(
    plan: Plan,
    step: Step,
    args: Sequence[PyTree],
    devices: Sequence[Any] | None = None,
    *,
    donate_argnums: int | Sequence[int] | None = None,
) -> Applied:
    """``step`` jitted with the plan's shardings.

    ``args`` is a tuple of pytrees of ``jax.ShapeDtypeStruct`` (or arrays). ``devices[i]`` is the device with number
    ``i``; by default those of the plan's topology, ahead-of-time ones where the machine is not here. Donation is that
    of ``step`` where it is jitted already, or ``donate_argnums``.

    A step that sends in chunks is compiled for TPUs with options, so that chunks may overlap (``notes`` say so). Called
    inside another function that JAX traces (``jit``, ``scan``, ``grad``, ...) it has those of the outermost ``jit``:
    give them there, ``jax.jit(outer, compiler_options={"xla_tpu_enable_async_all_to_all": "true"})``.

    Raises ``PlanError`` with every problem: an illegal or incomplete plan, another workload than it was made for.
    """
    layouts = step_layouts(plan, trace(step, args, plan_given(plan).remat))
    placed = device_mesh(plan, devices, layouts.device_assignments)
    return Applied(planned(layouts, placed, donate_argnums))
