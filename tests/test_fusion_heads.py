"""The kernels around a language model's head: the loss of one sequence or of several, the gradient of scores padded."""

from __future__ import annotations

import pytest
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kernels import Kernel, Program
from test_fusion import Writer

PLACES, WORDS = 1023, 4096


def _writing(program: Program, value: int) -> Kernel:
    return next(kernel for kernel in program.kernels if value in kernel.writes)


@pytest.mark.parametrize("sequences", [1, 2])
def test_the_loss_of_one_sequence_is_added_up_by_itself(sequences: int) -> None:
    """As compiled for v3, v4, v5e and v6e: a vector is not added up where it is made, a matrix is."""
    g = Writer()
    scores = g.arg(sequences, PLACES, WORDS)
    totals = g.total(g.op("exponential", scores), 2)
    share = g.op("divide", g.spread(g.scalar(1.0), sequences, PLACES), totals)
    spread = g.spread(share, sequences, PLACES, WORDS, dims=(0, 1))
    gradient = g.op("multiply", g.op("exponential", scores), spread)
    loss = g.total(g.op("log", totals), 0, 1)
    program = fuse(g.graph(loss, gradient, share))
    assert (_writing(program, loss) is _writing(program, share)) == (sequences > 1)


def test_a_product_pads_what_a_loop_has_padded_before_it() -> None:
    """The gradient of scores, padded to all places, is written for the embedding's ring, not for the other product."""
    rows, features, devices = 8, 128, 4
    piece = Value((features, WORDS // devices), "bf16")
    inner = Graph(
        values=(piece, Value((rows, WORDS), "bf16"), Value((rows, features), "bf16"), piece),
        ops=(Op(kind="collective-permute", operands=(0,), results=(3,), attributes={"around": True, "axes": ("x",)}),),
        arguments=(0, 1, 2),
        results=(3, 1, 2),
    )
    values = (
        Value((rows - 1, WORDS), "bf16"),
        Value((), "bf16"),
        Value((WORDS, features), "bf16"),
        Value((rows, WORDS), "bf16"),
        Value((rows, features), "bf16"),
        piece,
        piece,
        Value((rows, WORDS), "bf16"),
        Value((rows, features), "bf16"),
    )
    summed = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    ops = (
        Op(kind="pad", operands=(0, 1), results=(3,), attributes={"edge_padding_high": (1, 0)}),
        Op(kind="dot_general", operands=(3, 2), results=(4,), attributes=summed),
        Op(kind="while", operands=(5, 3, 4), results=(6, 7, 8), bodies=(inner,), trips=devices),
    )
    program = fuse(Graph(values=values, ops=ops, arguments=(0, 1, 2, 5), results=(6,)))
    product, loop = _writing(program, 4), _writing(program, 6)
    assert 0 in product.reads
    assert 3 in loop.reads
    assert 3 not in product.reads
