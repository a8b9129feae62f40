"""What of loops is brought to vector memory once for all of their turns."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute import price
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph, Op, Value

CHIP = catalogue()["v5e"]


def multiplied(rows: int, *, kind: str, trips: int) -> Graph:
    """A state multiplied by the same weights in each turn, or branch."""
    state, weights = Value((16, rows), "f32"), Value((rows, rows), "bf16")
    said = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    multiply = Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=said)
    body = Graph(values=(state, weights, state), ops=(multiply,), arguments=(0, 1), results=(2, 1))
    loop = Op(kind=kind, operands=(0, 1), results=(2, 3), bodies=(body,), trips=trips)
    return Graph(values=(state, weights) * 2, ops=(loop,), arguments=(0, 1), results=(2, 3))


@pytest.mark.parametrize(("rows", "stays"), [(1024, True), (65536, False)])
def test_what_every_turn_multiplies_by_stays_in_vector_memory(rows: int, stays: bool) -> None:
    """Weights that all turns of a loop read, where vector memory holds them (v5e's compiler: GRUs over time)."""
    (branch,) = price(fuse(multiplied(rows, kind="case", trips=1)), CHIP)
    (turn,) = price(fuse(multiplied(rows, kind="while", trips=100)), CHIP)
    assert turn.times == 100
    assert (turn.num_bytes == 0) == stays
    assert (turn.seconds < 0.9 * branch.seconds) == stays


def test_branches_and_single_turns_are_no_loops() -> None:
    """What turns read alike is brought once, which the turns share: nothing is gained by few of them."""
    (branch,) = price(fuse(multiplied(2048, kind="case", trips=1)), CHIP)
    (once,) = price(fuse(multiplied(2048, kind="while", trips=1)), CHIP)
    (twice,) = price(fuse(multiplied(2048, kind="while", trips=2)), CHIP)
    (often,) = price(fuse(multiplied(2048, kind="while", trips=1000)), CHIP)
    weights_s = 2 * 2048**2 / CHIP.hbm_bytes_per_s
    assert once.seconds == branch.seconds
    assert 2 * twice.seconds > 2 * often.seconds + 0.9 * weights_s


@pytest.mark.parametrize(("rows", "stays"), [(1024, True), (8192, False)])
def test_what_every_turn_multiplies_by_stays_in_a_memory_that_cores_share(rows: int, stays: bool) -> None:
    """v4's, which holds 64 MiB of them (LSTMs over time) and costs products nothing to read."""
    (turn,) = price(fuse(multiplied(rows, kind="while", trips=100)), catalogue()["v4"])
    assert (turn.num_bytes < 2 * rows**2) == stays
