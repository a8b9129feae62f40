"""Gathers of what is broadcast, as the compiler moves them."""

from __future__ import annotations

import pytest
from meshwright.planner.graph import Op, Value
from meshwright.planner.kinds import ALL_GATHER
from meshwright.planner.partition.passes.broadcasts import gather_before_broadcasts
from programs import of_ops


@pytest.mark.parametrize(
    ("read", "at", "gathered", "whole", "moved"),
    [
        ((8, 640), (0, 2), (0,), (64, 256, 640), (64, 640)),  # the gradient of a mean over tokens
        ((8, 640), (1, 2), (0,), (64, 8, 640), None),  # every device has all of a dim that was added
        ((8, 1, 64), (0, 1, 2), (2,), (8, 256, 128), (8, 1, 128)),
        ((1, 640), (0, 2), (0,), (2, 256, 640), (2, 640)),  # a device has one number of a dim that is split
    ],
)
def test_a_broadcast_is_gathered_before_it_is_broadcast(
    read: tuple[int, ...],
    at: tuple[int, ...],
    gathered: tuple[int, ...],
    whole: tuple[int, ...],
    moved: tuple[int, ...] | None,
) -> None:
    """Seen in a mixer's mean over tokens, a ConvNeXt's over places and a bag of embeddings, for v3 and v5e."""
    part = tuple(size // 2 if dim in gathered else size for dim, size in enumerate(whole))
    ops = (
        Op(kind="broadcast_in_dim", operands=(0,), results=(1,), attributes={"broadcast_dimensions": at}),
        Op(kind=ALL_GATHER, operands=(1,), results=(2,), attributes={"axes": ("x",), "dimensions": gathered}),
    )
    values = (Value(read, "f32"), Value(part, "f32"), Value(whole, "f32"))
    found = gather_before_broadcasts(of_ops(values, ops, (0,), (2,)).graph)
    gathers = [found.values[op.results[0]].shape for op in found.ops if op.kind == ALL_GATHER]
    assert gathers == ([moved] if moved else [])
    assert found.ops[-1].kind == "broadcast_in_dim"
    assert found.shape(found.ops[-1].results[0]) == whole


def test_what_is_gathered_along_dims_of_both_kinds_stays() -> None:
    ops = (
        Op(kind="broadcast_in_dim", operands=(0,), results=(1,), attributes={"broadcast_dimensions": (0,)}),
        Op(kind=ALL_GATHER, operands=(1,), results=(2,), attributes={"axes": ("x", "y"), "dimensions": (0, 1)}),
    )
    graph = of_ops((Value((8,), "f32"), Value((8, 4), "f32"), Value((16, 8), "f32")), ops, (0,), (2,)).graph
    assert gather_before_broadcasts(graph).ops == ops
