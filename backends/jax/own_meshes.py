"""The shardings that a step itself gives, over the plan's mesh: so a step written for devices that are here can be
planned for others, and for these in another order.
"""

from __future__ import annotations

from typing import Any

from jax.extend.core import ClosedJaxpr, JaxprEqn
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from ...dsl.errors import Problem, problem, raise_errors
from .constrain import Region, rewrite
from .named_meshes import NAMING, SAYING, AnyMesh, named_meshes
from .trace import equations


def over(closed: ClosedJaxpr, mesh: AnyMesh) -> ClosedJaxpr:
    """``closed`` with ``mesh`` in place of each mesh that its shardings name and that has the same axes.

    Raises ``PlanError`` (MW321) where others are left that are of other devices.
    """
    if all(not _changed(equation, mesh) for equation in equations(closed.jaxpr)):
        moved = closed
    else:
        moved = _Moving(mesh).inside(closed)
    left = (own for equation in equations(moved.jaxpr) for own in named_meshes(equation) if _is_elsewhere(own, mesh))
    raise_errors(map(_elsewhere, dict.fromkeys(left)))
    return moved


class _Moving:
    """One pass over a jaxpr and those inside of functions that say how they are split; one used twice stays shared."""

    def __init__(self, mesh: AnyMesh):
        self._mesh = mesh
        self._done: dict[int, tuple[Any, Any]] = {}  # by id; the original is kept alive beside its rewriting

    def inside(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        if id(closed) not in self._done:
            self._done[id(closed)] = closed, rewrite(closed, self._replaced)
        return self._done[id(closed)][1]  # type: ignore[no-any-return]

    def _replaced(self, equation: JaxprEqn, _: Region | None) -> JaxprEqn | None:
        changed = _changed(equation, self._mesh)
        if changed and isinstance(equation.params.get("jaxpr"), ClosedJaxpr):
            changed["jaxpr"] = self.inside(equation.params["jaxpr"])
        return equation.replace(params=equation.params | changed) if changed else None


def _changed(equation: JaxprEqn, mesh: AnyMesh) -> dict[str, Any]:
    """The parameters of an equation that say how values are split, and say it over ``mesh`` instead."""
    if equation.primitive.name not in NAMING:
        return {}
    given = {name: equation.params[name] for name in SAYING if name in equation.params}
    moved = {name: _moved(value, mesh) for name, value in given.items()}
    return {name: value for name, value in moved.items() if value is not given[name]}


def _is_elsewhere(own: AnyMesh, mesh: AnyMesh) -> bool:
    both = isinstance(own, Mesh) and isinstance(mesh, Mesh)
    return both and list(own.devices.flat) != list(mesh.devices.flat)


def _elsewhere(own: AnyMesh) -> Problem:
    shown = ", ".join(f"{name}: {size}" for name, size in own.shape.items())
    return problem("MW321", mesh=shown, sizes=str(own.axis_sizes), names=str(own.axis_names))


def _moved(given: Any, mesh: AnyMesh) -> Any:
    if isinstance(given, tuple):
        moved = tuple(_moved(each, mesh) for each in given)
        return moved if any(a is not b for a, b in zip(given, moved, strict=True)) else given
    if not isinstance(given, NamedSharding):
        return given
    if given.is_fully_replicated and _is_automatic(given.mesh) and given.mesh != mesh:
        return NamedSharding(mesh, PartitionSpec())
    return NamedSharding(mesh, given.spec) if _stands_for(given.mesh, mesh) else given


def _stands_for(own: AnyMesh, mesh: AnyMesh) -> bool:
    """Whether a step's mesh means the plan's: it has devices, and the same axes, which no type of a value names."""
    return isinstance(own, Mesh) and _is_automatic(own) and own != mesh and dict(own.shape) == dict(mesh.shape)


def _is_automatic(mesh: AnyMesh) -> bool:
    return all(kind == AxisType.Auto for kind in mesh.axis_types)
