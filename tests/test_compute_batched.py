"""Batches of small products: what they read and make lies in tiles of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute import price
from meshwright.planner.compute.batched import growth_of
from meshwright.planner.compute.work import padded_bytes
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph, Op, Value

SIZES = st.sampled_from([2, 3, 8, 9, 31, 64, 128, 200])


def products(batch: int, rows: int, inner: int, columns: int) -> Graph:
    shapes = ((batch, rows, inner), (batch, inner, columns), (batch, rows, columns))
    said = {
        "lhs_batching_dimensions": (0,),
        "rhs_batching_dimensions": (0,),
        "lhs_contracting_dimensions": (2,),
        "rhs_contracting_dimensions": (1,),
    }
    op = Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=said)
    return Graph(values=tuple(Value(shape, "f32") for shape in shapes), ops=(op,), arguments=(0, 1), results=(2,))


def rows_of(size: int) -> int:
    return next(rows for rows in (1, 2, 4, 8) if rows >= min(size, 8))


def tiles(one: int, other: int) -> int:
    """Numbers of a matrix whose tiles are full, counted tile by tile, the way that takes fewer."""

    def laid(lanes: int, rows: int) -> int:
        return len(range(0, lanes, 128)) * 128 * len(range(0, rows, rows_of(rows))) * rows_of(rows)

    return min(laid(one, other), laid(other, one))


@given(st.sampled_from([1024, 4096]), SIZES, SIZES, SIZES)
def test_no_two_matrices_of_a_batch_share_a_tile(batch: int, rows: int, inner: int, columns: int) -> None:
    graph = products(batch, rows, inner, columns)
    growth = growth_of(graph)
    for value in graph.values:
        apart, least = batch * tiles(*value.shape[1:]), padded_bytes(value) / 4
        assert growth.get(value.shape, 1.0) * least == pytest.approx(max(apart, least))


def test_interactions_of_a_recommender_wait_for_memory() -> None:
    """16384 products of 9 by 9 and 9 by 32: 534 thousand cycles compiled for v5e, of which padding is most."""
    chip = catalogue()["v5e"]
    (found,) = price(fuse(products(16384, 9, 9, 32)), chip)
    assert found.bound == "memory"
    assert found.cycles > 400_000
