"""Copies that lookups ask for: rows one by one, arrays put together for a product, caches that a step is only lent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.chip import Chip
from meshwright.planner.compute import price, speed_of
from meshwright.planner.compute.batched import growth_of
from meshwright.planner.compute.copies.turning import Side, turning_cycles
from meshwright.planner.compute.cycles import cycles_of
from meshwright.planner.compute.price import price_at
from meshwright.planner.compute.work import padded_bytes, padded_elements, work_of
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kernels import Kernel, Program
from meshwright.planner.kinds import ALL_REDUCE
from meshwright.planner.lookups import FILL, added_by, filled, row_tiles, tables_of

EDGES, NODES = 262144, 32768
ROWS = {"collapsed_slice_dims": (0,), "offset_dims": (1,)}


def chip(name: str) -> Chip:
    return catalogue()[name]


def cycles(graph: Graph, name: str) -> float:
    """What the compiler would count of a graph."""
    return sum(each.cycles for each in price(fuse(graph), chip(name)) if each.counted)


def added(columns: int) -> Graph:
    """Messages of so many columns, which a product makes, added to nodes."""
    shapes = ((EDGES, 16), (16, columns), (EDGES, columns), (NODES, columns), (EDGES, 1), (NODES, columns))
    product = Op(
        kind="dot_general",
        operands=(0, 1),
        results=(2,),
        attributes={"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)},
    )
    said = {"inserted_window_dims": (0,), "update_window_dims": (1,)}
    scatter = Op(kind="scatter", operands=(3, 4, 2), results=(5,), attributes=said)
    values = tuple(Value(shape, "s32" if number == 4 else "f32") for number, shape in enumerate(shapes))
    return Graph(values=values, ops=(product, scatter), arguments=(0, 1, 3, 4), results=(5,))


def test_messages_of_few_columns_are_copied_to_lie_row_by_row() -> None:
    """f32[262144,8] compiled for v3: 339950 cycles for the copy; of 128 columns none is made."""
    narrow, wide = ([each for each in price(fuse(added(columns)), chip("v3")) if each.counted] for columns in (8, 128))
    assert narrow[-1].cycles == pytest.approx(339950, rel=0.05)
    assert len(wide) == len(narrow) - 1


def test_a_row_that_nothing_pads_takes_no_more_registers() -> None:
    assert row_tiles(Value((1024, 256), "f32")) == 1024 * 256 // 1024
    assert row_tiles(Value((262144, 8), "f32")) == 16 * 262144 * 8 // 1024
    assert row_tiles(Value((4096, 1, 32), "f32")) == row_tiles(Value((4096, 32), "f32"))


def momentum(columns: int) -> Graph:
    """Rows added to a momentum that decays, and the table that it moves."""
    table = (65536, columns)
    shapes = (table, table, (16384, 1), (16384, columns), table, table, table)
    said = {"inserted_window_dims": (0,), "update_window_dims": (1,)}
    ops = (
        Op(kind="multiply", operands=(0, 0), results=(4,)),
        Op(kind="scatter", operands=(4, 2, 3), results=(5,), attributes=said),
        Op(kind="subtract", operands=(1, 5), results=(6,)),
    )
    values = tuple(Value(shape, "s32" if number == 2 else "f32") for number, shape in enumerate(shapes))
    return Graph(values=values, ops=ops, arguments=(0, 1, 2, 3), results=(5, 6))


@pytest.mark.parametrize(
    ("name", "columns", "compiled"),
    [
        ("v3", 16, 653008),
        ("v3", 64, 859916),
        ("v4", 64, 866200),
        ("v5e", 16, 354164),
        ("v5e", 64, 527552),
        ("v5p", 64, 519598),
        ("v6e", 16, 320302),
        ("v6e", 64, 471264),
    ],
)
def test_what_decays_before_rows_are_added_lies_as_it_wastes_least(name: str, columns: int, compiled: int) -> None:
    """Compiled cycles of all: the update goes through whole rows of lanes, and both results are copied back."""
    assert cycles(momentum(columns), name) == pytest.approx(compiled, rel=0.25)


@pytest.mark.parametrize(
    ("name", "shape", "is_result", "free_bytes", "compiled"),
    [
        ("v5e", (65536, 64), False, 0, 98624),  # read near, left in the large memory
        ("v5e", (65536, 64), False, 2**26, 1600),  # all near
        ("v5e", (65536, 64), True, 0, 64512),
        ("v5e", (1048576, 4), False, 0, 1444968),
        ("v5e", (1048576, 4), True, 0, 1842810),  # nothing near
        ("v4", (32768, 64), False, None, 34688),  # all in the common memory
        ("v4", (32768, 64), True, None, 44432),
        ("v4", (1048576, 2), False, None, 1417884),
        ("v4", (1048576, 2), True, None, 1457046),
        ("v5p", (65536, 64), False, 0, 71864),
        ("v3", (65536, 64), True, None, 118960),
    ],
)
def test_a_copy_into_rows_waits_window_by_window_for_either_side(
    name: str, shape: tuple[int, int], is_result: bool, free_bytes: int | None, compiled: int
) -> None:
    """Cycles of such copies as compiled, by where they read and what they make lies."""
    held, of = Value(shape, "f32"), speed_of(chip(name)).coefficients
    least = Side(padded_elements(shape) / 1024, padded_bytes(held))
    rows = Side(row_tiles(held), row_tiles(held) * 4096)
    read, made = (rows, least) if is_result else (least, rows)
    found = turning_cycles(read, made, of, is_result=is_result, free_bytes=free_bytes)
    assert found == pytest.approx(compiled, rel=0.17)


@pytest.mark.parametrize(
    ("name", "batch", "length", "compiled"),
    [
        ("v3", 16, 4096, 1193472),
        ("v3", 2, 1024, 39220),
        ("v4", 16, 4096, 1188928),
        ("v4", 4, 4096, 299536 / 2),
        ("v4", 4, 2048, 0),
        ("v5e", 16, 4096, 1208640),
        ("v5e", 16, 2048, 604704 / 2),
        ("v5e", 12, 2048, 0),
        ("v5p", 16, 4096, 468192),
        ("v5p", 8, 2048, 117624 / 2),
        ("v5p", 4, 2048, 0),
        ("v6e", 16, 4096, 709760),
        ("v6e", 6, 2048, 0),
    ],
)
def test_a_cache_that_is_only_lent_is_copied_beside_the_rest_where_it_has_room_near(
    name: str, batch: int, length: int, compiled: float
) -> None:
    """Compiled cycles of a cache's copy; every other one of them is moved where there is room once."""
    cache, piece = Value((batch, length, 8, 128), "bf16"), Value((batch, 1, 8, 128), "bf16")
    update = Op(kind="dynamic_update_slice", operands=(0, 1, 2, 3, 2, 2), results=(4,))
    values = (cache, piece, Value((), "s32"), Value((), "s32"), cache)
    graph = Graph(values=values, ops=(update,), arguments=(0, 1, 2, 3), results=(4,), names=tuple("abcd"))
    (lent,), (given,) = (list(price(fuse(replace(graph, aliases=aliases)), chip(name))) for aliases in ({}, {0: 0}))
    assert lent.cycles - given.cycles == pytest.approx(compiled, rel=0.12, abs=100)


def test_what_is_scattered_and_added_up_over_devices_goes_by_what_the_step_is_given() -> None:
    """A recommender's tables of f32[262144,16] a device compiled for v5e: 81700 cycles to move one by its gradient, and
    twice 367000 to bring that into rows and back for the scatter.
    """
    table = Value((262144, 16), "f32")
    said = {"inserted_window_dims": (0,), "update_window_dims": (1,)}
    ops = (
        Op(kind="multiply", operands=(0, 0), results=(4,)),
        Op(kind="scatter", operands=(4, 2, 3), results=(5,), attributes=said),
        Op(kind=ALL_REDUCE, operands=(5,), results=(6,)),
        Op(kind="multiply", operands=(6, 6), results=(7,)),
        Op(kind="subtract", operands=(1, 7), results=(8,)),
    )
    values = (table, table, Value((4096, 1), "s32"), Value((4096, 16), "f32"), *[table] * 5)
    graph = Graph(values=values, ops=ops, arguments=(0, 1, 2, 3), results=(8,))
    _, scatter, update = [each.cycles for each in price(fuse(graph), chip("v5e"))]
    assert scatter == pytest.approx(2 * 367000, rel=0.2)
    assert update == pytest.approx(81700, rel=0.5)


@pytest.mark.parametrize(
    ("name", "cycles"),
    [("v5e", 186919 + 2 * 34089), ("v6e", 81061 + 81950 + 2 * 31130), ("v3", 288391 + 3 * 77055)],
)
def test_a_table_in_which_rows_are_looked_up_is_updated_row_by_row(name: str, cycles: int) -> None:
    """Compiled so for v3, v4, v5e, v5p and v6e: f32[50000,32] under Adagrad, and the copies around that."""
    table, rows = Value((50000, 32), "f32"), Value((512, 32), "f32")
    said = {"inserted_window_dims": (0,), "update_window_dims": (1,)}
    ops = (
        Op(kind="gather", operands=(0, 3), results=(4,), attributes=ROWS | {"slice_sizes": (1, 32)}),
        Op(kind="scatter", operands=(2, 3, 4), results=(5,), attributes=said),
        Op(kind=ALL_REDUCE, operands=(5,), results=(6,)),
        Op(kind="multiply", operands=(6, 6), results=(7,)),
        Op(kind="add", operands=(1, 7), results=(8,)),
        Op(kind="divide", operands=(6, 8), results=(9,)),
        Op(kind="add", operands=(0, 9), results=(10,)),
    )
    values = (table, table, table, Value((512, 1), "s32"), rows, *[table] * 6)
    graph = Graph(values=values, ops=ops, arguments=(0, 1, 2, 3), results=(8, 10))
    *_, update = price(fuse(graph), chip(name))
    assert update.cycles == pytest.approx(cycles, rel=0.22)


def test_each_scatter_begins_with_an_array_of_its_own() -> None:
    """Compiled for v4 and v5e: the gradients of eight tables begin with eight arrays of zeros, and what else reads
    zeros makes them in passing.
    """
    one = zeros(100000, 2048)
    table = one.values[4]
    second = replace(one.ops[1], results=(5,))
    masked = Op(kind="maximum", operands=(1, 5), results=(6,))
    graph = replace(one, values=(*one.values, table, table), ops=(*one.ops, second, masked), results=(4, 6))
    kernels = [[program.graph.ops[n].kind for n in kernel.ops] for program, kernel, _ in fuse(graph).walk()]
    assert sorted(kernels) == [[FILL], [FILL], [FILL, "maximum"], ["scatter"], ["scatter"]]


def zeros(rows: int, scattered: int, width: int = 64, dtype: str = "f32") -> Graph:
    shapes = ((), (rows, width), (scattered, 1), (scattered, width), (rows, width))
    fill = Op(kind="broadcast_in_dim", operands=(0,), results=(1,))
    said = {"inserted_window_dims": (0,), "update_window_dims": (1,)}
    scatter = Op(kind="scatter", operands=(1, 2, 3), results=(4,), attributes=said)
    values = tuple(Value(shape, dtype) for shape in shapes)
    return Graph(values=values, ops=(fill, scatter), arguments=(0, 2, 3), results=(4,))


def stacked_zeros(rows: int, added: int) -> Graph:
    """The same of four tables at once."""
    shapes = ((), (4, rows, 16), (4, added, 1), (4, added, 16), (4, rows, 16))
    fill = Op(kind=FILL, operands=(0,), results=(1,))
    said = {
        "input_batching_dims": (0,),
        "inserted_window_dims": (1,),
        "scatter_indices_batching_dims": (0,),
        "update_window_dims": (2,),
    }
    scatter = Op(kind="scatter", operands=(1, 2, 3), results=(4,), attributes=said)
    return Graph(
        values=tuple(Value(shape, "f32") for shape in shapes), ops=(fill, scatter), arguments=(0, 2, 3), results=(4,)
    )


@pytest.mark.parametrize("of", [zeros, stacked_zeros])
def test_a_scatter_of_many_rows_fills_what_it_adds_to(of: Callable[[int, int], Graph]) -> None:
    """Compiled so for v3 and v5e, also for eight tables of 131072 rows to each of which 4096 are added."""
    assert filled(of(8192, 2048), is_wide=False) == {1}
    assert not filled(of(100000, 2048), is_wide=False)


@pytest.mark.parametrize(
    ("rows", "width", "dtype", "most", "least"),
    [
        (32000, 1024, "bf16", 3500, 4096),
        (32000, 1024, "f32", 6000, 7900),
        (8192, 512, "bf16", 128, 512),
        (8192, 512, "f32", 512, 1024),
    ],
)
def test_a_scatter_of_few_rows_for_its_table_finds_it_written(
    rows: int, width: int, dtype: str, most: int, least: int
) -> None:
    """Compiled so for v4 and v5e; tables of 7168 x 512 are filled for 16 rows (v5e)."""
    assert not filled(zeros(rows, most, width, dtype), is_wide=False)
    assert filled(zeros(rows, least, width, dtype), is_wide=False) == {1}
    assert filled(zeros(7168, 16, 512, dtype), is_wide=False) == {1}


def test_of_tables_of_any_size_a_scatter_may_fill_all_that_it_adds_rows_to() -> None:
    for rows, added in ((32000, 1024), (32000, 4096), (7168, 16), (4000000, 16)):
        assert filled(zeros(rows, added, 512, "f32")) == {1}


def cache(*, donated: bool) -> Graph:
    """A decoder's cache into which a step puts one position."""
    whole, new = Value((32, 1024, 16, 64), "bf16"), Value((32, 1, 16, 64), "bf16")
    at = Value((), "s32")
    put = Op(kind="dynamic_update_slice", operands=(0, 1, 2, 2, 2, 2), results=(3,))
    return Graph(
        values=(whole, new, at, whole),
        ops=(put,),
        arguments=(0, 1, 2),
        results=(3,),
        names=("cache", "new", "at"),
        result_names=("0",),
        aliases={0: 0} if donated else {},
    )


def test_a_cache_that_is_not_donated_is_copied_whole() -> None:
    """598272 cycles compiled for v3, as if it were of float32."""
    assert cycles(cache(donated=False), "v3") == pytest.approx(598272, rel=0.1)
    assert cycles(cache(donated=True), "v3") < 0.01 * 598272


@pytest.mark.parametrize(("name", "counted"), [("v3", 451936), ("v5e", 469500), ("v6e", 284000)])
def test_one_query_is_multiplied_number_by_number(name: str, counted: int) -> None:
    """A query of each of 16 heads with 1024 keys, in bfloat16: no square is used."""
    query, keys, scores = Value((32, 16, 64), "bf16"), Value((32, 1024, 16, 64), "bf16"), Value((32, 16, 1024), "f32")
    said = {
        "lhs_batching_dimensions": (0, 1),
        "rhs_batching_dimensions": (0, 2),
        "lhs_contracting_dimensions": (2,),
        "rhs_contracting_dimensions": (3,),
    }
    op = Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=said)
    graph = Graph(values=(query, keys, scores), ops=(op,), arguments=(0, 1), results=(2,))
    assert cycles(graph, name) == pytest.approx(counted, rel=0.25)


def test_what_is_taken_apart_along_a_dim_has_others_on_the_lanes() -> None:
    """Every other one of 1024 steps, of 32 features by 8 states: no step is a lane, so that features fill a quarter."""
    whole, half = Value((8, 1024, 32, 8), "f32"), Value((8, 512, 32, 8), "f32")
    said = {"strides": (1, 2, 1, 1), "start_indices": (0, 0, 0, 0), "limit_indices": (8, 1024, 32, 8)}
    op = Op(kind="slice", operands=(0,), results=(1,), attributes=said)
    graph = Graph(values=(whole, half), ops=(op,), arguments=(0,), results=(1,))
    assert growth_of(graph) == {0: 4.0, 1: 4.0}


def joined(*, looked_up: bool) -> Graph:
    """What nodes know, and what came to them, put together for a product."""
    nodes, both = Value((NODES, 256), "f32"), Value((NODES, 512), "f32")
    values = (nodes, Value((EDGES, 1), "s32"), Value((EDGES, 256), "f32"), nodes, nodes, both, Value((512, 256), "f32"))
    said = {"inserted_window_dims": (0,), "update_window_dims": (1,)}
    came = (
        Op(kind="scatter", operands=(0, 1, 2), results=(3,), attributes=said)
        if looked_up
        else Op(kind="add", operands=(0, 0), results=(3,))
    )
    join = Op(kind="concatenate", operands=(4, 3), results=(5,), attributes={"dimension": 1})
    product = Op(
        kind="dot_general",
        operands=(5, 6),
        results=(7,),
        attributes={"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)},
    )
    return Graph(values=(*values, nodes), ops=(came, join, product), arguments=(0, 1, 2, 4, 6), results=(7,))


def test_what_a_product_puts_together_is_copied_from_what_was_added_up() -> None:
    """f32[32768,256] compiled for v3: 167206 cycles."""
    found = {each.kernel.ops: each for each in price(fuse(joined(looked_up=True)), chip("v3"))}
    assert found[0,].counted
    assert found[0,].cycles == pytest.approx(167206, rel=0.05)


def test_a_step_of_a_recurrent_net_multiplies_what_is_at_hand() -> None:
    """f32[16,2048] = bf16[16,512] by bf16[512,2048] in vector memory: 1536 cycles compiled for v6e."""
    said = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    shapes = ((16, 512), (512, 2048), (16, 2048))
    widths = [Value(shape, "bf16") for shape in shapes]
    product = Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=said)
    more = Op(kind="dot_general", operands=(2, 3), results=(4,), attributes=said | {"rhs_contracting_dimensions": (1,)})
    graph = Graph(
        values=(*widths, Value((512, 2048), "bf16"), Value((16, 512), "f32")),
        ops=(product, more),
        arguments=(0, 1, 3),
        results=(4,),
    )
    first, *_ = price(fuse(graph), chip("v6e"))
    near = cycles_of(work_of(graph, first.kernel), [True, True], [True], 256, speed_of(chip("v6e")).coefficients).total
    assert near == pytest.approx(1536, rel=0.25)


def summed_and_counted() -> Graph:
    """Messages of 8 columns and weights of 16, which products make, added to two tables at once."""
    shapes = ((EDGES, 16), (16, 8), (EDGES, 8), (16, 16), (EDGES, 16), (NODES, 8), (NODES, 16), (EDGES, 1))
    said = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    messages = Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=said)
    weights = Op(kind="dot_general", operands=(0, 3), results=(4,), attributes=said)
    said = {"inserted_window_dims": (0,), "update_window_dims": (1,)}
    scatter = Op(kind="scatter", operands=(5, 6, 7, 2, 4), results=(8, 9), attributes=said)
    values = tuple(
        Value(shape, "s32" if n == 7 else "f32") for n, shape in enumerate((*shapes, (NODES, 8), (NODES, 16)))
    )
    return Graph(values=values, ops=(messages, weights, scatter), arguments=(0, 1, 3, 5, 6, 7), results=(8, 9))


def test_all_that_a_scatter_of_several_arrays_adds_is_copied() -> None:
    graph = summed_and_counted()
    scatter = graph.ops[-1]
    assert (tables_of(scatter), added_by(scatter)) == ((5, 6), (2, 4))
    one = next(each.cycles for each in price(fuse(added(8)), chip("v3")) if each.kernel.ops == (1,))
    both = next(each.cycles for each in price(fuse(graph), chip("v3")) if each.kernel.ops == (2,))
    assert both > 1.5 * one


def test_what_a_scatter_adds_is_computed_before() -> None:
    """Messages masked before they are added up: no scatter compiled for v3 to v6e chooses itself."""
    shapes = ((EDGES, 128), (EDGES, 128), (NODES, 128), (EDGES, 1), (EDGES, 128), (NODES, 128))
    choose = Op(kind="select", operands=(6, 0, 1), results=(4,))
    said = {"inserted_window_dims": (0,), "update_window_dims": (1,)}
    scatter = Op(kind="scatter", operands=(2, 3, 4), results=(5,), attributes=said)
    values = (
        *(Value(shape, "s32" if n == 3 else "f32") for n, shape in enumerate(shapes)),
        Value((EDGES, 128), "pred"),
    )
    graph = Graph(values=values, ops=(choose, scatter), arguments=(0, 1, 2, 3, 6), results=(5,))
    assert [kernel.ops for kernel in fuse(graph).kernels] == [(0,), (1,)]


def test_what_a_lookup_takes_besides_its_copies_counts() -> None:
    """A table that each turn of a loop cuts out of a stack that lies another way, and looks rows up in."""
    shapes = ((4, NODES, 8), (1, NODES, 8), (NODES, 8), (EDGES, 1), (EDGES, 8), ())
    values = tuple(Value(shape, "f32" if len(shape) > 1 and n != 3 else "s32") for n, shape in enumerate(shapes))
    cut = Op(kind="dynamic_slice", operands=(0, 5), results=(1,), attributes={"slice_sizes": shapes[1]})
    flat = Op(kind="reshape", operands=(1,), results=(2,))
    look = Op(kind="gather", operands=(2, 3), results=(4,), attributes=ROWS | {"slice_sizes": (1, 8)})
    graph = Graph(values=values, ops=(cut, flat, look), arguments=(0, 3, 5), results=(4,))
    program = Program(graph=graph, kernels=(Kernel(ops=(0, 1, 2), reads=(0, 3, 5), writes=(4,)),))
    plain, lying = (
        sum(each.cycles for each in price_at(program, speed_of(chip("v3")), stacks=stacks))
        for stacks in (frozenset[int](), frozenset({0}))
    )
    assert plain > 0
    assert lying > plain + 15 * NODES * 8 / 128


def attended(heads: int) -> Graph:
    """A query of each head by a cache of which a place is written: bf16[32,512,heads,128]."""
    cache, query = Value((32, 512, heads, 128), "bf16"), Value((32, heads, 128), "bf16")
    values = (cache, Value((32, 1, heads, 128), "bf16"), Value((), "s32"), query, Value((), "bf16"))
    made = (cache, cache, cache, Value((32, 512, heads), "bf16"))
    ops = (
        Op(kind="dynamic_update_slice", operands=(0, 1, 2, 2, 2, 2), results=(5,)),
        Op(kind="broadcast_in_dim", operands=(3,), results=(6,), attributes={"broadcast_dimensions": (0, 2, 3)}),
        Op(kind="multiply", operands=(5, 6), results=(7,)),
        Op(kind="reduce", operands=(7, 4), results=(8,), attributes={"dimensions": (3,), "reducer": "add"}),
    )
    return Graph(values=(*values, *made), ops=ops, arguments=(0, 1, 2, 3, 4), results=(5, 8), aliases={0: 0})


@pytest.mark.parametrize(
    ("name", "heads", "compiled"),
    [("v4", 2, 176372), ("v4", 4, 195734), ("v3", 4, 192577), ("v5e", 2, 191596), ("v5p", 2, 78556)],
)
def test_a_cache_of_few_heads_is_gone_through_as_one_of_eight(name: str, heads: int, compiled: int) -> None:
    program = fuse(attended(heads))
    found = max(price(program, chip(name)), key=lambda each: each.cycles)
    assert found.cycles == pytest.approx(compiled, rel=0.2)


@pytest.mark.parametrize(
    ("name", "rows", "length", "counted_us"),
    [
        ("v5e", 32, 512, 336),
        ("v5e", 8, 512, 88),
        ("v5e", 32, 1024, 742),
        ("v5e", 32, 2048, 1124),
        ("v3", 32, 512, 606),
        ("v3", 32, 2048, 2017),
        ("v4", 32, 512, 542),
        ("v5p", 32, 1024, 266),
        ("v6e", 32, 1024, 331),
        ("v6e", 32, 768, 206),
    ],
)
def test_windows_of_a_mebibyte_are_taken_by_loops_that_are_counted(
    name: str, rows: int, length: int, counted_us: float
) -> None:
    """Whole caches put in another order, bf16[rows,8,length,128], as beams' are: as compiled."""
    assert taken(name, rows, length) == pytest.approx(counted_us, rel=0.27)
    assert taken(name, rows, 256) < 5


def taken(name: str, rows: int, length: int) -> float:
    """Microseconds counted of a gather of so many windows."""
    caches, places = Value((rows, 8, length, 128), "bf16"), Value((rows, 1), "s32")
    said = {"slice_sizes": (1, 8, length, 128), "collapsed_slice_dims": (0,)}
    op = Op(kind="gather", operands=(0, 1), results=(2,), attributes=said)
    program = fuse(Graph(values=(caches, places, caches), ops=(op,), arguments=(0, 1), results=(2,)))
    return 1e6 * sum(each.seconds for each in price(program, chip(name)) if each.counted)
