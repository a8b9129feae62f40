"""Axes of a mesh that was found, as a person reads them: joined, and named by what they are for."""

from __future__ import annotations

from typing import Any

from fake_search import W, X
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.plan import Axis, Mesh, OverDim
from meshwright.planner.search.naming import Laid, readable
from meshwright.planner.topology import physical


def laid(mesh: Mesh, **layouts: Any) -> Laid:
    return Laid(mesh=mesh, layouts={path.replace("_", "/"): sharding for path, sharding in layouts.items()})


def over(name: str, size: int, *dims: str) -> Axis:
    parts = tuple(OverDim(name=d.split(":")[0], size=int(d.split(":")[1]) if ":" in d else None) for d in dims)
    return Axis(name=name, size=size, over=parts)


def test_axes_that_are_always_together_become_one_and_are_named_by_use() -> None:
    mesh = Mesh(axes=(over("x", 4, "x"), over("y", 4, "y"), over("z", 2, "core")))
    found = readable(
        laid(mesh, params_w=(("x", "y"), ()), batch=(("z",), ("x", "y"))),
        physical(parse_topology("v3:4x4")),
        (W, X),
        (),
    )
    assert found.mesh == Mesh(axes=(Axis(name="data", size=16), Axis(name="data2", size=2)))
    assert found.layouts["batch"] == (("data2",), ("data",))


def test_axes_whose_names_are_given_stay() -> None:
    mesh = Mesh(axes=(over("x", 4, "x"), over("y", 8, "y", "core")))
    found = readable(laid(mesh, params_w=(("x", "y"), ())), physical(parse_topology("v3:4x4")), (W, X), ("x", "y"))
    assert found.mesh == mesh


def test_axes_that_no_plan_can_write_as_one_stay_two() -> None:
    mesh = Mesh(axes=(over("x", 8, "y:2", "x"), over("z", 4, "y:2", "core")))
    found = readable(laid(mesh, params_w=(("z", "x"), ())), physical(parse_topology("v3:4x4")), (W, X), ())
    assert sorted(size for size in found.mesh.sizes.values()) == [4, 8]
