"""Where the axes of a mesh lie on a machine, told by the device numbers."""

import time
from typing import Any

import numpy as np
import pytest
from meshwright.planner.partition.layout import named
from meshwright.planner.placement import Span, place
from networks import net, rewired


def spans(topology: str, axes: str, **mesh: Any) -> list[tuple[Any, ...]]:
    placed = net(topology, **mesh).placement(axes.split("+"))
    return [(s.dim, s.extent, s.stride, s.woven, s.ring) for s in placed.spans]


@pytest.mark.parametrize(
    ("topology", "axes", "mesh", "lies"),
    [
        ("v5e:16x16", "a", {"a": 16, "b": 16}, [("x", 16, 1, 1, True)]),
        ("v5e:8x16", "a", {"a": 8, "b": 16}, [("x", 8, 1, 1, False)]),
        ("v5e:8x16", "b", {"a": 8, "b": 16}, [("y", 16, 1, 1, True)]),
        ("v5e:16x16", "a+b", {"a": 16, "b": 16}, [("x", 16, 1, 1, True), ("y", 16, 1, 1, True)]),
        ("v5e:16x16", "a", {"a": 4, "b": 64}, [("x", 4, 4, 4, True)]),
        ("v5e:16x16", "b", {"a": 4, "b": 4, "c": 16}, [("x", 4, 1, 1, False)]),
        ("v5e:16x16", "b", {"a": 2, "b": 2, "c": 64}, [("x", 2, 4, 4, False)]),
        ("v5e:16x16", "b", {"a": 2, "b": 2, "c": 4, "d": 16}, [("x", 2, 4, 4, False)]),
        ("v5e:16x16", "a+c", {"a": 2, "b": 2, "c": 4, "d": 16}, [("x", 8, 1, 2, True)]),
        ("v5e:16x16", "a", {"a": (16, "x:4 y:4"), "b": 16}, [("x", 4, 4, 4, True), ("y", 4, 4, 4, True)]),
        ("v5p:4x4x4", "a", {"a": 16, "b": 4}, [("x", 4, 1, 1, True), ("y", 4, 1, 1, True)]),
        ("v5p:2x4x4", "a", {"a": 8, "b": 4}, [("x", 2, 1, 1, False), ("y", 4, 1, 1, False)]),
        ("v3:4x4", "b", {"a": 4, "b": 8}, [("y", 4, 1, 1, True), ("core", 2, 1, 1, False)]),
        ("2*v5e:4x4", "a", {"a": 2, "b": 16}, [("slice", 2, 1, 1, False)]),
        ("h100:8x4", "a", {"a": 2, "b": 16}, [("node", 2, 2, 2, False)]),
        ("cpu:8", "b", {"a": 2, "b": 4}, [("x", 4, 1, 1, False)]),
    ],
)
def test_an_axis_lies_on_these_dims(topology: str, axes: str, mesh: dict[str, Any], lies: list[Any]) -> None:
    assert spans(topology, axes, **mesh) == lies


def test_axes_on_the_same_dim_share_its_links() -> None:
    laid = net("v5e:16x16", a=4, b=4, c=(16, "y"))
    assert laid.placement(["a"]).shared_with == ("b",)
    assert laid.placement(["c"]).shared_with == ()
    assert laid.placement(["a", "b"]).shared_with == ()


def test_an_axis_that_is_none_is_refused() -> None:
    with pytest.raises(KeyError, match="no axis 'z'; it has a, b"):
        net("v5e:4x4", a=4, b=4).placement(["z"])


def test_a_ring_reaches_half_way_and_a_line_to_its_end() -> None:
    assert Span(dim="x", size=16, extent=16, stride=1, block=16, ring=True).hops == 8
    assert Span(dim="x", size=16, extent=4, stride=4, block=16, ring=True).hops == 8
    assert Span(dim="x", size=16, extent=4, stride=1, block=4, ring=False).hops == 3


def test_groups_know_whether_they_leave_slices_nodes_and_hosts() -> None:
    assert net("2*v5e:4x4", a=2, b=16).placement(["a"]).outer == 2
    assert net("h100:8x4", a=4, b=8).placement(["b"]).outer == 1
    assert not net("h100:8x4", a=4, b=8).placement(["b"]).hosts
    assert net("h100:8x4", a=4, b=8).placement(["a"]).hosts
    assert not net("v5e:4x4", a=2, b=2, c=4).placement(["b"]).hosts
    assert net("v5e:4x4", a=2, b=2, c=4).placement(["a"]).hosts
    assert net("v3:4x4", a=16, core=(2, "core")).placement(["core"]).cores == 2


@pytest.mark.parametrize(
    ("topology", "rings"),
    [
        ("v2:16x16", (True, True)),
        ("v3:32x32", (True, True)),
        ("v3:2x4", (False, True)),
        ("v4:2x2x4", (False, False, False)),
        ("v4:4x4x8", (True, True, True)),
        ("v4:4x4x6", (False, False, False)),
        ("v5e:8x8", (False, False)),
        ("v5e:8x16", (False, True)),
        ("v6e:16x16", (True, True)),
        ("v5p:16x20x28", (True, True, True)),
        ("tpu7x:4x4x4", (True, True, True)),
        ("tpu7x:2x2x1", (False, False, False)),
    ],
)
def test_these_dims_join_their_ends(topology: str, rings: tuple[bool, ...]) -> None:
    from networks import whole

    torus = whole(topology).links.torus
    assert torus.wraps == rings


def test_groups_of_a_compiled_program_are_placed_like_axes() -> None:
    laid = net("v5p:4x4x4", a=(16, "z y"), b=4)
    groups = laid.at(np.arange(64).reshape(16, 4).T)
    assert place(laid.machine, groups).spans == laid.placement(["a"]).spans


def test_the_numbers_are_asked_and_not_their_order() -> None:
    laid = net("v5e:16x16", a=16, b=16)
    shuffled = np.random.default_rng(0).permuted(laid.groups(["b"]), axis=1)
    assert place(laid.machine, shuffled) == place(laid.machine, laid.groups(["b"]))


def test_a_halo_goes_to_the_neighbour() -> None:
    laid = net("cpu:2x3", a=2, b=3)
    assert laid.shift("b").tolist() == [[0, 1], [3, 4], [1, 2], [4, 5]]
    assert laid.shift("b", -1).tolist() == [[1, 0], [4, 3], [2, 1], [5, 4]]
    assert laid.shift("b", around=True)[4:].tolist() == [[2, 0], [5, 3]]


def test_ends_that_are_not_joined_form_no_ring() -> None:
    assert not net(rewired("v5e:16x16", wraps=False), a=16, b=16).placement(["a"]).forms_rings
    assert net(rewired("v5e:8x8", wraps=True), a=8, b=8).placement(["a"]).forms_rings


def test_the_largest_machine_is_placed_at_once() -> None:
    laid = net("v5p:16x20x28", a=16, b=20, c=28)
    begin_s = time.perf_counter()
    for axes in ("a", "b", "c", "ab", "bc", "abc"):
        laid.placement(axes)
    assert time.perf_counter() - begin_s < 1


def test_a_part_of_a_part_is_found_where_the_mesh_is_cut_again() -> None:
    """A mesh whose axes a graph has cut, cut once more for a permute: the parts of a part stand for it."""
    cut = net("v3:4x4", x=4, y=8).in_parts(("y:(1)4",))
    again = cut.in_parts(("y:(1)4:(1)2",))
    assert again.parts(("y:(1)4",)) == ("y:(1)4:(1)2", "y:(1)4:(2)2")
    assert named(("y:(1)4:(1)2",), cut.mesh) == ("y:(1)4",)
