"""What adding up groups of an image's features takes, and spreading what is known of a group over them."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute import speed_of
from meshwright.planner.compute.images.group_sums import GroupSums
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.images import Image
from meshwright.planner.kernels import Kernel


def took(name: str, batch: int, groups: int, features: int) -> tuple[float, ...]:
    """Cycles besides: of a kernel that adds up groups, of one that spreads what it found, and of a second such one."""
    whole = (batch, 32, 32, groups * features)
    parted = Value((batch, 32, 32, groups, features), "f32")
    ops = (
        Op(kind="reduce", operands=(0, 1), results=(2,)),
        Op(kind="broadcast_in_dim", operands=(2,), results=(3,)),
        Op(kind="broadcast_in_dim", operands=(2,), results=(4,)),
        Op(kind="broadcast_in_dim", operands=(1,), results=(5,)),
    )
    values = (parted, Value((), "f32"), Value((batch, groups), "f32"), *[parted] * 3)
    graph = Graph(values=values, ops=ops, arguments=(0, 1), results=(3, 4, 5))
    image = Image(features=3, batch=0)
    sums = GroupSums(graph, {parted.shape: whole}, {whole: image}, speed_of(catalogue()[name]).coefficients)
    return tuple(sums.extra_cycles(Kernel(ops=(n,), reads=ops[n].operands, writes=ops[n].results)) for n in range(4))


@pytest.mark.parametrize(
    ("name", "batch", "groups", "features", "cycles"),
    [
        ("v5p", 8, 8, 8, (2165, 2122)),
        ("v5p", 8, 32, 4, (2266 + 1800, 2282 + 2200)),  # which lie across, and are copied
        ("v4", 4, 8, 8, (672, 704)),
        ("v5e", 2, 32, 4, (1951, 0)),
        ("v6e", 16, 8, 16, (2198, 0)),
        ("v6e", 16, 32, 4, (2272, 2296)),
    ],
)
def test_groups_are_added_up_by_kernels_of_their_own(
    name: str, batch: int, groups: int, features: int, cycles: tuple[int, int]
) -> None:
    """The compiler's cycles of nets with group normalisation; what is spread once is spread for all."""
    added, spread, again, number = took(name, batch, groups, features)
    assert added == pytest.approx(cycles[0], rel=0.16)
    assert spread == pytest.approx(cycles[1], rel=0.16)
    assert (again, number) == (0, 0)
