"""Numbers repeated between others, and sums of such: kernels of their own, as compiled for v3, v4, v5e, v5p and v6e."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute import price
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph
from test_fusion import Writer, kinds

BATCH, ROWS, HEADS, SHARED, WIDTH = 8, 512, 8, 2, 128
SCORES = {f"{side}_{part}": dims for side in ("lhs", "rhs") for part, dims in
          (("batching_dimensions", (0, 2)), ("contracting_dimensions", (3,)))}  # fmt: skip


def scores(shared: int) -> Graph:
    """Queries of all heads by keys that so many of them have, each repeated for its own."""
    g = Writer()
    queries, keys = g.arg(BATCH, ROWS, HEADS, WIDTH, dtype="bf16"), g.arg(BATCH, ROWS, shared, WIDTH, dtype="bf16")
    spread = g.spread(keys, BATCH, ROWS, shared, HEADS // shared, WIDTH, dims=(0, 1, 2, 4))
    keys = g.op("reshape", spread, shape=(BATCH, ROWS, HEADS, WIDTH))
    return g.graph(g.op("dot_general", queries, keys, shape=(BATCH, HEADS, ROWS, ROWS), **SCORES))


def gradient(batch: int) -> Graph:
    """What the keys' heads add up of a product."""
    g = Writer()
    said: dict[str, tuple[int, ...]] = {"lhs_contracting_dimensions": (2,), "rhs_contracting_dimensions": (1,)}
    said |= {"lhs_batching_dimensions": (0, 1), "rhs_batching_dimensions": (0, 2)}
    made, queries = g.arg(batch, HEADS, ROWS, ROWS, dtype="bf16"), g.arg(batch, ROWS, HEADS, WIDTH, dtype="bf16")
    product = g.op("dot_general", made, queries, shape=(batch, HEADS, ROWS, WIDTH), **said)
    parts = g.op("reshape", product, shape=(batch, SHARED, HEADS // SHARED, ROWS, WIDTH))
    return g.graph(g.total(parts, 2))


def test_keys_that_heads_share_are_repeated_by_a_kernel_of_its_own() -> None:
    program = fuse(scores(SHARED))
    assert [sorted(kinds(program, kernel)) for kernel in program.kernels] == [
        ["broadcast_in_dim"],
        ["dot_general", "reshape"],
    ]


def test_a_single_key_for_all_heads_is_read_as_it_is() -> None:
    assert len(fuse(scores(1)).kernels) == 1


@pytest.mark.parametrize(("name", "cycles"), [("v3", 63104), ("v4", 73216), ("v5e", 92320), ("v6e", 85728)])
def test_repeating_takes_as_long_as_compiled(name: str, cycles: int) -> None:
    """bf16[8,512,2,4,128] of bf16[8,512,2,128]."""
    first, *_ = price(fuse(scores(SHARED)), catalogue()[name])
    assert first.cycles == pytest.approx(cycles, rel=0.3)


@pytest.mark.parametrize(("batch", "kernels"), [(BATCH, 2), (1, 1)])
def test_their_gradients_are_added_up_apart_from_batches_over_two_dims(batch: int, kernels: int) -> None:
    assert len(fuse(gradient(batch)).kernels) == kernels


def test_what_is_computed_number_by_number_is_written_before_its_parts_are_added_up() -> None:
    g = Writer()
    made = g.op("tanh", g.arg(BATCH, ROWS, HEADS, WIDTH))
    parts = g.op("reshape", made, shape=(BATCH, ROWS, SHARED, HEADS // SHARED, WIDTH))
    program = fuse(g.graph(g.total(parts, 3)))
    assert [kinds(program, kernel)["tanh"] for kernel in program.kernels] == [1, 0]
