"""What tables take whose rows are looked up."""

from __future__ import annotations

import numpy as np
import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kernels import Program
from meshwright.planner.kinds import ALL_REDUCE
from meshwright.planner.memory import memory
from meshwright.planner.memory.fast.vmem import near_buffers
from meshwright.planner.memory.flow.flow import flow
from meshwright.planner.memory.flow.liveness import lifetimes
from meshwright.planner.memory.tensors.looked_up import copied_tables, looked_up_shapes, row_bytes
from meshwright.planner.memory.tensors.temporaries import temporary_bytes
from meshwright.planner.memory.tensors.tiles import padded_bytes
from programs import of_ops

MIB = 2**20
ROWS, COUNT = 65536, 1024


def trained_table(columns: int) -> Program:
    """Rows of a donated table looked up, their gradient scattered into zeros and added to the table."""
    table, rows = Value((ROWS, columns), "f32"), Value((COUNT, columns), "f32")
    values = (table, Value((COUNT, 1), "s32"), Value((), "f32"), rows, table, table, table)
    look_up = {"slice_sizes": (1, columns), "collapsed_slice_dims": (0,)}
    ops = (
        Op(kind="gather", operands=(0, 1), results=(3,), attributes=look_up),
        Op(kind="broadcast_in_dim", operands=(2,), results=(4,)),
        Op(kind="scatter", operands=(4, 1, 3), results=(5,), attributes={"inserted_window_dims": (0,)}),
        Op(kind="add", operands=(0, 5), results=(6,)),
    )
    return of_ops(values, ops, (0, 1, 2), (6,), aliases={0: 0}, names=("table", "ids", "zero"))


@pytest.mark.parametrize("columns", [4, 64])
def test_narrow_tables_are_copied_row_by_row_and_so_is_their_gradient(columns: int) -> None:
    held = memory(trained_table(columns))
    in_rows = ROWS * 128 * 4
    assert held.argument_bytes == pytest.approx(ROWS * columns * 4, rel=0.01)
    assert held.temp_bytes == pytest.approx(2 * in_rows, rel=0.05)  # the copy and the gradient; no zeros, no result
    assert "copy of table in another layout" in {tensor.name for tensor in held.tensors}


@pytest.mark.parametrize(("state", "columns", "in_rows"), [(1, 64, 3), (2, 64, 1), (1, 8, 3), (2, 8, 1)])
def test_an_update_lies_as_most_of_its_arrays_do(state: int, columns: int, in_rows: int) -> None:
    """One array of state is copied too, as Adagrad's; of Adam's two none, nor the table then."""
    table, rows = Value((ROWS, columns), "f32"), Value((COUNT, columns), "f32")
    values = (table, Value((COUNT, 1), "s32"), Value((), "f32"), rows, table, table, *[table] * (2 * state), *[table])
    kept, new, last = range(6, 6 + state), range(6 + state, 6 + 2 * state), 6 + 2 * state
    ops = (
        Op(
            kind="gather",
            operands=(0, 1),
            results=(3,),
            attributes={"slice_sizes": (1, columns), "collapsed_slice_dims": (0,)},
        ),
        Op(kind="broadcast_in_dim", operands=(2,), results=(4,)),
        Op(kind="scatter", operands=(4, 1, 3), results=(5,), attributes={"inserted_window_dims": (0,)}),
        *(Op(kind="add", operands=(old, 5), results=(made,)) for old, made in zip(kept, new, strict=True)),
        Op(kind="clamp", operands=(new[0], 0, new[-1]), results=(last,)),
    )
    results = (last, *new)
    program = of_ops(values, ops, (0, 1, 2, *kept), results, aliases=dict.fromkeys(range(len(results)), 0))
    held = memory(fuse(program.graph))
    turned = ROWS * columns * 4 if in_rows == 1 else 0
    assert held.temp_bytes == pytest.approx(in_rows * ROWS * 128 * 4 + turned, rel=0.05)


def test_copies_are_made_in_advance_where_memory_moves_while_a_chip_computes() -> None:
    """Of 16 tables on v3, of which 8 are an optimiser's state, 4.6 GiB are live at once; on v5e 8.7 GiB."""
    program = trained_table(64)
    touches = {0: (2, 7), 1: (2,), 2: ()}
    assert copied_tables(program, touches) == {0: (0, 7)}
    assert copied_tables(program, touches, at_start=False) == {0: (2, 7)}


def test_an_optimisers_state_is_copied_for_its_update_where_nothing_is_put_first() -> None:
    """Of 16 tables on v4, eight of them momentum, ten lie row by row at once: 1.3 GiB of 128 MiB each."""
    table, rows = Value((ROWS, 64), "f32"), Value((COUNT, 64), "f32")
    values = (table, Value((COUNT, 1), "s32"), Value((), "f32"), rows, table, table, table, table, table)
    look_up = {"slice_sizes": (1, 64), "collapsed_slice_dims": (0,)}
    ops = (
        Op(kind="gather", operands=(0, 1), results=(3,), attributes=look_up),
        Op(kind="broadcast_in_dim", operands=(2,), results=(4,)),
        Op(kind="scatter", operands=(4, 1, 3), results=(5,), attributes={"inserted_window_dims": (0,)}),
        Op(kind="add", operands=(6, 5), results=(7,)),
        Op(kind="add", operands=(0, 7), results=(8,)),
    )
    program = of_ops(values, ops, (0, 1, 2, 6), (8, 7), aliases={0: 0, 1: 3})
    touches = {0: (0, 4), 1: (0, 2), 2: (1,), 6: (3,)}
    assert copied_tables(program, touches) == {0: (0, 4), 6: (0, 3)}
    assert copied_tables(program, touches, states_too=False) == {0: (0, 4), 6: (3, 3)}


def stacked_gradient(count: int, columns: int) -> Program:
    """Rows scattered into zeros of several tables at once, added up over devices and returned."""
    tables, rows = Value((count, ROWS, columns), "f32"), Value((count, COUNT, columns), "f32")
    values = (rows, Value((count, COUNT, 1), "s32"), Value((), "f32"), tables, tables, tables)
    found_by = {"inserted_window_dims": (1,), "input_batching_dims": (0,)}
    ops = (
        Op(kind="broadcast_in_dim", operands=(2,), results=(3,)),
        Op(kind="scatter", operands=(3, 1, 0), results=(4,), attributes=found_by),
        Op(kind=ALL_REDUCE, operands=(4,), results=(5,), attributes={"axes": ("x",)}),
    )
    return of_ops(values, ops, (0, 1, 2), (5,))


@pytest.mark.parametrize("columns", [32, 64])
def test_stacked_tables_lie_row_by_row_and_are_copied_for_their_sum(columns: int) -> None:
    """Of four of 131072 rows on v3, 256 MiB in rows, 322 MiB with 32 columns and 386 with 64 are temporaries."""
    held = memory(stacked_gradient(4, columns))
    assert held.temp_bytes == pytest.approx(4 * ROWS * (128 + columns) * 4, rel=0.05)


def decaying_tables(count: int) -> Program:
    """Rows looked up of tables, and added to momenta that decay, with which the tables are then updated."""
    table, rows = Value((ROWS, 64), "f32"), Value((COUNT, 64), "f32")
    values, ops, results = [Value((COUNT, 1), "s32"), *[table] * (2 * count)], [], []
    for number in range(1, count + 1):
        at = len(values)
        values += [rows, table, table, table]
        look_up = {"slice_sizes": (1, 64), "collapsed_slice_dims": (0,)}
        ops += [
            Op(kind="gather", operands=(number, 0), results=(at,), attributes=look_up),
            Op(kind="negate", operands=(count + number,), results=(at + 1,)),
            Op(kind="scatter", operands=(at + 1, 0, at), results=(at + 2,), attributes={"inserted_window_dims": (0,)}),
            Op(kind="subtract", operands=(number, at + 2), results=(at + 3,)),
        ]
        results += [at + 2, at + 3]
    return of_ops(tuple(values), tuple(ops), tuple(range(2 * count + 1)), tuple(results))


def test_what_decays_before_rows_are_added_to_it_is_copied_for_the_scatter() -> None:
    """Momentum of 16 and 64 columns on v3: the table's copy and the sum, 2.25 and 2.5 times a table in rows."""
    program = decaying_tables(1)
    touches = {1: (0, 3), 2: (1,)}
    assert copied_tables(program, touches, at_start=False) == {1: (0, 3)}
    assert copied_tables(program, touches) == {1: (0, 3)}


def test_such_copies_are_made_before_the_first_scatter_where_memory_moves_while_a_chip_computes() -> None:
    """Of four tables of 32 columns and their momenta 6.4 copies are in the large memory on v5e, two near."""
    program = decaying_tables(2)
    touches = {1: (0, 3), 2: (4, 7), 3: (1,), 4: (5,)}
    assert copied_tables(program, touches, at_start=False) == {1: (0, 3), 2: (4, 7)}
    assert copied_tables(program, touches) == {1: (0, 3), 2: (0, 7), 10: (1, 4)}


def test_zeros_that_scatters_fill_are_copied_for_none() -> None:
    tables, rows = Value((ROWS, 64), "f32"), Value((COUNT, 64), "f32")
    values = (rows, Value((COUNT, 1), "s32"), Value((), "f32"), *[tables] * 4)
    ops = tuple(
        op
        for zeros in (3, 5)
        for op in (
            Op(kind="broadcast_in_dim", operands=(2,), results=(zeros,)),
            Op(
                kind="scatter",
                operands=(zeros, 1, 0),
                results=(zeros + 1,),
                attributes={"inserted_window_dims": (0,)},
            ),
        )
    )
    assert copied_tables(of_ops(values, ops, (0, 1, 2), (4, 6)), {}) == {}


def test_wide_tables_lie_row_by_row_already() -> None:
    held = memory(trained_table(256))
    assert held.temp_bytes == pytest.approx(ROWS * 256 * 4, rel=0.05)


def test_lookups_along_columns_ask_for_nothing() -> None:
    columns = Op(
        kind="gather", operands=(0, 1), results=(2,), attributes={"slice_sizes": (64, 1), "collapsed_slice_dims": (1,)}
    )
    values = (Value((64, 4), "f32"), Value((8, 1), "s32"), Value((64, 8), "f32"))
    assert not looked_up_shapes(Graph(values=values, ops=(columns,), arguments=(0, 1), results=(2,)))


def test_rows_pad_their_lanes() -> None:
    assert row_bytes(Value((1024, 4), "f32")) == 1024 * 128 * 4
    assert row_bytes(Value((1024, 256), "f32")) == padded_bytes(Value((1024, 256), "f32"))


def test_what_rows_are_looked_up_in_saves_no_more_near_than_they_take() -> None:
    """As compiled for v5e: of logits in bfloat16 and the same in float32, in which labels are looked up, what the loss
    reads is near and the others are not.
    """
    wide, found = Value((1024, 8192), "f32"), Value((1024, 1), "f32")
    ops = (
        Op(kind="tanh", operands=(0,), results=(1,)),
        Op(kind="tanh", operands=(0,), results=(2,)),
        Op(kind="gather", operands=(1, 5), results=(3,)),
        Op(kind="exponential", operands=(2,), results=(4,)),
    )
    program = of_ops((wide, wide, wide, found, wide, Value((1024, 1), "s32")), ops, (0, 5), (3, 4))
    at, chip = flow(program, temporary_bytes(program), lambda body: 0), catalogue()["v5e"]
    room = np.full(len(program.kernels), 33 << 20, np.int64)
    near = near_buffers(program, at, lifetimes(at, range(len(program.kernels))), chip, room)
    assert 1 not in near
    assert 2 in near
