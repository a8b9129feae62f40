"""How gathers and scatters are split, beside what the TPU compiler's partitioner makes of the same."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from hypothesis import given
from hypothesis import strategies as st
from meshwright.planner.graph import Axes, Factors, Graph, Op, Sharding, Value
from meshwright.planner.kinds import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, COLLECTIVE_PERMUTE
from meshwright.planner.partition.layout import cut_axis, left_over, overlap, ways
from meshwright.planner.partition.rules import strategy
from meshwright.planner.partition.spread import spread
from meshwright.planner.partition.strategy import Asked
from meshwright.planner.partition.target import Target

MESH = {"x": 4, "y": 8}
BOTH = ("x", "y")
ROWS, TOKENS, SLICES = (32000, 1024), (64, 512, 1), (64, 512, 1024)
DIMS = ((3,), (2,)), ((0,), (1,), (4,)), ((0,), (1,), (2,))
MIB = 2**20


def moved(op: Op, values: tuple[Value, ...], arguments: int) -> list[tuple[str, float]]:
    """Kinds and MiB of the collectives that one operation's tensors need, those of less than a MiB left out."""
    graph = Graph(values=values, ops=(op,), arguments=tuple(range(arguments)), results=op.results, mesh=MESH)
    local = spread(graph, MESH, Target(32))
    found = []
    for each in local.ops:
        size = max(local.values[v].num_bytes for v in (*each.operands, *each.results))
        if "axes" in each.attributes and each.kind != "dynamic_slice" and size >= MIB:
            found.append((each.kind, size / MIB))
    return found


@pytest.mark.parametrize(
    ("table", "tokens", "result", "found"),
    [
        ((BOTH, ()), (("x",), ("y",), ()), (("x",), ("y",), ()), [(ALL_GATHER, 125)]),
        ((("y",), ()), ((), BOTH, ()), ((), BOTH, ()), [(ALL_GATHER, 125)]),
        ((BOTH, ()), (("x",), (), ()), (("x",), (), ("y",)), [(ALL_REDUCE, 128)]),
        ((("x",), ()), (("y",), (), ()), (("y",), (), ("x",)), [(ALL_REDUCE, 16)]),
        (
            (("x",), ()),
            ((), ("x",), ()),
            ((), ("x",), ("y",)),  # the groups are parts of y
            [(COLLECTIVE_PERMUTE, 31.25), (ALL_REDUCE, 16), (COLLECTIVE_PERMUTE, 4)],
        ),
        (
            (("y",), ()),
            (("x",), (), ()),
            (("x",), (), ("y",)),  # the sums are of other parts than the devices have
            [(ALL_TO_ALL, 32), (ALL_REDUCE, 32), (COLLECTIVE_PERMUTE, 4)],
        ),
        (((), BOTH), ((), ("y",), ()), ((), (), BOTH), []),
    ],
)
def test_lookups_are_split_as_compiled(
    table: Sharding, tokens: Sharding, result: Sharding, found: list[tuple[str, float]]
) -> None:
    factors = Factors(
        sizes=(64, 512, 1024, 32000, 1), operands=DIMS[:2], results=DIMS[2:], reduction=(3,), replicated=(4,)
    )
    values = (Value(ROWS, "f32", table), Value(TOKENS, "s32", tokens), Value(SLICES, "f32", result))
    op = Op(kind="gather", operands=(0, 1), results=(2,), factors=factors, attributes={"slice_sizes": (1, 1024)})
    assert moved(op, values, 2) == found


@pytest.mark.parametrize(
    ("table", "tokens", "updates", "result", "found"),
    [
        (
            (("x",), ()),
            (("y",), (), ()),
            (("y",), (), ("x",)),
            ((), ("x",)),
            [(ALL_GATHER, 16), (ALL_REDUCE, 31.25), (ALL_TO_ALL, 31.25)],
        ),
        (
            (("y",), ()),
            ((), BOTH, ()),
            ((), BOTH, ()),
            (("y",), ()),
            [(ALL_GATHER, 125), (ALL_REDUCE, 125)],
        ),
        (
            (("x",), ("y",)),
            ((), ("x",), ()),
            ((), ("x",), ("y",)),
            (("x",), ("y",)),
            [(ALL_GATHER, 15.625), (ALL_REDUCE, 15.625)],
        ),
    ],
)
def test_updates_are_split_as_compiled(
    table: Sharding, tokens: Sharding, updates: Sharding, result: Sharding, found: list[tuple[str, float]]
) -> None:
    factors = Factors(
        sizes=(64, 512, 1024, 32000, 1), operands=DIMS, results=DIMS[:1], reduction=(0, 1), replicated=(4,)
    )
    layouts = ((ROWS, "f32", table), (TOKENS, "s32", tokens), (SLICES, "f32", updates), (ROWS, "f32", result))
    values = tuple(Value(*layout) for layout in layouts)
    op = Op(kind="scatter", operands=(0, 1, 2), results=(3,), factors=factors, attributes={"reducer": "add"})
    assert sorted(moved(op, values, 3)) == sorted(found)


def test_a_row_s_own_place_is_looked_up_where_its_batch_lies() -> None:
    dims = (((0,), (1,), (3,)), ((0,), (1,), (2,), (4,)), ((0,), (1,), (2,)))
    factors = Factors(
        sizes=(64, 512, 1, 32000, 1), operands=dims[:2], results=dims[2:], reduction=(3,), replicated=(4,)
    )

    def looked_up(logits: Sharding, tokens: Axes = BOTH) -> list[tuple[str, float]]:
        values = (
            Value((64, 512, 32000), "f32", logits),
            Value((64, 512, 1, 1), "s32", (tokens, (), (), ())),
            Value((64, 512, 1), "f32", (tokens, (), ())),
        )
        return moved(Op(kind="gather", operands=(0, 1), results=(2,), factors=factors), values, 2)

    assert looked_up((BOTH, (), ())) == []
    assert looked_up(((), (), BOTH)) == []  # indices are gathered, and places added up: both are small
    # its copies split the batch, and all parts are counted anew: x has the batch, a part of y the places
    assert looked_up(((), (), ("x",)), ("x",)) == [(COLLECTIVE_PERMUTE, 250)]
    assert looked_up((("y",), (), ("x",)), ("x",)) == []  # that splits the batch more: the indices lie as it does


@pytest.mark.tpu_compiler
@pytest.mark.parametrize("table", ["D0s8@y D1s32768 D2s64@x", "D0s8@x D1s32768 D2s64@y"])
def test_updates_of_stacked_tables_are_exchanged_as_compiled(table: str) -> None:
    def step(tables: jax.Array, weights: jax.Array, rows: jax.Array) -> jax.Array:
        def loss(tables: jax.Array) -> jax.Array:
            return jnp.sum((jax.vmap(lambda table, row: table[row], (0, 1), 1)(tables, rows) * weights) ** 2)

        return jax.grad(loss)(tables)

    text = f"meshwright: 1\ntopology: v3:4x4\nmesh: {{x: 4, y: 8}}\ntensors:\n  tables: {table}\n"
    plan = mw.loads(text + "  rows: D0s8192@x D1s8\n  '**': infer\n")
    shapes = (((8, 32768, 64), jnp.float32), ((64,), jnp.float32), ((8192, 8), jnp.int32))
    found = mw.verify(plan, jax.jit(step), [jax.ShapeDtypeStruct(*shape) for shape in shapes])
    predicted, compiled = (
        {kind: sum(c.total_bytes for c in each.collectives if c.kind == kind) for kind in (ALL_TO_ALL, ALL_GATHER)}
        for each in (found.predicted, found.compiled)
    )
    assert compiled[ALL_TO_ALL] >= MIB
    assert predicted == pytest.approx(compiled, rel=0.02)


def factors_of(axes: Sequence[str]) -> list[tuple[str, int]]:
    """The factors of two of axes."""
    found = []
    for axis in axes:
        name, _, part = axis.partition(":(")
        before, size = (int(n) for n in part.split(")")) if part else (1, MESH[axis])
        found += [(name, before * 2**i) for i in range(int(math.log2(size)))]
    return found


@pytest.mark.parametrize(
    ("table", "tokens", "result"),
    [
        ((("x",), ()), ((), (), ()), ((), ("x",), ("y",))),  # the groups are parts of y
        (((), ("x",)), (("x",), (), ()), ((), ("y",), ("x",))),
        (((), ("x",)), ((), ("x",), ()), (("y",), (), ())),
    ],
)
def test_no_axis_splits_a_lookup_s_tensor_twice(table: Sharding, tokens: Sharding, result: Sharding) -> None:
    factors = Factors(
        sizes=(64, 512, 1024, 32000, 1), operands=DIMS[:2], results=DIMS[2:], reduction=(3,), replicated=(4,)
    )
    asked = Asked(
        op=Op(kind="gather", operands=(0, 1), results=(2,), factors=factors),
        reads=(Value(ROWS, "f32"), Value(TOKENS, "s32")),
        makes=(Value(SLICES, "f32"),),
        operands=(table, tokens),
        results=(result,),
        mesh=MESH,
        target=Target(32),
    )
    found = strategy(asked)
    scattered = [sum_.scattered for sum_ in found.sums if sum_.scattered is not None]
    for layout in (*found.operands, *found.made, *itertools.chain(*found.paths), *scattered):
        used = factors_of([axis for axes in layout for axis in axes])
        assert len({*used}) == len(used), layout


PARTS = st.lists(st.sampled_from(["x", "y", "x:(1)2", "x:(2)2", "y:(1)2", "y:(2)2", "y:(4)2", "y:(2)4"]), max_size=2)


@given(PARTS)
def test_what_is_left_of_axes_is_all_that_is_not_taken(taken: list[str]) -> None:
    rest = left_over(BOTH, taken, MESH)
    assert {*factors_of(rest)} == {*factors_of(BOTH)} - {*factors_of(taken)}
    assert left_over(rest, taken, MESH) == rest


@given(PARTS, PARTS)
def test_axes_overlap_where_both_have_a_factor(left: list[str], right: list[str]) -> None:
    assert overlap(left, right, MESH) == bool({*factors_of(left)} & {*factors_of(right)})


def test_an_axis_is_cut_into_its_major_part_and_the_rest() -> None:
    assert cut_axis("y", 2, MESH) == ("y:(1)2", "y:(2)4")
    assert cut_axis("y:(2)4", 2, MESH) == ("y:(2)2", "y:(4)2")
    assert ways(cut_axis("y", 4, MESH), MESH) == 8
