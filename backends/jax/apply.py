"""Applies a plan: the same step, jitted with the plan's shardings on its arguments, results and tagged values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.sharding import Mesh, NamedSharding

from ...dsl.errors import PlanError, listing, problem
from ...dsl.plan import Plan
from ...dsl.tensors import Layout, Tensor
from .axis_order import common_order, in_order
from .constrain import constrain
from .convolutions import AS_PRODUCTS, is_convolution, partitioned_wrongly, without_convolutions
from .devices import are_here
from .layouts import StepLayouts, step_layouts
from .paths import leaf_paths
from .shardings import DeviceMesh, device_mesh
from .trace import Traced, abstract_tensor, equations, trace
from .workload import PyTree, Step


class Applied:
    """A step under a plan. Called like the step; ``lower``, ``trace`` and the rest are those of the jitted function.

    ``layouts`` are what the plan gives each tensor, ``traced`` the step as it was read, ``placed`` the plan's mesh over
    the devices, ``mesh`` the same as JAX's, ``notes`` what was done to the step beyond what the plan says.
    """

    def __init__(self, jitted: Any, layouts: StepLayouts, placed: DeviceMesh, notes: Sequence[str] = ()):
        self._jitted = jitted
        self.layouts = layouts
        self.traced = layouts.traced
        self.placed = placed
        self.mesh = placed.mesh
        self.notes = tuple(notes)
        self.__name__ = getattr(layouts.traced.step, "__name__", "step")
        self.__wrapped__ = layouts.traced.step

    def __call__(self, *args: PyTree, **named: PyTree) -> Any:
        """What the step returns, laid out as the plan says. Raises ``PlanError`` for other arguments than planned."""
        if not self._runnable:
            raise PlanError([problem("MW406", what="A step")])
        return self._told(self._jitted, args, named)

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
            args = _in_order(self.traced, args, named)
        try:
            return call(*args)
        except Exception as error:
            if isinstance(error, PlanError):
                raise
            _refuse_others(self.traced, args)
            _refuse_elsewhere(self.traced, args, self.mesh)
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

    Raises ``PlanError`` with every problem: an illegal or incomplete plan, another workload than it was made for.
    """
    layouts = step_layouts(plan, trace(step, args, plan.remat))
    placed = device_mesh(plan, devices, layouts.device_assignments)
    donated = layouts.traced.donated if donate_argnums is None else donate_argnums
    placed = replace(placed, order=common_order(placed.mesh.axis_names, layouts.shardings(placed)))
    jaxpr = constrain(layouts.traced.jaxpr, layouts.chooser(placed), placed.order)
    jitted = _jitted(jaxpr, layouts, placed, donated)
    if not _convolves_wrongly(jitted, jaxpr, layouts, placed):
        return Applied(jitted, layouts, placed)
    products = _jitted(without_convolutions(jaxpr), layouts, placed, donated)
    return Applied(products, layouts, placed, notes=[AS_PRODUCTS])


def _convolves_wrongly(jitted: Any, jaxpr: ClosedJaxpr, layouts: StepLayouts, placed: DeviceMesh) -> bool:
    if not any(map(is_convolution, equations(jaxpr.jaxpr))):
        return False
    avals = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in jaxpr.in_avals]
    return partitioned_wrongly(jitted.lower(*jax.tree.unflatten(layouts.traced.in_tree, avals)), placed.mesh)


def _jitted(jaxpr: ClosedJaxpr, layouts: StepLayouts, placed: DeviceMesh, donated: Any) -> Any:
    return jax.jit(
        _planned_step(jaxpr, layouts, placed),
        in_shardings=_argument_shardings(layouts, placed),
        out_shardings=_result_shardings(layouts, placed),
        donate_argnums=donated,
    )


def _planned_step(jaxpr: ClosedJaxpr, layouts: StepLayouts, placed: DeviceMesh) -> Step:
    traced = layouts.traced
    run = jaxpr_as_fun(jaxpr)

    def step(*args: PyTree) -> Any:
        leaves, structure = jax.tree.flatten(args)
        if structure != traced.in_tree or _forms(leaves) != _planned_forms(traced):
            _refuse_others(traced, args)
        leaves = _inside(leaves, layouts, placed, traced.arguments)
        results = _inside(run(*leaves), layouts, placed, traced.results)
        return jax.tree.unflatten(traced.out_tree, results)

    step.__name__ = getattr(traced.step, "__name__", "step")
    return step


def _inside(leaves: Sequence[Any], layouts: StepLayouts, placed: DeviceMesh, tensors: Sequence[Tensor]) -> list[Any]:
    """Arguments or results as they are inside the program: padded where the plan allows it, their axes in order."""
    return [_one_inside(leaf, layouts.of(t), placed) for leaf, t in zip(leaves, tensors, strict=True)]


def _one_inside(leaf: Any, layout: Layout, placed: DeviceMesh) -> Any:
    sharding = placed.sharding(layout, leaf.shape)
    ordered = sharding and in_order(sharding, placed.order)
    if ordered or placed.is_padded(layout, leaf.shape):
        return jax.lax.with_sharding_constraint(leaf, ordered or sharding)
    return leaf


def _argument_shardings(layouts: StepLayouts, placed: DeviceMesh) -> Any:
    return jax.tree.unflatten(layouts.traced.in_tree, edge_shardings(layouts, placed, layouts.traced.arguments))


def _result_shardings(layouts: StepLayouts, placed: DeviceMesh) -> Any:
    return jax.tree.unflatten(layouts.traced.out_tree, edge_shardings(layouts, placed, layouts.traced.results))


def edge_shardings(layouts: StepLayouts, placed: DeviceMesh, tensors: Sequence[Tensor]) -> list[Any]:
    """The shardings that these arguments or results have between steps, None where propagation decides."""
    return [placed.sharding(layouts.of(t), t.shape, padding=False) for t in tensors]


def _forms(leaves: Sequence[Any]) -> list[tuple[tuple[int, ...], str]]:
    return [(tuple(leaf.shape), str(leaf.dtype)) for leaf in leaves]


def _planned_forms(traced: Traced) -> list[tuple[tuple[int, ...], str]]:
    return [(t.shape, t.dtype) for t in traced.arguments]


def _refuse_others(traced: Traced, args: Sequence[PyTree]) -> None:
    """Raises ``PlanError`` with what differs, if ``args`` are not those that the step was applied to."""
    names = [*traced.names[: len(args)], *(f"arg{i}" for i in range(len(traced.names), len(args)))]
    paths = [path for name, arg in zip(names, args, strict=True) for path in leaf_paths(name, arg)]
    now = {
        p: str(abstract_tensor(p, _aval(v), role="argument")) for p, v in zip(paths, jax.tree.leaves(args), strict=True)
    }
    planned = {t.path: str(t) for t in traced.arguments}
    changed = [f"{planned[p]} is {now[p].split(' ')[-1]}" for p in planned if p in now and now[p] != planned[p]]
    changed += [f"{planned[p]} is missing" for p in planned if p not in now]
    changed += [f"{now[p]} is new" for p in now if p not in planned]
    if changed:
        raise PlanError([problem("MW308", changed=listing(changed))])


def _in_order(traced: Traced, args: tuple[PyTree, ...], named: dict[str, PyTree]) -> tuple[PyTree, ...]:
    """Positional and named arguments in the step's order. Raises ``PlanError`` for a name that it does not have."""
    left = traced.names[len(args) :]
    strange = [f"{name} is new" for name in named if name not in left]
    if strange:
        raise PlanError([problem("MW308", changed=listing(strange))])
    return (*args, *(named[name] for name in left if name in named))


def _refuse_elsewhere(traced: Traced, args: Sequence[PyTree], mesh: Mesh) -> None:
    """Raises ``PlanError`` if arrays among ``args`` are committed where JAX does not move them from."""
    leaves = zip(traced.arguments, jax.tree.leaves(args), strict=True)
    wrong = [tensor.path for tensor, leaf in leaves if isinstance(leaf, jax.Array) and _is_elsewhere(leaf, mesh)]
    if wrong:
        raise PlanError([problem("MW318", tensors=listing(wrong))])


def _is_elsewhere(leaf: jax.Array, mesh: Mesh) -> bool:
    if isinstance(leaf, jax.core.Tracer) or not leaf.committed:
        return False
    own = leaf.sharding.mesh if isinstance(leaf.sharding, NamedSharding) else mesh
    return leaf.sharding.device_set != set(mesh.devices.flat) or own.axis_types != mesh.axis_types


def _aval(value: Any) -> Any:
    return value if hasattr(value, "dtype") else jax.eval_shape(lambda: jax.numpy.asarray(value))
