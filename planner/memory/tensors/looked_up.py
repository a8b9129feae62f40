"""What tables take in memory whose rows are looked up: they lie row by row, however much that pads."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...fusion.nature import BROADCAST, CONSTANT, ELEMENTWISE
from ...graph import Graph, Op, Value
from ...kernels import Program
from ...kinds import ALL_REDUCE
from ...lookups import GATHER, LOOK_UP, SCATTER, added_by, looks_up_rows, tables_of
from .tiles import LANES, aligned, padded_bytes, round_up, tile_rows

STATE_IN_ROWS = 1
"""How many arrays of state a table's update may have that lies row by row."""

_NUMBER_BY_NUMBER = ELEMENTWISE | {BROADCAST, CONSTANT}
IN_PASSING = frozenset({"add", "subtract", "multiply", "divide", "select", "compare", "maximum", "minimum"})


def looked_up_shapes(graph: Graph) -> frozenset[tuple[int, ...]]:
    """The shapes of which whole rows are gathered or scattered, where rows one by one pad more than columns do; of
    several tables of one shape that are stacked too.

    The gradient of such a table, and what its optimiser works on, lies row by row as the table does.
    """
    found = frozenset(table.shape for table in _tables_of(graph) if row_bytes(table) > padded_bytes(table))
    return found.union(*(looked_up_shapes(body) for op in graph.nesting for body in op.bodies))


def rows_bytes(graph: Graph) -> dict[int, int]:
    """The bytes of what is looked up of tables or added to them, by the number of the value, where it lies row by row
    though that pads more.
    """
    found = (
        value
        for op in graph.of_kind(*LOOK_UP)
        if looks_up_rows(graph, op)
        for value in (op.results if op.kind == GATHER else added_by(op))
    )
    sizes = {value: row_bytes(graph.values[value]) for value in found if _in_rows(graph.shape(value))}
    return {value: size for value, size in sizes.items() if size > padded_bytes(graph.values[value])}


def _in_rows(shape: tuple[int, ...]) -> bool:
    return len(shape) > 1 and min(shape[-2:]) > 1


def _tables_of(graph: Graph) -> Iterator[Value]:
    return (table for op in graph.of_kind(*LOOK_UP) for table in _tables(graph, op))


def _tables(graph: Graph, op: Op) -> Iterator[Value]:
    if op.kind == GATHER:
        windows, batch = op.attributes.get("slice_sizes", ()), op.attributes.get("operand_batching_dims", ())
        found_by = (*batch, *op.attributes.get("collapsed_slice_dims", ()))
    elif op.kind == SCATTER:
        windows, batch = graph.shape(op.operands[0]), op.attributes.get("input_batching_dims", ())
        found_by = (*batch, *op.attributes.get("inserted_window_dims", ()))
    else:
        return
    for table in (graph.values[value] for value in tables_of(op)):
        stacked = tuple(batch) == (*range(len(table.shape) - 2),) and found_by == (*range(len(table.shape) - 1),)
        if len(table.shape) > 1 and stacked and tuple(windows)[-1:] == table.shape[-1:]:
            yield table


def row_bytes(value: Value) -> int:
    """Bytes of a value with its last dim on the lanes and the one before on the rows."""
    *more, rows, lanes = value.shape
    padded = math.prod(more) * round_up(rows, tile_rows(rows, 32 // max(value.bits, 1))) * round_up(lanes, LANES)
    return aligned((padded * value.bits + 7) // 8)


def copied_tables(
    program: Program, touches: dict[int, tuple[int, ...]], *, at_start: bool = True, states_too: bool = True
) -> dict[int, tuple[int, int]]:
    """The arguments that are copied to lie row by row, from the first to the last point at which the copy lives.

    An argument lies as it pads least. The compiler makes its copy ``at_start``, or else when it is first read, and
    keeps it for the update, but for one that lies as its arguments do; ``states_too`` says that it does so of what
    updates alone read (v5e puts what waits for nothing that is sent first; v4 copies it for its update). So does what
    is computed of an argument and scattered into: that is what is copied, in advance before the first of such scatters.
    """
    graph = program.graph
    wanted = looked_up_shapes(graph)
    if not wanted:
        return {}
    begun = {value: point for value, point in _begun_with(program).items() if graph.shape(value) in wanted}
    elsewhere = {*(point for point, _ in _updates_in_columns(program)), *begun.values()}
    read = {
        v: [point for point in touches.get(v, ()) if point not in elsewhere]
        for v in graph.arguments
        if graph.shape(v) in wanted
    }
    looking = [not LOOK_UP.isdisjoint([graph.ops[number].kind for number in each.ops]) for each in program.kernels]
    copies = {
        v: (0 if at_start and (states_too or any(looking[p] for p in points)) else points[0], points[-1])
        for v, points in read.items()
        if points
    }
    first = min(begun.values(), default=0)
    return copies | {v: (first, point - 1) for v, point in begun.items() if at_start and point > first}


def turned_back(program: Program) -> dict[int, int]:
    """The gradients of such tables that are copied to lie as arguments do, and the positions of their updates; of
    stacked ones those of the sums over devices that are results themselves.
    """
    graph = program.graph
    given, returned = set(graph.arguments), set(graph.results)
    found = {
        value: point
        for point, shape in _updates_in_columns(program)
        for value in program.kernels[point].reads
        if graph.shape(value) == shape and value not in given
    }
    wanted = looked_up_shapes(graph)
    for point, kernel in enumerate(program.kernels if wanted else ()):
        op = graph.ops[kernel.ops[-1]]
        if op.kind == ALL_REDUCE and returned.issuperset(op.results):
            found |= {v: point for v in op.operands if graph.shape(v) in wanted and len(graph.shape(v)) > 2}
    return found


def _updates_in_columns(program: Program) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The positions of updates of such tables that lie as arguments do, and the tables' shapes.

    An update lies as most of its arrays do. The table and its gradient lie row by row; so a rule with one array of
    state (or none) does too, of which that is copied, and one with two, as Adam, does not.
    """
    graph = program.graph
    wanted, given = looked_up_shapes(graph), set(graph.arguments)
    for point, kernel in enumerate(program.kernels if wanted else ()):
        met = given.intersection(kernel.reads)
        if len(met) > STATE_IN_ROWS + 1:
            shapes = [graph.shape(value) for value in met]
            yield from ((point, shape) for shape in wanted if shapes.count(shape) > STATE_IN_ROWS + 1)


def _begun_with(program: Program) -> dict[int, int]:
    """What scatters add rows to and is computed of an argument number by number, as momentum that decays, and by the
    kernels at which positions.
    """
    graph = program.graph
    given = {value for value in graph.arguments if graph.shape(value)}
    tables = {value for op in graph.of_kind(SCATTER) for value in tables_of(op)}
    return {
        value: point
        for point, kernel in enumerate(program.kernels if tables else ())
        for value in tables.intersection(kernel.writes)
        if given.intersection(kernel.reads)
        and _NUMBER_BY_NUMBER.issuperset(graph.ops[number].kind for number in kernel.ops)
    }


def rewritten_tables(graph: Graph) -> frozenset[int]:
    """The donated results that are written where the copy of such a table lies: they take nothing besides it."""
    wanted = looked_up_shapes(graph) if graph.aliases else frozenset()
    donated = (graph.results[result] for result in graph.aliases)
    return frozenset(v for v in donated if graph.shape(v) in wanted)


def scatters_begin_with(graph: Graph) -> frozenset[int]:
    """What is one number everywhere and scattered into: the compiler fills the scatter's own result with it.

    Where it is computed with, it is made in passing.
    """
    scatters = graph.of_kind(SCATTER)
    scattered = {value for op in scatters for value in tables_of(op)}
    if not scattered:
        return frozenset()
    rest = (op for op in graph.ops if op.kind not in IN_PASSING)
    others = {v for op in rest for v in op.operands[len(tables_of(op)) if op.kind == SCATTER else 0 :]}.union(
        graph.results
    )
    filled = {op.results[0] for op in graph.of_kind(BROADCAST) if _is_uniform(graph, op)}
    return frozenset(filled & scattered - others)


def _is_uniform(graph: Graph, op: Op) -> bool:
    return graph.values[op.operands[0]].num_elements == 1
