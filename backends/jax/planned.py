"""A step rewritten and jitted as a plan lays it out: the one program that is run, verified and estimated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from ...dsl.tensors import Layout, Tensor
from .arguments import refuse_others
from .axis_order import common_order, in_order
from .constrain import constrain
from .convolutions import (
    AS_PRODUCTS,
    WHOLE_KERNELS,
    is_convolution,
    partitioned_wrongly,
    with_whole_kernels,
    without_convolutions,
)
from .layouts import StepLayouts
from .overlap import BESIDE, compiler_options
from .own_meshes import over
from .products import APART, with_products_apart
from .shardings import DeviceMesh
from .trace import Traced, equations
from .workload import PyTree

PLATFORMS = {"tpu": "tpu", "gpu": "cuda", "cpu": "cpu"}
"""JAX's names of the platforms that machines have, to lower for one that is not here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A step jitted as a plan lays it out over ``placed``; ``notes`` say what was done beyond what the plan says.

    ``nested`` is the same without options for the compiler, which JAX refuses inside of other functions that it traces.
    """

    jitted: Any
    nested: Any
    layouts: StepLayouts
    placed: DeviceMesh
    notes: tuple[str, ...] = ()

    def lower(self, platform: str | None = None) -> Any:
        """The lowered step (``jax.stages.Lowered``): for the devices of its mesh, else for a machine's platform."""
        return _lowered(self.jitted, self.layouts.traced, platform)


def planned(
    layouts: StepLayouts, placed: DeviceMesh, donate_argnums: Any = None, platform: str | None = None
) -> Planned:
    """``layouts``' step jitted with their shardings over ``placed``.

    Donation is that of the step, or ``donate_argnums``; ``platform`` is a machine's (``tpu``), needed without devices.
    Raises ``PlanError`` for numbers of no argument.
    """
    placed = replace(placed, order=common_order(placed.mesh.axis_names, layouts.shardings(placed)))
    donated = layouts.traced.donates(donate_argnums)
    given = layouts.of_results(placed), layouts.of_operands(placed), layouts.of_slices(placed)
    jaxpr = constrain(layouts.traced.jaxpr, layouts.chooser(placed), *given, placed.order)
    jaxpr = over(jaxpr, placed.mesh)
    for_tpu = _is_compiled_for_tpu(placed.mesh)
    apart, options = (with_products_apart(jaxpr), compiler_options(jaxpr)) if for_tpu else (jaxpr, {})
    notes = said = (*(() if apart is jaxpr else (APART,)), *((BESIDE,) if options else ()))
    jaxpr = apart
    jitted = _jitted(jaxpr, layouts, placed, donated, options)
    for note in (WHOLE_KERNELS, AS_PRODUCTS):
        if not _convolves_wrongly(jitted, jaxpr, layouts.traced, placed, platform):
            break
        is_last, notes = note is AS_PRODUCTS, (*said, note)
        jaxpr = without_convolutions(apart) if is_last else with_whole_kernels(apart, placed.mesh, placed.order)
        jitted = _jitted(jaxpr, layouts, placed, donated, options)
    nested = _jitted(jaxpr, layouts, placed, donated, {}) if options else jitted
    return Planned(jitted=jitted, nested=nested, layouts=layouts, placed=placed, notes=notes)


def _is_compiled_for_tpu(mesh: Mesh | AbstractMesh) -> bool:
    """Whether a mesh has TPUs in it, here or ahead of time; over an abstract one a step is only estimated."""
    return isinstance(mesh, Mesh) and mesh.devices.flat[0].platform == "tpu"


def edge_shardings(layouts: StepLayouts, placed: DeviceMesh, tensors: Sequence[Tensor]) -> list[Any]:
    """The shardings that these arguments or results have between steps, None where propagation decides."""
    return [placed.sharding(layouts.of(t), t.shape, padding=False) for t in tensors]


def _lowered(jitted: Any, traced: Traced, platform: str | None) -> Any:
    avals = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in traced.jaxpr.in_avals]
    args = jax.tree.unflatten(traced.in_tree, avals)
    return jitted.trace(*args).lower(lowering_platforms=(PLATFORMS[platform],) if platform else None)


def _convolves_wrongly(
    jitted: Any, jaxpr: ClosedJaxpr, traced: Traced, placed: DeviceMesh, platform: str | None
) -> bool:
    if not any(map(is_convolution, equations(jaxpr.jaxpr))):
        return False
    return partitioned_wrongly(_lowered(jitted, traced, platform), placed.mesh)


def _jitted(
    jaxpr: ClosedJaxpr, layouts: StepLayouts, placed: DeviceMesh, donated: Any, options: Mapping[str, str]
) -> Any:
    return jax.jit(
        _planned_step(jaxpr, layouts, placed),
        in_shardings=argument_shardings(layouts, placed),
        out_shardings=_result_shardings(layouts, placed),
        donate_argnums=donated,
        compiler_options=dict(options) or None,
    )


def _planned_step(jaxpr: ClosedJaxpr, layouts: StepLayouts, placed: DeviceMesh) -> Callable[..., Any]:
    traced = layouts.traced
    run = jaxpr_as_fun(jaxpr)

    def step(*args: PyTree) -> Any:
        leaves, structure = jax.tree.flatten(args)
        if structure != traced.in_tree or _forms(leaves) != _planned_forms(traced):
            refuse_others(traced, args)
        leaves = _inside(leaves, layouts, placed, traced.arguments)
        results = _inside(run(*leaves), layouts, placed, traced.results)
        return jax.tree.unflatten(traced.out_tree, results)

    step.__name__ = getattr(traced.step, "__name__", "step")
    return step


def _inside(leaves: Sequence[Any], layouts: StepLayouts, placed: DeviceMesh, tensors: Sequence[Tensor]) -> list[Any]:
    """Arguments or results as they are inside the program: padded where the plan allows it, their axes in order."""
    return [_one_inside(leaf, layouts.of(t), placed) for leaf, t in zip(leaves, tensors, strict=True)]


def _one_inside(leaf: Any, layout: Layout, placed: DeviceMesh) -> Any:
    shape = np.shape(leaf)  # a result may be a number of Python's
    sharding = placed.sharding(layout, shape)
    ordered = sharding and in_order(sharding, placed.order)
    if ordered or placed.is_padded(layout, shape):
        return jax.lax.with_sharding_constraint(leaf, ordered or sharding)
    return leaf


def argument_shardings(layouts: StepLayouts, placed: DeviceMesh) -> Any:
    """Over devices JAX itself replicates the scalars of which nothing is said; over an abstract mesh this does."""
    return jax.tree.unflatten(layouts.traced.in_tree, argument_leaves(layouts, placed))


def argument_leaves(layouts: StepLayouts, placed: DeviceMesh) -> list[Any]:
    """The same, leaf by leaf."""
    tensors = layouts.traced.arguments
    shardings = edge_shardings(layouts, placed, tensors)
    if not isinstance(placed.mesh, AbstractMesh):
        return shardings
    whole = NamedSharding(placed.mesh, PartitionSpec())
    return [s if s or t.shape else whole for s, t in zip(shardings, tensors, strict=True)]


def _result_shardings(layouts: StepLayouts, placed: DeviceMesh) -> Any:
    return jax.tree.unflatten(layouts.traced.out_tree, edge_shardings(layouts, placed, layouts.traced.results))


def _forms(leaves: Sequence[Any]) -> list[tuple[tuple[int, ...], str]]:
    return [(tuple(leaf.shape), str(leaf.dtype)) for leaf in leaves]


def _planned_forms(traced: Traced) -> list[tuple[tuple[int, ...], str]]:
    return [(t.shape, t.dtype) for t in traced.arguments]
