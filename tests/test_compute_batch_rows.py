"""What a turn takes of a cache that lies as a product leaves what is put into it: a token decoded in a scan."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute import price
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph, Op, Value

POSITIONS = 512


def turn(batch: int, heads: int, size: int, *, shared: bool = False) -> Graph:
    """Three turns, each of which puts its token's keys into its cache, multiplies these by a query, and masks scores;
    ``shared`` as if they were multiplied by the matrix unit.
    """
    cache, width = (batch, POSITIONS, heads, size), 2048
    scores = (batch, POSITIONS, heads)
    shapes = {
        "stack": (3, *cache), "x": (batch, width), "w": (width, heads, size), "q": (batch, heads, size),
        "piece": (1, *cache), "old": cache, "k": (batch, heads, size), "token": (batch, 1, heads, size), "new": cache,
        "wide": cache, "products": cache, "scores": scores, "mask": (POSITIONS,), "masks": scores, "none": scores,
        "masked": scores, "most": (batch, heads), "zero": (), "product": (batch, heads, POSITIONS),
    }  # fmt: skip
    names = [*shapes, "i"]
    number = {name: place for place, name in enumerate(names)}
    dtypes = {"i": "s32", "mask": "pred", "masks": "pred"}
    values = tuple(Value(shapes.get(name, ()), dtypes.get(name, "bf16")) for name in names)

    def op(kind: str, result: str, *operands: str, **said: object) -> Op:
        return Op(kind=kind, operands=tuple(map(number.get, operands)), results=(number[result],), attributes=said)

    ops = [
        op("dynamic_slice", "piece", "stack", *"iiiii"),
        op("reshape", "old", "piece"),
        op("dot_general", "k", "x", "w", lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,)),
        op("reshape", "token", "k"),
        op("dynamic_update_slice", "new", "old", "token", *"iiii"),
        op("broadcast_in_dim", "wide", "q", broadcast_dimensions=(0, 2, 3)),
        op("multiply", "products", "new", "wide"),
        op("reduce", "scores", "products", "zero", dimensions=(3,), reducer="add"),
        op("broadcast_in_dim", "masks", "mask", broadcast_dimensions=(1,)),
        op("select", "masked", "masks", "scores", "none"),
        op("reduce", "most", "masked", "zero", dimensions=(1,), reducer="maximum"),
    ]
    if shared:
        over = {f"{side}_{kind}_dimensions": dims for side, kind, dims in (
            ("lhs", "batching", (0, 1)), ("rhs", "batching", (0, 2)), ("lhs", "contracting", (2,)),
            ("rhs", "contracting", (3,)),
        )}  # fmt: skip
        ops.append(op("dot_general", "product", "q", "new", **over))
    given = ("stack", "x", "w", "q", "mask", "none", "zero", "i")
    left = (*given, "most", "scores", *(["product"] if shared else []))
    body = Graph(
        values=values, ops=tuple(ops), arguments=tuple(map(number.get, given)), results=tuple(map(number.get, left))
    )
    outer = tuple(values[number[name]] for name in (*given, *left))
    made = tuple(range(len(given), len(outer)))
    loop = Op(kind="while", operands=tuple(range(len(given))), results=made, bodies=(body,), trips=3)
    return Graph(values=outer, ops=(loop,), arguments=tuple(range(len(given))), results=made)


def cycles(graph: Graph, name: str, kind: str) -> float:
    """What the kernels of one turn take that have such an operation."""
    program = fuse(graph)
    ((body,),) = (kernel.bodies for kernel in program.kernels if kernel.bodies)
    return sum(
        each.cycles
        for each in price(program, catalogue()[name])
        if kind in {body.graph.ops[number].kind for number in each.kernel.ops}
    )


@pytest.mark.parametrize(
    ("name", "batch", "size", "compiled"),
    [("v5e", 2, 64, 23848), ("v5e", 4, 128, 25980), ("v4", 4, 128, 25970), ("v6e", 4, 128, 13258)],
)
def test_a_batch_that_does_not_fill_rows_is_gone_through_as_one_that_does(
    name: str, batch: int, size: int, compiled: int
) -> None:
    assert cycles(turn(batch, 4, size), name, "multiply") == pytest.approx(compiled, rel=0.25)


@pytest.mark.parametrize(("name", "compiled"), [("v5e", 13378), ("v5p", 8390), ("v6e", 11757)])
def test_a_masks_numbers_come_into_the_scores_of_each_position_one_by_one(name: str, compiled: int) -> None:
    assert cycles(turn(2, 4, 64), name, "select") == pytest.approx(compiled, rel=0.2)


@pytest.mark.parametrize(("name", "is_counted"), [("v4", True), ("v5e", False), ("v5p", True), ("v6e", False)])
def test_copies_of_features_that_do_not_fill_lanes_are_counted_by_some_chips(name: str, is_counted: bool) -> None:
    """Two of 512 positions by 4 heads of 64: 28544 cycles on v4, 15824 on v5p, 800 on v5e and v6e; of 128 by all."""
    few, full = (cycles(turn(4, heads, size), name, "dynamic_update_slice") for heads, size in ((4, 64), (4, 128)))
    assert (few > 0.6 * full) == is_counted


def test_what_the_matrix_unit_multiplies_lies_as_before() -> None:
    apart, shared = (cycles(turn(4, 4, 128, shared=shared), "v5e", "dynamic_update_slice") for shared in (False, True))
    assert shared < apart - POSITIONS * 4 * 10
