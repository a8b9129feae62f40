"""Parts of axes: what of a mesh's axes views of a step can be split along."""

from __future__ import annotations

import jax.numpy as jnp
import meshwright as mw
import pytest
from meshwright.backends.jax.drafts import Drafts
from meshwright.planner.graph import Graph
from meshwright.planner.program.step.parted import cut, is_of_axes, parted, sizes_of, uncut, writable
from small_steps import shape

MESH = {"a": 8, "b": 2}


def graph_of(*sizes: int, to: tuple[int, ...]) -> Graph:
    """That of a step which views an array in other dims and back."""
    step = (lambda x: jnp.tanh(jnp.tanh(x.reshape(to))).reshape(x.shape), [shape(*sizes)])
    return Drafts(*step).graph(mw.loads("meshwright: 1\ntopology: v4:2x2x2\nmesh: {a: 8, b: 2}\n"))


@pytest.mark.parametrize(
    ("sizes", "to", "parts"),
    [
        ((64, 64), (64, 2, 32), ("a:(1)2", "a:(2)4", "b")),
        ((64, 64), (64, 4, 16), ("a:(1)4", "a:(4)2", "b")),
        ((64, 64), (64, 2, 2, 16), ("a:(1)2", "a:(2)2", "a:(4)2", "b")),
        ((64, 64), (64, 8, 8), ()),  # an axis splits all of the major ones
        ((64, 63), (64, 3, 21), ()),  # or none
        ((64, 64), (4096,), ()),
    ],
)
def test_axes_are_cut_where_views_have_fewer_places(
    sizes: tuple[int, ...], to: tuple[int, ...], parts: tuple[str, ...]
) -> None:
    assert parted(graph_of(*sizes, to=to), MESH) == parts


def test_what_lies_along_whole_axes_can_be_written() -> None:
    order = ("a:(1)2", "a:(2)4", "b")
    assert sizes_of(order, MESH) == {"a:(1)2": 2, "a:(2)4": 4, "b": 2}
    assert sizes_of(("b", "a"), MESH) == MESH
    assert cut((("b", "a"), ()), order) == (("b", "a:(1)2", "a:(2)4"), ())
    assert uncut(("b", "a:(1)2", "a:(2)4")) == ("b", "a")
    whole, torn, turned = (("a:(1)2", "a:(2)4"), ("b",)), (("a:(1)2",), ("a:(2)4",)), (("a:(2)4", "a:(1)2"), ())
    assert [is_of_axes(each, order) for each in (whole, torn, turned, ((), ()))] == [True, False, False, True]
    assert writable({"x": whole, "y": torn}, order) == {"x": (("a",), ("b",))}
