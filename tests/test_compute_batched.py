"""Batches of small products: what they read and make lies in tiles of its own."""

from __future__ import annotations

from dataclasses import replace

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


def with_ops(graph: Graph, *ops: Op, results: tuple[int, ...]) -> Graph:
    """The same with these after it; values that it has not are of the products' shape."""
    last = max(value for op in ops for value in (*op.operands, *op.results))
    values = (*graph.values, *(graph.values[2] for _ in range(len(graph.values), last + 1)))
    made = {value for op in (*graph.ops, *ops) for value in op.results}
    arguments = tuple(value for value in range(len(values)) if value not in made)
    return replace(graph, values=values, ops=(*graph.ops, *ops), arguments=arguments, results=results)


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
    for number, value in enumerate(graph.values):
        apart, least = batch * tiles(*value.shape[1:]), padded_bytes(value) / 4
        assert growth.get(number, 1.0) * least == pytest.approx(max(apart, least))


def test_interactions_of_a_recommender_wait_for_memory() -> None:
    """16384 products of 9 by 9 and 9 by 32: 534 thousand cycles compiled for v5e, of which padding is most."""
    chip = catalogue()["v5e"]
    (found,) = price(fuse(products(16384, 9, 9, 32)), chip)
    assert found.bound == "memory"
    assert found.cycles > 400_000


def test_what_has_nothing_to_do_with_a_batch_of_products_costs_the_same_beside_it() -> None:
    """x[16384, 9, 9] beside products of its shape: 85 us compiled for v5e, where the products alone take 1081."""
    chip, some = catalogue()["v5e"], products(16384, 9, 32, 9)
    tanh = Op(kind="tanh", operands=(3,), results=(4,))
    beside = with_ops(some, tanh, results=(2, 4))
    alone = replace(beside, ops=(tanh,), arguments=(3,), results=(4,))
    (once,), both = price(fuse(alone), chip), price(fuse(beside), chip)
    assert [each.seconds for each in both if each.kernel.writes == (4,)] == [once.seconds]
    assert 3 not in growth_of(beside)
    assert 4 not in growth_of(beside)


def test_what_is_computed_of_products_number_by_number_lies_as_they_do() -> None:
    steps = (
        Op(kind="tanh", operands=(2,), results=(3,)),
        Op(kind="optimization_barrier", operands=(3, 4), results=(5, 6)),
        Op(kind="add", operands=(5, 7), results=(8,)),
    )
    growth = growth_of(with_ops(products(16384, 9, 32, 9), *steps, results=(6, 8)))
    assert growth.keys() == {0, 1, 2, 3, 5, 7, 8}
    assert {growth[number] for number in (2, 3, 5, 7, 8)} == {growth[2]}


@pytest.mark.parametrize(("dims", "batches"), [((0,), False), ((0, 1), False), ((1,), True)])
def test_products_that_are_summed_over_their_batch_are_one(dims: tuple[int, ...], batches: bool) -> None:
    """Compiled for v5e the sum of 16384 products takes 40 us, the products 1081."""
    graph = products(16384, 9, 32, 9)
    total = Op(kind="reduce", operands=(2, 4), results=(3,), attributes={"dimensions": dims, "reducer": "add"})
    summed = with_ops(graph, total, results=(3,))
    assert bool(growth_of(summed)) is batches
    assert growth_of(replace(summed, results=(2, 3)))
