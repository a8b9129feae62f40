"""Products that sum nothing up, beside numpy's; what of them is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from meshwright.planner.fusion import fuse
from meshwright.planner.fusion.outer import with_multiplications
from meshwright.planner.graph import Factors, Graph, Op, Value
from meshwright.planner.program.step.nest import nest_of


def product(left: tuple[int, ...], right: tuple[int, ...], made: tuple[int, ...], **said: tuple[int, ...]) -> Graph:
    """A product of float32 by bfloat16, and the sum of its squares."""
    values = (Value(left, "f32"), Value(right, "bf16"), Value(made, "f32"), Value(made, "f32"), Value((), "f32"))
    ops = (
        Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=said),
        Op(kind="multiply", operands=(2, 2), results=(3,)),
        Op(kind="reduce", operands=(3,), results=(4,), attributes={"dimensions": tuple(range(len(made)))}),
    )
    return Graph(values=values, ops=ops, arguments=(0, 1), results=(4,))


def computed(graph: Graph, op: Op, given: list[Any]) -> Any:
    """What an operation makes, by numpy."""
    shape = graph.shape(op.results[0])
    if op.kind == "reshape":
        return given[0].reshape(shape)
    if op.kind == "transpose":
        return given[0].transpose(op.attributes["permutation"])
    if op.kind == "broadcast_in_dim":
        spread = np.ones(len(shape), int)
        spread[list(op.attributes["broadcast_dimensions"])] = given[0].shape
        return np.broadcast_to(given[0].reshape(spread), shape)
    assert op.kind in ("convert", "multiply")
    return given[0] * given[1] if op.kind == "multiply" else given[0]


@pytest.mark.parametrize(
    ("left", "right", "made", "batch", "summed", "said"),
    [
        ((3, 1, 4), (3, 1, 5), "bsm,bsn->bmn", ((0,), (0,)), ((1,), (1,)), (3, 4, 5)),
        ((4, 3, 1), (1, 5, 3), "mbs,snb->bmn", ((1,), (2,)), ((2,), (0,)), (3, 4, 5)),
        ((4, 1), (1, 5), "ms,sn->mn", ((), ()), ((1,), (0,)), (4, 5)),
        ((4, 2), (5,), "mk,n->mkn", ((), ()), ((), ()), (4, 2, 5)),
    ],
)
def test_what_sums_up_nothing_is_a_multiplication(
    left: tuple[int, ...],
    right: tuple[int, ...],
    made: str,
    batch: tuple[tuple[int, ...], tuple[int, ...]],
    summed: tuple[tuple[int, ...], tuple[int, ...]],
    said: tuple[int, ...],
) -> None:
    names = ("lhs_batching", "rhs_batching", "lhs_contracting", "rhs_contracting")
    dims = dict(zip((f"{name}_dimensions" for name in names), (*batch, *summed), strict=True))
    graph = with_multiplications(product(left, right, said, **dims))
    assert all(op.kind != "dot_general" for op in graph.ops)
    random = np.random.default_rng(0)
    known = {0: random.normal(size=left), 1: random.normal(size=right)}
    for op in graph.ops[:-1]:
        known[op.results[0]] = computed(graph, op, [known[value] for value in op.operands])
    np.testing.assert_allclose(known[2], np.einsum(made, known[0], known[1]))


def test_the_gradient_of_one_example_is_written_nowhere() -> None:
    """Norms of gradients of examples, compiled for v3 and v5e: one kernel from activations to norms."""
    dims = {"lhs_batching_dimensions": (0,), "rhs_batching_dimensions": (0,)}
    dims |= {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (1,)}
    program = fuse(product((64, 1, 512), (64, 1, 256), (64, 512, 256), **dims))
    assert all(program.graph.values[value].num_elements < 64 * 512 * 256 for k in program.kernels for value in k.writes)


def test_what_sums_up_more_than_one_place_stays_a_product() -> None:
    dims = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    graph = product((4, 2), (2, 5), (4, 5), **dims)
    assert with_multiplications(graph) is graph


def test_its_loops_are_those_of_the_product() -> None:
    """What has no loops is laid out whole, and with it all that is computed beside it."""
    dims = {"lhs_batching_dimensions": (0,), "rhs_batching_dimensions": (2,)}
    dims |= {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (1,)}
    plain = product((3, 1, 4), (5, 1, 3), (3, 4, 5), **dims)
    loops = Factors(
        sizes=(3, 4, 5, 1),
        operands=(((0,), (3,), (1,)), ((2,), (3,), (0,))),
        results=(((0,), (1,), (2,)),),
        reduction=(3,),
    )
    graph = with_multiplications(replace(plain, ops=(replace(plain.ops[0], factors=loops),)))
    nest = nest_of(graph, range(len(graph.ops)))
    (first, _, second), (third, _, before), made = (nest.dims[value] for value in (0, 1, 2))
    assert not any(nest.blocked)
    assert before == first
    assert made == (first, second, third)
    assert not nest.sums
