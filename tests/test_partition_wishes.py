"""Which products want what they read laid out alike, so that one gather serves both."""

from __future__ import annotations

import pytest
from meshwright.planner.graph import Factors, Graph, Op, Sharding, Value
from meshwright.planner.partition.wishes import Wishes, wish

WHOLE: Sharding = ((), ())
ROWS: Sharding = (("x",), ())
COLUMNS: Sharding = ((), ("x",))
FORWARD = Factors(sizes=(8, 8, 8), operands=(((0,), (1,)), ((1,), (2,))), results=(((0,), (2,)),), reduction=(1,))
"""Rows by what is summed over, that by columns."""
BACKWARD = Factors(sizes=(8, 8, 8), operands=(((0,), (1,)), ((2,), (1,))), results=(((0,), (2,)),), reduction=(1,))
"""The same weights (operand 1) the other way round."""


def product(rows: int, weights: int, result: int, factors: Factors = FORWARD) -> Op:
    return Op(kind="dot_general", operands=(rows, weights), results=(result,), factors=factors)


@pytest.mark.parametrize(
    ("rows", "result", "found"),
    [
        (ROWS, ROWS, WHOLE),  # the rows' axis is in no dim of the weights
        (COLUMNS, WHOLE, ROWS),  # what is summed over, as the other operand has it
        (WHOLE, COLUMNS, COLUMNS),
        (COLUMNS, COLUMNS, COLUMNS),  # one axis cannot be both: as the result has it
    ],
)
def test_a_product_wants_weights_as_the_result_and_the_rows_have_them(
    rows: Sharding, result: Sharding, found: Sharding
) -> None:
    assert wish(product(0, 1, 2), 1, (rows, ROWS, result)) == found


@pytest.mark.parametrize(
    ("gradient", "made", "is_shared"),
    [
        (ROWS, ROWS, True),  # both want the weights whole
        (COLUMNS, WHOLE, False),  # the second has them as they lie
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_weights_are_shared_where_another_product_wants_them_alike(
    gradient: Sharding, made: Sharding, is_shared: bool, turned: bool
) -> None:
    """Weights (1) whose columns are split, forward for rows (0) and backward for a gradient (3), as they are or
    through a transpose (5).
    """
    values = (Value((8, 8), "f32"),) * 6
    turn = Op(kind="transpose", operands=(1,), results=(5,), attributes={"permutation": (1, 0)})
    first = product(0, 1, 2)
    second = product(3, 5, 4) if turned else product(3, 1, 4, BACKWARD)
    ops = (first, turn, second) if turned else (first, second)
    wishes = Wishes(Graph(values=values, ops=ops, arguments=(0, 1, 3), results=(2, 4)))
    layouts = (ROWS, COLUMNS, ROWS, gradient, made, ROWS)
    assert wishes.shared(first, layouts) == (False, is_shared)
    assert wishes.shared(second, layouts)[1] == is_shared


def test_a_product_whose_loops_are_not_known_shares_nothing() -> None:
    values = (Value((8, 8), "f32"),) * 4
    ops = (product(0, 1, 2), Op(kind="dot_general", operands=(0, 1), results=(3,)))
    wishes = Wishes(Graph(values=values, ops=ops, arguments=(0, 1), results=(2, 3)))
    layouts = (ROWS, COLUMNS, ROWS, ROWS)
    assert [wishes.shared(op, layouts) for op in ops] == [(False, False)] * 2
