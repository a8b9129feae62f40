"""Reshardings as steps: hand-made cases, and laws over random layouts."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from meshwright.planner.graph import Sharding
from meshwright.planner.kinds import ALL_GATHER, ALL_TO_ALL, COLLECTIVE_PERMUTE
from meshwright.planner.partition.layout import halves, local_shape, merged, used
from meshwright.planner.partition.reshard import SLICE, reshard_steps

MESH = {"x": 4, "y": 8, "z": 2}


def kinds(source: Sharding, target: Sharding) -> list[str]:
    return [step.kind for step in reshard_steps(source, target, MESH)]


def test_splitting_further_is_free() -> None:
    assert kinds(((), ()), (("x",), ("y",))) == [SLICE]
    assert kinds((("x",), ()), (("x", "y"), ())) == [SLICE]


def test_what_the_target_does_not_split_is_gathered() -> None:
    steps = reshard_steps((("x", "y"), ()), ((), ()), MESH)
    assert [(s.kind, s.axes, s.dims) for s in steps] == [(ALL_GATHER, ("x", "y"), (0,))]


def test_a_split_that_moves_to_another_dim_is_an_all_to_all() -> None:
    steps = reshard_steps((("x",), ()), ((), ("x",)), MESH)
    assert [(s.kind, s.axes, s.dims) for s in steps] == [(ALL_TO_ALL, ("x",), (0, 1))]


def test_as_many_parts_over_other_axes_are_exchanged_by_a_permute() -> None:
    mesh = {"a": 4, "b": 4}
    assert [s.kind for s in reshard_steps((("a",),), (("b",),), mesh)] == [COLLECTIVE_PERMUTE]


def test_parts_split_over_two_dims_are_exchanged_then_put_in_order() -> None:
    """As the TPU compiler does where the axis that moves is the major one: it never gathers the whole."""
    mesh = {"a": 4, "b": 4}
    steps = reshard_steps(((), ("a", "b")), (("a",), ("b",)), mesh)
    assert [(s.kind, s.axes) for s in steps] == [(ALL_TO_ALL, ("b",)), (COLLECTIVE_PERMUTE, ("b", "a"))]
    back = reshard_steps((("a",), ("b",)), ((), ("a", "b")), mesh)
    assert [(s.kind, s.axes) for s in back] == [(ALL_TO_ALL, ("a",)), (COLLECTIVE_PERMUTE, ("b", "a"))]


def test_so_they_are_where_the_minor_axis_has_other_parts() -> None:
    steps = reshard_steps(((), ("z", "y")), (("z",), ("y",)), MESH)
    assert sorted(s.kind for s in steps) == [ALL_TO_ALL, COLLECTIVE_PERMUTE]
    assert steps[-1].layout == (("z",), ("y",))


def test_parts_of_an_axis_that_follow_each_other_are_the_axis() -> None:
    """The gradient of looked up rows: what the all-to-all leaves need not be sent anywhere."""
    major, minor = halves("y", 2, MESH)
    steps = reshard_steps(((major,), (minor,)), (("y",), ()), MESH)
    assert [(s.kind, s.layout) for s in steps] == [(ALL_TO_ALL, (("y",), ()))]
    assert [s.kind for s in reshard_steps(((minor,), (major,)), (("y",), ()), MESH)] == [ALL_TO_ALL, COLLECTIVE_PERMUTE]
    assert reshard_steps(((major, minor),), (("y",),), MESH) == ()


@pytest.mark.parametrize(
    ("axes", "found"),
    [
        (("y:(1)2", "y:(2)4"), ("y",)),
        (("y:(2)2", "y:(4)2"), ("y:(2)4",)),
        (("y:(1)2", "y:(2)2", "y:(4)2", "x"), ("y", "x")),
        (("y:(2)4", "y:(1)2"), ("y:(2)4", "y:(1)2")),
        (("y:(1)2", "x", "y:(2)4"), ("y:(1)2", "x", "y:(2)4")),
    ],
)
def test_parts_are_put_together_in_order(axes: tuple[str, ...], found: tuple[str, ...]) -> None:
    assert merged(axes, MESH) == found


def test_parts_that_fit_no_such_split_are_gathered() -> None:
    assert ALL_GATHER in kinds(((), ("x", "y", "z")), (("x",), ("y",)))


SQUARE = {"a": 4, "b": 4}


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ((("a", "b"), (), ()), (("b",), (), ()), [COLLECTIVE_PERMUTE, ALL_GATHER]),
        ((("a",), (), ()), (("b", "a"), (), ()), [SLICE, COLLECTIVE_PERMUTE]),
        ((("a",), (), ()), ((), (), ("b", "a")), [SLICE, ALL_TO_ALL]),
        ((("a",), (), ()), ((), (), ("a", "b")), [SLICE, ALL_TO_ALL, COLLECTIVE_PERMUTE]),
        ((("b",), ("a",), ()), ((), (), ("b",)), [ALL_GATHER, ALL_TO_ALL, COLLECTIVE_PERMUTE]),
        ((("a",), ("b",), ()), ((), (), ("a", "b")), [ALL_GATHER, SLICE]),
        ((("a",), ("b",), ()), ((), (), ()), [ALL_GATHER]),
        (((), ("a", "b"), ()), (("b",), (), ()), [ALL_GATHER, SLICE]),
        (((), (), ("a", "b")), ((), ("b", "a"), ()), [ALL_TO_ALL, COLLECTIVE_PERMUTE]),
        (((), ("a",), ()), (("a",), (), ("b",)), [ALL_TO_ALL, SLICE]),
    ],
)
def test_steps_of_two_axes_of_four_are_those_of_the_compiler(
    source: Sharding, target: Sharding, expected: list[str]
) -> None:
    """Read off compiled reshardings of a float32 tensor of three dims on sixteen devices of v5e."""
    assert [step.kind for step in reshard_steps(source, target, SQUARE)] == expected


def test_a_dim_split_alike_is_kept_when_others_are_gathered() -> None:
    mesh = {"a": 4, "b": 2, "c": 2}
    gather, *_ = reshard_steps(((), ("b",), ("a",)), (("b",), ("c",), ()), mesh)
    assert (gather.kind, gather.layout) == (ALL_GATHER, ((), ("b",), ()))


@st.composite
def layouts(draw: st.DrawFn) -> Sharding:
    axes = draw(st.permutations(sorted(MESH)))
    places = [draw(st.integers(0, 3)) for _ in axes]
    return tuple(tuple(a for a, p in zip(axes, places, strict=True) if p == dim) for dim in range(3))


@example((("z", "x"), (), ("y",)), (("x",), ("y", "z"), ()))
@given(layouts(), layouts())
def test_steps_lead_from_the_source_to_the_target(source: Sharding, target: Sharding) -> None:
    steps = reshard_steps(source, target, MESH)
    assert (steps[-1].layout if steps else source) == target
    for step in steps:
        axes = used(step.layout)
        assert len(axes) == len(set(axes))


@given(layouts(), layouts())
def test_gathers_grow_and_slices_shrink(source: Sharding, target: Sharding) -> None:
    shape, before = (64, 64, 64), source
    for step in reshard_steps(source, target, MESH):
        sizes = [_elements(local_shape(shape, layout, MESH)) for layout in (before, step.layout)]
        if step.kind == ALL_GATHER:
            assert sizes[0] < sizes[1]
        if step.kind in (ALL_TO_ALL, COLLECTIVE_PERMUTE):
            assert sizes[0] == sizes[1]
        before = step.layout


def _elements(shape: tuple[int, ...]) -> int:
    number = 1
    for size in shape:
        number *= size
    return number
