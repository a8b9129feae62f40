"""The kernels around a language model's head: the loss of one sequence or of several, the gradient of scores padded."""

from __future__ import annotations

import pytest
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kernels import Kernel, Program
from test_fusion import Writer

PLACES, WORDS = 1023, 4096
SUMMED = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}


def _writing(program: Program, value: int) -> Kernel:
    return next(kernel for kernel in program.kernels if value in kernel.writes)


@pytest.mark.parametrize("loss_comes_first", [False, True])
@pytest.mark.parametrize("sequences", [1, 2])
def test_the_loss_of_one_sequence_is_added_up_by_itself(sequences: int, loss_comes_first: bool) -> None:
    """As compiled for v3, v4, v5e and v6e: a vector is not added up where it is made, a matrix is."""
    g = Writer()
    scores = g.arg(sequences, PLACES, WORDS)
    totals = g.total(g.op("exponential", scores), 2)
    before = [g.total(g.op("log", totals), 0, 1)] if loss_comes_first else []
    share = g.op("divide", g.spread(g.scalar(1.0), sequences, PLACES), totals)
    spread = g.spread(share, sequences, PLACES, WORDS, dims=(0, 1))
    gradient = g.op("multiply", g.op("exponential", scores), spread)
    (loss,) = before or [g.total(g.op("log", totals), 0, 1)]
    program = fuse(g.graph(loss, gradient, share))
    assert (_writing(program, loss) is _writing(program, share)) == (sequences > 1)


def _head(sequences: int, dtype: str) -> tuple[Program, int, int, int]:
    """Logits of all places but the last, of which labels are looked up and rows reduced: the program, the logits, what
    is looked up in, and what rows are reduced to at last.
    """
    g = Writer()
    said = {"lhs_contracting_dimensions": (2,), "rhs_contracting_dimensions": (0,)}
    states, head = g.arg(sequences, PLACES + 1, 512, dtype=dtype), g.arg(512, WORDS, dtype=dtype)
    logits = g.op("dot_general", states, head, shape=(sequences, PLACES + 1, WORDS), **said)
    cut = g.op("slice", logits, shape=(sequences, PLACES, WORDS))
    wide = cut if dtype == "f32" else g.op("convert", cut, dtype="f32")
    most = g.spread(g.total(wide, 2, reducer="maximum"), sequences, PLACES, WORDS, dims=(0, 1))
    totals = g.total(g.op("exponential", g.op("subtract", wide, most)), 2)
    index = g.arg(sequences, PLACES, 1, 1, dtype="s32")
    found = g.op("gather", wide, index, shape=(sequences, PLACES, 1), collapsed_slice_dims=(2,))
    return fuse(g.graph(totals, found)), logits, wide, totals


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_the_product_of_one_sequence_leaves_all_of_its_logits(dtype: str) -> None:
    """As compiled for v3, v5e and v6e: no slice of f32[1,512,8192] is taken in its kernel, as of f32[2,512,8192] it is.

    What reads the slice cuts it out for itself; for the labels' lookup one of these leaves it.
    """
    program, logits, wide, totals = _head(1, dtype)
    assert _writing(program, logits).writes == (logits,)
    assert logits in _writing(program, wide).reads
    assert logits in _writing(program, totals).reads
    program, logits, wide, totals = _head(2, dtype)
    assert all(logits not in kernel.writes for kernel in program.kernels)


def test_what_a_product_leaves_is_made_wider_for_lookups_alone() -> None:
    """As compiled for v5e and v5p: two sequences' logits leave their product in bfloat16, which the loss reads, and in
    float32, in which labels are looked up.
    """
    program, _, wide, totals = _head(2, "bf16")
    product = _writing(program, wide)
    assert {program.graph.values[value].dtype for value in product.writes if value != wide} >= {"bf16"}
    assert wide not in _writing(program, totals).reads


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
    ops = (
        Op(kind="pad", operands=(0, 1), results=(3,), attributes={"edge_padding_high": (1, 0)}),
        Op(kind="dot_general", operands=(3, 2), results=(4,), attributes=SUMMED),
        Op(kind="while", operands=(5, 3, 4), results=(6, 7, 8), bodies=(inner,), trips=devices),
    )
    program = fuse(Graph(values=values, ops=ops, arguments=(0, 1, 2, 5), results=(6,)))
    product, loop = _writing(program, 4), _writing(program, 6)
    assert 0 in product.reads
    assert 3 in loop.reads
    assert 3 not in product.reads


def test_a_product_reads_an_argument_as_it_lies_that_a_loop_is_given_turned_and_rounded() -> None:
    """As compiled for v4 (seed 266: 55 MiB of 260 otherwise): tied embeddings, the second product of which goes round a
    ring, are rounded for the loop alone, and the first reads them in float32.
    """
    features, devices = 128, 4
    piece = Value((WORDS // devices, features), "f32")
    turned = Value((features, WORDS), "f32")
    inner = Graph(
        values=(piece, turned, Value((WORDS // devices, WORDS), "f32"), piece),
        ops=(
            Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=SUMMED),
            Op(kind="collective-permute", operands=(0,), results=(3,), attributes={"around": True, "axes": ("x",)}),
        ),
        arguments=(0, 1),
        results=(3, 1),
    )
    values = (Value((WORDS, features), "f32"), Value((8, features), "bf16"), turned, Value((8, WORDS), "f32"), piece)
    ops = (
        Op(kind="transpose", operands=(0,), results=(2,), attributes={"permutation": (1, 0)}),
        Op(kind="dot_general", operands=(1, 2), results=(3,), attributes=SUMMED),
        Op(kind="while", operands=(4, 2), results=(5, 6), bodies=(inner,), trips=devices),
    )
    program = fuse(Graph(values=(*values, piece, turned), ops=ops, arguments=(0, 1, 4), results=(3, 5)))
    product, loop = _writing(program, 3), _writing(program, 5)
    assert 0 in product.reads
    assert 2 not in product.reads
    assert 2 in loop.reads
