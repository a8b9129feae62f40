"""What updates take whose gradient lies transposed."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.graph import Op, Origin, Value
from meshwright.planner.kernels import Program
from meshwright.planner.kinds import TURNED_COPY
from meshwright.planner.memory import memory
from programs import of_ops


def first_layer(size: int, moved: str | None = None) -> Program:
    """A batch, a gradient that reaches the first layer, its weights and its momentum; both come back.

    The batch may be ``moved`` before its products.
    """
    weight, rows = Value((size, size), "f32"), Value((64, size), "f32")
    product = {"lhs_contracting_dimensions": (0,), "rhs_contracting_dimensions": (0,)}
    first = (Op(kind=moved, operands=(0,), results=(8,)),) if moved else ()
    batch = 8 if moved else 0
    ops = (
        *first,
        Op(kind="dot_general", operands=(batch, 2), results=(7,)),
        Op(
            kind="dot_general",
            operands=(batch, 1),
            results=(4,),
            attributes=product,
            origin=Origin(scope="jit(step)/transpose(jvp())/dot_general"),
        ),
        Op(kind="add", operands=(3, 4), results=(5,)),
        Op(kind="subtract", operands=(2, 5), results=(6,)),
    )
    return of_ops((rows, rows, weight, weight, weight, weight, weight, rows, rows), ops, (0, 1, 2, 3), (5, 6, 7))


@pytest.mark.parametrize(("chip", "copies"), [("v5e", 0), ("v6e", 1), ("tpu7x", 2)])
def test_wide_matrix_units_leave_the_gradient_transposed_and_its_update_copies(chip: str, copies: int) -> None:
    held = memory(first_layer(8192), catalogue()[chip])
    weight_bytes = 8192 * 8192 * 4
    assert held.temp_bytes == pytest.approx((1 + copies) * weight_bytes, rel=0.01)


@pytest.mark.parametrize(("moved", "copies"), [(TURNED_COPY, 1), ("sort", 0)])
def test_a_batch_that_is_only_copied_leaves_it_so_too(moved: str, copies: int) -> None:
    """As before an all-to-all: an MLP for tpu7x whose batch is resharded copies its weights and state, and back."""
    held = memory(first_layer(8192, moved), catalogue()["v6e"])
    assert held.temp_bytes == pytest.approx((1 + copies) * 8192 * 8192 * 4, rel=0.02)


def test_a_small_update_has_its_copies_in_fast_memory() -> None:
    assert memory(first_layer(1024), catalogue()["v6e"]).temp_bytes < 2**20


def test_the_state_of_all_such_updates_is_copied_before_the_first() -> None:
    """v6e's programs copy every layer's momentum and then update the first; what products read too waits its turn."""
    weight, rows = Value((8192, 8192), "f32"), Value((64, 8192), "f32")
    product = {"lhs_contracting_dimensions": (0,), "rhs_contracting_dimensions": (0,)}
    origin = Origin(scope="jit(step)/transpose(jvp())/dot_general")
    ops = tuple(
        op
        for n in range(2)
        for op in (
            Op(kind="dot_general", operands=(0, 1), results=(4 + 2 * n,), attributes=product, origin=origin),
            Op(kind="add", operands=(2 + n, 4 + 2 * n), results=(5 + 2 * n,)),
        )
    )
    program = of_ops((rows, rows, *(weight,) * 6), ops, (0, 1, 2, 3), (5, 7))
    placed = memory(program, catalogue()["v6e"]).level
    spans = sorted(placed.spans[-1 - state] for state in (2, 3))
    assert [first for first, _ in spans] == [spans[0][0]] * 2
    assert spans[0][1] < spans[1][1]


@pytest.mark.parametrize(("rows", "at_once"), [(64, False), (65536, True)])
def test_what_needs_less_than_all_else_is_copied_first(rows: int, at_once: bool) -> None:
    """XLA's list scheduler, which takes what needs least: a layer's result of 2 GiB needs more than momentum's copy."""
    weight, batch = Value((8192, 8192), "f32"), Value((rows, 8192), "f32")
    product = {"lhs_contracting_dimensions": (0,), "rhs_contracting_dimensions": (0,)}
    origin = Origin(scope="jit(step)/transpose(jvp())/dot_general")
    ops = (
        Op(kind="dot_general", operands=(0, 1), results=(3,)),
        Op(kind="tanh", operands=(3,), results=(4,)),
        Op(kind="dot_general", operands=(0, 4), results=(5,), attributes=product, origin=origin),
        Op(kind="add", operands=(2, 5), results=(6,)),
    )
    program = of_ops((batch, weight, weight, batch, batch, weight, weight), ops, (0, 1, 2), (6,))
    placed = memory(program, catalogue()["v6e"]).level
    begun, used = placed.spans[-3]
    assert (begun < used) == at_once


@pytest.mark.parametrize("is_shared", [True, False])
def test_updates_that_share_a_spread_number_with_such_a_one_are_copied_too(is_shared: bool) -> None:
    """v6e's programs: of an MLP under Adam each layer's weights of the first one's shape, whose gradients lie well."""
    weight, rows, number = Value((8192, 8192), "f32"), Value((64, 8192), "f32"), Value((), "f32")
    product = {"lhs_contracting_dimensions": (0,), "rhs_contracting_dimensions": (0,)}
    origin = Origin(scope="jit(step)/transpose(jvp())/dot_general")
    batch, gradient, first, second, one, other, hidden, spread, spread_again = range(9)
    ops = (
        Op(kind="tanh", operands=(batch,), results=(hidden,)),
        Op(kind="broadcast_in_dim", operands=(one,), results=(spread,)),
        Op(kind="broadcast_in_dim", operands=(other,), results=(spread_again,)),
        *(
            each
            for n, (rows_of, state, factor) in enumerate(
                [(batch, first, spread), (hidden, second, spread if is_shared else spread_again)]
            )
            for each in (
                Op(
                    kind="dot_general",
                    operands=(rows_of, gradient),
                    results=(9 + 3 * n,),
                    attributes=product,
                    origin=origin,
                ),
                Op(kind="multiply", operands=(state, factor), results=(10 + 3 * n,)),
                Op(kind="add", operands=(9 + 3 * n, 10 + 3 * n), results=(11 + 3 * n,)),
            )
        ),
    )
    values = (rows, rows, weight, weight, number, number, rows, *(weight,) * 8)
    program = of_ops(values, ops, (batch, gradient, first, second, one, other), (11, 14))
    relaid = memory(program, catalogue()["v6e"]).level.relaid
    assert set(relaid.values()) >= {first} | ({second} if is_shared else set())
    assert (second in relaid.values()) == is_shared
