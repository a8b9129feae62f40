"""The meshes that a step itself names: of its regions for one device, of shardings that it gives to values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jax.extend.core import JaxprEqn
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding

from ...dsl.errors import Problem, listing, problem

NAMING = ("sharding_constraint", "jit", "pjit")
"""Primitives that may say how values are split."""

SAYING = ("sharding", "in_shardings", "out_shardings")
"""The parameters that they say it in."""

AnyMesh = Mesh | AbstractMesh


def named_meshes(equation: JaxprEqn) -> Iterator[AnyMesh]:
    """The meshes of a region for one device (``shard_map``), or of shardings, unless they split nothing."""
    given = equation.params
    if equation.primitive.name == "shard_map":
        yield given["mesh"]
    if equation.primitive.name in NAMING:
        shardings = (given.get("sharding"), *given.get("in_shardings", ()), *given.get("out_shardings", ()))
        yield from (s.mesh for s in shardings if isinstance(s, NamedSharding) and not s.is_fully_replicated)


def explicit_problems(equations: Iterable[JaxprEqn]) -> Iterator[Problem]:
    """A problem for each mesh with explicit axes over which the types of a step's values say how they are split."""
    typed = (mesh for equation in equations for mesh in _typed(equation))
    for mesh in dict.fromkeys(mesh if isinstance(mesh, AbstractMesh) else mesh.abstract_mesh for mesh in typed):
        axes = [name for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True) if kind == AxisType.Explicit]
        if axes:
            yield problem("MW322", axes=listing(axes), count=len(mesh.axis_names))


def _typed(equation: JaxprEqn) -> Iterator[AnyMesh]:
    if equation.primitive.name == "reshard":
        yield equation.params["dst_sharding"].mesh
    elif equation.primitive.name in NAMING:
        yield from named_meshes(equation)
