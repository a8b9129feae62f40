"""The graph of one device, from small graphs written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from meshwright.dsl.machine import parse_topology
from meshwright.planner.graph import Factors, Graph, Op, Sharding, Value
from meshwright.planner.kinds import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    COLLECTIVE_PERMUTE,
    KINDS,
    REDUCE_SCATTER,
)
from meshwright.planner.partition import partition
from meshwright.planner.topology import Machine, physical

MESH = {"x": 4, "y": 8}
PRODUCT = Factors(
    sizes=(4096, 1024, 2048), operands=(((0,), (2,)), ((2,), (1,))), results=(((0,), (1,)),), reduction=(2,)
)


class Written:
    """A graph while a test writes it."""

    def __init__(self, mesh: Mapping[str, int] = MESH):
        self.mesh = mesh
        self.values: list[Value] = []
        self.ops: list[Op] = []
        self.arguments: list[int] = []

    def value(self, shape: Sequence[int], layout: Sharding, dtype: str = "f32") -> int:
        self.values.append(Value(tuple(shape), dtype, layout))
        return len(self.values) - 1

    def argument(self, shape: Sequence[int], layout: Sharding, dtype: str = "f32") -> int:
        self.arguments.append(self.value(shape, layout, dtype))
        return self.arguments[-1]

    def op(self, kind: str, operands: Sequence[int], shape: Sequence[int], layout: Sharding, **more: Any) -> int:
        result = self.value(shape, layout, more.pop("dtype", "f32"))
        self.ops.append(Op(kind=kind, operands=tuple(operands), results=(result,), **more))
        return result

    def add(self, left: int, right: int) -> int:
        value = self.values[left]
        layout = value.sharding or ()
        dims = tuple((d,) for d in range(len(value.shape)))
        factors = Factors(sizes=value.shape, operands=(dims, dims), results=(dims,))
        return self.op("add", (left, right), value.shape, layout, factors=factors)

    def graph(self, *results: int) -> Graph:
        return Graph(
            values=tuple(self.values),
            ops=tuple(self.ops),
            arguments=tuple(self.arguments),
            results=results,
            mesh=self.mesh,
        )


def machine(topology: str) -> Machine:
    found = parse_topology(topology)
    return physical(found)


def moved(graph: Graph) -> list[tuple[str, tuple[str, ...], int]]:
    """Kind, axes and bytes of every collective."""
    found = []
    for inner, op, times in graph.walk():
        if op.kind in KINDS:
            sizes = [sum(inner.values[v].num_bytes for v in side) for side in (op.operands, op.results)]
            found.append((op.kind, op.attributes["axes"], max(sizes) * times))
    return found


def matrices(left: Sharding, right: Sharding, result: Sharding) -> Graph:
    written = Written()
    a, b = written.argument((4096, 2048), left), written.argument((2048, 1024), right)
    return written.graph(written.op("dot_general", (a, b), (4096, 1024), result, factors=PRODUCT))


def test_weights_that_a_product_needs_whole_are_gathered_in_half_the_bits() -> None:
    local = partition(matrices((("x", "y"), ()), ((), ("x", "y")), (("x", "y"), ())), machine=machine("v3:4x4"))
    assert moved(local) == [(ALL_GATHER, ("x", "y"), 2048 * 1024 * 2)]
    assert [op.kind for op in local.ops] == ["convert", ALL_GATHER, "dot_general"]


def test_what_is_not_for_a_tpu_is_gathered_as_it_is() -> None:
    local = partition(matrices((("x", "y"), ()), ((), ("x", "y")), (("x", "y"), ())), platform="cpu")
    assert moved(local) == [(ALL_GATHER, ("x", "y"), 2048 * 1024 * 4)]


def test_a_split_sum_is_reduced() -> None:
    local = partition(matrices((("x",), ("y",)), (("y",), ()), (("x",), ())), machine=machine("v3:4x4"))
    assert moved(local) == [(ALL_REDUCE, ("y",), 1024 * 1024 * 4)]


@pytest.mark.parametrize(
    ("result", "found"),
    [(((), ("x",)), [(ALL_TO_ALL, ("x",), 1024 * 1024 // 4 * 4)]), ((("x",), ("y",)), [])],  # slices are free
)
def test_numbers_that_lie_alike_are_added_before_the_sum_is_moved(
    result: Sharding, found: list[tuple[str, tuple[str, ...], int]]
) -> None:
    written = Written()
    a, b = (written.argument((1024, 1024), (("x",), ())) for _ in range(2))
    dims = ((0,), (1,))
    factors = Factors(sizes=(1024, 1024), operands=(dims, dims), results=(dims,))
    graph = written.graph(written.op("add", (a, b), (1024, 1024), result, factors=factors))
    assert moved(partition(graph, machine=machine("v3:4x4"))) == found


def test_a_square_is_moved_as_what_it_is_of_is_moved_for_others() -> None:
    """A gradient for an optimiser whose state lies otherwise, ``f32[2048,4096]``: compiled for v5e:4x4 (and others for
    v3 and v4) two exchanges of 2 MiB, of the gradient and of its square.
    """
    written = Written({"x": 4, "y": 4})
    g, c = (written.argument((2048, 4096), split) for split in (((), ("x", "y")), (("y",), ("x",))))
    dims = ((0,), (1,))
    factors = Factors(sizes=(2048, 4096), operands=(dims, dims), results=(dims,))
    made = [written.op("multiply", pair, (2048, 4096), (("y",), ("x",)), factors=factors) for pair in ((c, g), (g, g))]
    assert moved(partition(written.graph(*made), machine=machine("v5e:4x4"))) == [(ALL_TO_ALL, ("y",), 2**21)] * 2


@pytest.mark.parametrize("squares", ["first", "last"])
def test_how_a_product_of_numbers_is_computed_hangs_on_no_other_of_the_same_loops(squares: str) -> None:
    """A square moves what it makes, as a product of two values does that lie alike, and a product of others what it
    reads, whichever of them comes first.
    """
    written = Written()
    a, b = (written.argument((1024, 1024), split) for split in ((("x",), ()), (("y",), ())))
    dims = ((0,), (1,))
    factors = Factors(sizes=(1024, 1024), operands=(dims, dims), results=(dims,))
    pairs = [(a, a), (a, b)] if squares == "first" else [(a, b), (a, a)]
    made = [written.op("multiply", pair, (1024, 1024), ((), ("x",)), factors=factors) for pair in pairs]
    local = partition(written.graph(*made), machine=machine("v3:4x4"))
    found = [local.shape(op.results[0]) for op in local.ops if op.kind == "multiply"]
    assert found == [(256, 1024) if left == right else (1024, 256) for left, right in pairs]


@pytest.mark.parametrize(
    ("topology", "kind"), [("v3:4x4", ALL_REDUCE), ("v3:4x8", REDUCE_SCATTER), ("tpu7x:2x2x4", REDUCE_SCATTER)]
)
def test_a_sum_over_all_devices_is_scattered_where_one_ring_or_other_cores_pass_them(topology: str, kind: str) -> None:
    mesh = {"x": 8, "y": 8} if topology == "v3:4x8" else {"x": 4, "y": 8}
    written = Written(mesh)
    split: Sharding = (("x", "y"), ())
    a, b = written.argument((2048, 4096), split), written.argument((2048, 1024), split)
    factors = Factors(
        sizes=(4096, 1024, 2048), operands=(((2,), (0,)), ((2,), (1,))), results=(((0,), (1,)),), reduction=(2,)
    )
    graph = written.graph(written.op("dot_general", (a, b), (4096, 1024), split, factors=factors))
    (first, *_) = moved(partition(graph, machine=machine(topology)))
    assert first == (kind, ("x", "y"), 4096 * 1024 * 4)


@pytest.mark.parametrize(("stride", "kind"), [(1, ALL_REDUCE), (2, REDUCE_SCATTER)])
def test_a_sum_of_which_some_rows_are_read_is_not_scattered(stride: int, kind: str) -> None:
    written = Written({"x": 8, "y": 8})
    split: Sharding = (("x", "y"), ())
    a, b = written.argument((2048, 4096), split), written.argument((2048, 1024), split)
    factors = Factors(
        sizes=(4096, 1024, 2048), operands=(((2,), (0,)), ((2,), (1,))), results=(((0,), (1,)),), reduction=(2,)
    )
    summed = written.op("dot_general", (a, b), (4096, 1024), split, factors=factors)
    rows = {"start_indices": (0, 0), "limit_indices": (4096, 1022), "strides": (1, stride)}
    cut = Factors(sizes=(4096, 1024), operands=(((0,), (1,)),), results=(((0,), (1,)),), permutation=(1,))
    kept = written.op("slice", (summed,), (4096, 1022 // stride), split, factors=cut, attributes=rows)
    (first, *_) = moved(partition(written.graph(kept), machine=machine("v3:4x8")))
    assert first[0] == kind


@pytest.mark.parametrize(("axes", "kinds"), [(("x", "y"), [REDUCE_SCATTER]), (("y", "x"), [ALL_GATHER, ALL_REDUCE])])
def test_a_sum_kept_along_a_minor_axis_is_scattered(axes: tuple[str, ...], kinds: list[str]) -> None:
    written = Written({"x": 4, "y": 4})
    left, right = written.argument((2048, 4096), (("x",), ("y",))), written.argument((4096, 512), (("y",), ()))
    product = Factors(
        sizes=(2048, 512, 4096), operands=(((0,), (2,)), ((2,), (1,))), results=(((0,), (1,)),), reduction=(2,)
    )
    graph = written.graph(written.op("dot_general", (left, right), (2048, 512), (axes, ()), factors=product))
    found = [kind for kind, *_ in moved(partition(graph, machine=machine("v5e:4x4")))]
    assert [kind for kind in found if kind != COLLECTIVE_PERMUTE] == kinds


def test_one_number_in_all_places_is_never_gathered() -> None:
    written = Written()
    number = written.argument((), ())
    rows = Factors(sizes=(64, 64), operands=((),), results=(((0,), (1,)),))
    zeros = written.op("broadcast_in_dim", (number,), (64, 64), (("x",), ()), factors=rows)
    whole = written.op("sharding_constraint", (zeros,), (64, 64), ((), ()))
    assert moved(partition(written.graph(whole), machine=machine("v3:4x4"))) == []


def test_an_axis_of_rows_looked_up_gives_way_to_an_equal_one() -> None:
    """A table split by rows and columns, indices by the columns' axis: these move to the rows' axis by a permute."""
    written = Written({"x": 4, "y": 4})
    table = written.argument((32768, 1024), (("y",), ("x",)))
    ids = written.argument((64, 512, 1), (("x",), (), ()), "s32")
    factors = Factors(
        sizes=(64, 512, 1024, 32768, 1),
        operands=(((3,), (2,)), ((0,), (1,), (4,))),
        results=(((0,), (1,), (2,)),),
        reduction=(3,),
        replicated=(4,),
    )
    rows = written.op("gather", (table, ids), (64, 512, 1024), ((), (), ("x",)), factors=factors)
    kinds = [kind for kind, *_ in moved(partition(written.graph(rows), machine=machine("v5e:4x4")))]
    assert sorted(kinds) == [ALL_GATHER, ALL_GATHER, COLLECTIVE_PERMUTE]


def test_the_sum_of_two_partial_sums_is_reduced_once() -> None:
    written = Written()
    left, right, result = (("x",), ("y",)), (("y",), ()), (("x",), ())
    a, b = written.argument((4096, 2048), left), written.argument((2048, 1024), right)
    c, d = written.argument((4096, 2048), left), written.argument((2048, 1024), right)
    one = written.op("dot_general", (a, b), (4096, 1024), result, factors=PRODUCT)
    other = written.op("dot_general", (c, d), (4096, 1024), result, factors=PRODUCT)
    local = partition(written.graph(written.add(one, other)), machine=machine("v3:4x4"))
    assert [kind for kind, *_ in moved(local)] == [ALL_REDUCE]


@pytest.mark.parametrize(("between", "gathers"), [(3, 1), (150, 2)])
def test_gathers_are_shared_by_readers_that_are_near(between: int, gathers: int) -> None:
    written = Written()
    rows: Sharding = (("x", "y"), ())
    a, w = written.argument((4096, 2048), rows), written.argument((2048, 1024), ((), ("x", "y")))
    value = written.op("dot_general", (a, w), (4096, 1024), rows, factors=PRODUCT)
    for _ in range(between):
        value = written.add(value, value)
    back = Factors(
        sizes=(4096, 2048, 1024), operands=(((0,), (2,)), ((1,), (2,))), results=(((0,), (1,)),), reduction=(2,)
    )
    result = written.op("dot_general", (value, w), (4096, 2048), rows, factors=back)
    assert len(moved(partition(written.graph(result), machine=machine("v3:4x4")))) == gathers


LOOKUP = Factors(
    sizes=(64, 512, 1024, 32000, 1),
    operands=(((3,), (2,)), ((0,), (1,), (4,))),
    results=(((0,), (1,), (2,)),),
    reduction=(3,),
    replicated=(4,),
)


def looked_up(table: Sharding, tokens: Sharding, result: Sharding) -> list[tuple[str, tuple[str, ...], int]]:
    written = Written()
    rows, found = written.argument((32000, 1024), table), written.argument((64, 512, 1), tokens, "s32")
    attributes = {"slice_sizes": (1, 1024)}
    value = written.op("gather", (rows, found), (64, 512, 1024), result, factors=LOOKUP, attributes=attributes)
    return moved(partition(written.graph(value), machine=machine("v3:4x4")))


def test_each_device_looks_up_its_own_rows_of_a_split_table() -> None:
    found = looked_up((("y",), ()), (("x",), (), ()), (("x",), (), ()))
    assert found == [(ALL_REDUCE, ("y",), 16 * 512 * 1024 * 4)]


def test_a_table_split_over_the_tokens_own_axes_is_gathered() -> None:
    rows: Sharding = (("x", "y"), (), ())
    assert looked_up((("x", "y"), ()), rows, rows) == [(ALL_GATHER, ("x", "y"), 32000 * 1024 * 4)]


def test_rows_are_looked_up_as_the_tokens_lie_and_then_exchanged() -> None:
    """As compiled: how the result is to lie does not say where rows are looked up."""
    both = ("x", "y")
    found = looked_up((both, ()), (both, (), ()), ((), both, ()))
    assert found == [(ALL_GATHER, both, 32000 * 1024 * 4), (ALL_TO_ALL, both, 64 * 16 * 1024 * 4)]


def test_split_columns_are_looked_up_where_they_are() -> None:
    assert looked_up(((), ("y",)), (("x",), (), ()), (("x",), (), ("y",))) == []


def test_a_relaid_value_moves_by_all_to_all() -> None:
    written = Written()
    value = written.argument((64, 64), (("x",), ()))
    local = partition(written.graph(written.op("reshard", (value,), (64, 64), ((), ("x",)))), platform="cpu")
    assert moved(local) == [(ALL_TO_ALL, ("x",), 64 * 16 * 4)]


def test_a_shift_along_a_split_dim_takes_rows_of_the_neighbour() -> None:
    written = Written()
    value = written.argument((1024, 64), (("x",), ()))
    factors = Factors(sizes=(1024, 64), operands=(((0,), (1,)),), results=(((0,), (1,)),), permutation=(0,))
    attributes = {"start_indices": (4, 0), "limit_indices": (1024, 64), "strides": (1, 1)}
    result = written.op("slice", (value,), (1020, 64), (("x",), ()), factors=factors, attributes=attributes)
    local = partition(written.graph(result), platform="cpu")
    assert moved(local) == [(COLLECTIVE_PERMUTE, ("x",), 3 * 64 * 4)]


def test_what_a_loop_carries_keeps_its_layout_and_its_collectives_count_by_turns() -> None:
    inner = Written()
    rows: Sharding = (("x", "y"), ())
    x, w = inner.argument((4096, 1024), rows), inner.argument((1024, 1024), ((), ("x", "y")))
    factors = Factors(
        sizes=(4096, 1024, 1024), operands=(((0,), (2,)), ((2,), (1,))), results=(((0,), (1,)),), reduction=(2,)
    )
    body = inner.graph(inner.op("dot_general", (x, w), (4096, 1024), rows, factors=factors))
    written = Written()
    start, weights = written.argument((4096, 1024), ((), ())), written.argument((1024, 1024), ((), ("x", "y")))
    result = written.op("while", (start, weights), (4096, 1024), rows, bodies=(body,), trips=6)
    local = partition(written.graph(result), machine=machine("v3:4x4"))
    assert moved(local) == [(ALL_GATHER, ("x", "y"), 6 * 1024 * 1024 * 2)]
    assert local.ops[-1].bodies[0].shape(local.ops[-1].bodies[0].arguments[0]) == (128, 1024)


def test_what_nothing_reads_is_not_communicated() -> None:
    graph = matrices((("x", "y"), ()), ((), ("x", "y")), (("x", "y"), ()))
    unread = Graph(values=graph.values, ops=graph.ops, arguments=graph.arguments, results=graph.arguments, mesh=MESH)
    assert partition(unread, platform="cpu").ops == ()


def test_a_long_product_becomes_a_loop_of_permutes_from_v4_on() -> None:
    written = Written()
    split: Sharding = (("x", "y"), ())
    a, b = written.argument((16384, 4096), split), written.argument((16384, 1024), split)
    factors = Factors(
        sizes=(4096, 1024, 16384), operands=(((2,), (0,)), ((2,), (1,))), results=(((0,), (1,)),), reduction=(2,)
    )
    graph = written.graph(written.op("dot_general", (a, b), (4096, 1024), split, factors=factors))
    local = partition(graph, machine=machine("v5e:4x8"))
    found = moved(local)
    assert {kind for kind, *_ in found} == {COLLECTIVE_PERMUTE}
    assert sum(size for *_, size in found) == 33 * 128 * 1024 * 4
    assert partition(graph, machine=machine("v3:4x4")).ops[-1].kind != "while"


def test_a_product_in_a_region_of_a_loop_sends_what_one_in_the_loop_sends() -> None:
    rows: Sharding = (("x",), ())
    product = Factors(
        sizes=(4096, 1024, 16384), operands=(((2,), (0,)), ((2,), (1,))), results=(((0,), (1,)),), reduction=(2,)
    )

    def around(kind: str, body: Graph, **more: Any) -> Graph:
        written = Written({"x": 8})
        a, b = written.argument((16384, 4096), rows), written.argument((16384, 1024), rows)
        return written.graph(written.op(kind, (a, b), (4096, 1024), rows, bodies=(body,), **more))

    def sent(graph: Graph) -> int:
        found = moved(partition(graph, machine=machine("v5e:2x4")))
        assert {kind for kind, *_ in found} == {COLLECTIVE_PERMUTE}
        return sum(size for *_, size in found)

    inner = Written({"x": 8})
    a, b = inner.argument((16384, 4096), rows), inner.argument((16384, 1024), rows)
    body = inner.graph(inner.op("dot_general", (a, b), (4096, 1024), rows, factors=product))
    layouts = {"in_shardings": (rows, rows), "out_shardings": (rows,)}
    region = around("manual_computation", body, attributes=layouts)
    assert sent(region) == sent(body)
    assert sent(around("while", region)) == sent(around("while", body)) == sent(body)


def test_a_transpose_whose_ends_lie_alike_exchanges_what_it_turns() -> None:
    """Rows before are columns after: that both are split along their first dim is no reason to stay."""
    written = Written({"x": 8})
    rows: Sharding = (("x",), ())
    factors = Factors(sizes=(512, 512), operands=(((1,), (0,)),), results=(((0,), (1,)),))
    a = written.argument((512, 512), rows)
    turned = written.op("transpose", (a,), (512, 512), rows, factors=factors, attributes={"permutation": (1, 0)})
    (collective,) = moved(partition(written.graph(turned), machine=machine("v3:2x2")))
    assert collective == (ALL_TO_ALL, ("x",), 512 * 512 * 4 // 8)


def test_truths_that_products_read_are_moved_as_they_are() -> None:
    written = Written()
    a, b = written.argument((4096, 2048), (("x", "y"), ())), written.argument((4096, 2048), (("x", "y"), ()))
    layout: Sharding = ((), ("x", "y"))
    c = written.argument((1024, 2048), layout)
    dims = ((0,), (1,))
    factors = Factors(sizes=(4096, 2048), operands=(dims, dims), results=(dims,))
    found = written.op("compare", (a, b), (4096, 2048), (("x", "y"), ()), factors=factors, dtype="pred")
    same = Factors(sizes=(4096, 2048), operands=(dims,), results=(dims,))
    mask = written.op("convert", (found,), (4096, 2048), (("x", "y"), ()), factors=same)
    product = Factors(
        sizes=(4096, 1024, 2048), operands=(((0,), (2,)), ((1,), (2,))), results=(((0,), (1,)),), reduction=(2,)
    )
    result = written.op("dot_general", (mask, c), (4096, 1024), ((), ("x", "y")), factors=product)
    (first, *_) = moved(partition(written.graph(result), machine=machine("v3:4x4")))
    assert first[2] == 4096 * 2048  # one byte a number


@pytest.mark.parametrize(("rows", "found"), [(1, []), (2, [(ALL_GATHER, ("x",), 8 * 512 * 512 * 4)])])
def test_one_place_of_a_split_dim_is_updated_where_it_lies(
    rows: int, found: list[tuple[str, tuple[str, ...], int]]
) -> None:
    written = Written()
    stack, update = written.argument((8, 512, 512), (("x",), (), ())), written.argument((rows, 512, 512), ((), (), ()))
    place = written.argument((), (), "s32")
    result = written.op("dynamic_update_slice", (stack, update, place), (8, 512, 512), (("x",), (), ()))
    assert moved(partition(written.graph(result), machine=machine("v3:4x4"))) == found
