"""Copies around a GPU's products: these read batches of matrices, and what a product or the caller made is none."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute import speed_of
from meshwright.planner.compute.copies.relaid import Relaid
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph
from test_fusion import Writer

B, T, N, D = 8, 128, 4, 64
BYTES = B * T * N * D * 4


def copies(graph: Graph) -> float:
    """The copies of all kernels, in arrays of [B, T, N, D]."""
    program, of = fuse(graph, is_gpu=True), speed_of(catalogue()["h200"]).coefficients
    took = sum(Relaid(program.graph).copies_cycles(kernel, of) for kernel in program.kernels)
    return took / (2 * BYTES * of.byte_cycles + of.start_cycles)


def scores(w: Writer, q: int, k: int, batch: tuple[int, ...], depth: int) -> int:
    said = {f"{side}_batching_dimensions": batch for side in ("lhs", "rhs")}
    said |= {f"{side}_contracting_dimensions": (depth,) for side in ("lhs", "rhs")}
    return w.op("dot_general", q, k, shape=(B, N, T, T), **said)


@pytest.mark.parametrize(("shape", "batch", "expected"), [((B, T, N, D), (0, 2), 2), ((B, N, T, D), (0, 1), 0)])
def test_an_argument_is_copied_whose_batch_does_not_stand_first(
    shape: tuple[int, ...], batch: tuple[int, ...], expected: int
) -> None:
    w = Writer()
    assert copies(w.graph(scores(w, w.arg(*shape), w.arg(*shape), batch, 3))) == expected


def test_what_is_computed_number_by_number_is_written_as_it_is_read() -> None:
    w = Writer()
    q = w.op("exponential", w.arg(B, T, N, D))
    assert copies(w.graph(scores(w, q, q, (0, 2), 3))) == 0


def test_what_a_product_made_is_copied_once() -> None:
    w = Writer()
    said = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    flat = w.op("dot_general", w.arg(B * T, 256), w.arg(256, N * D), shape=(B * T, N * D), **said)
    q = w.op("reshape", flat, shape=(B, T, N, D))
    k = w.op("exponential", w.arg(B, T, N, D))
    assert copies(w.graph(scores(w, q, k, (0, 2), 3))) == 1
    turned = w.op("transpose", q, shape=(B, N, T, D), permutation=(0, 2, 1, 3))
    assert copies(w.graph(scores(w, turned, w.op("exponential", w.arg(B, N, T, D)), (0, 1), 3))) == 1


def test_a_matrix_may_lie_either_way() -> None:
    w = Writer()
    turned = w.op("transpose", w.arg(512, 256), shape=(256, 512), permutation=(1, 0))
    said = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    assert copies(w.graph(w.op("dot_general", turned, w.arg(512, 64), shape=(256, 64), **said))) == 0


def test_a_result_in_another_order_is_a_copy() -> None:
    w = Writer()
    x = w.arg(B, T, N, D)
    assert copies(w.graph(w.op("transpose", x, shape=(B, N, T, D), permutation=(0, 2, 1, 3)))) == 1
    w = Writer()
    y = w.op("exponential", w.arg(B, T, N, D))
    assert copies(w.graph(w.op("transpose", y, shape=(B, N, T, D), permutation=(0, 2, 1, 3)))) == 0
