"""What attention leaves in memory of its probabilities: as the compiler's programs for v3 to tpu7x do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Origin
from meshwright.planner.kinds import ALL_REDUCE
from test_fusion import Writer

BATCH, HEADS, ROWS = 4, 2, 256


def writes_probabilities(width: int, readers: int, heads: int = HEADS, *, read_again: bool = False) -> bool:
    """Whether what ``exp`` makes of scores is written that so many products of batches over two dims read.

    ``read_again`` if something else reads what each of these makes.
    """
    g = Writer()
    scores = g.arg(BATCH, heads, ROWS, ROWS)
    made = g.op("exponential", scores)
    said = {f"{side}_batching_dimensions": (0, 1) for side in ("lhs", "rhs")}
    ends = []
    for _ in range(readers):
        values = g.arg(BATCH, heads, ROWS, width)
        contracted = {"lhs_contracting_dimensions": (3,), "rhs_contracting_dimensions": (2,)}
        ends.append(g.op("dot_general", made, values, shape=(BATCH, heads, ROWS, width), **said, **contracted))
    ends += [g.op("tanh", end) for end in ends] if read_again else []
    program = fuse(g.graph(*ends))
    return any(made in kernel.writes for kernel in program.kernels)


def test_probabilities_are_written_for_two_products_as_wide_as_a_registers_lanes() -> None:
    assert writes_probabilities(128, 2)
    assert not writes_probabilities(128, 1)


def test_they_are_computed_in_passing_where_more_than_one_reads_each_product() -> None:
    """As layers on embeddings have it, whose gradient weights and input read: 256 MiB of 5.7 GiB a layer on v4."""
    assert not writes_probabilities(128, 2, read_again=True)


def test_narrower_products_compute_them_in_passing() -> None:
    assert not writes_probabilities(64, 2)


def test_so_do_batches_over_one_dim() -> None:
    assert not writes_probabilities(128, 2, heads=1)


def writes_shares(*, of_rows: bool) -> bool:
    """Whether what two products of keys that all heads share read is written, divided by a number a row or by one."""
    g = Writer()
    shape = (BATCH, HEADS, ROWS, ROWS)
    scores = g.arg(*shape)
    total = g.arg(BATCH, HEADS, ROWS) if of_rows else g.arg(1)
    made = g.op("divide", scores, g.spread(total, *shape, dims=(0, 1, 2) if of_rows else (0,)))
    said = {f"{side}_batching_dimensions": (0,) for side in ("lhs", "rhs")}
    contracted = {"lhs_contracting_dimensions": (3,), "rhs_contracting_dimensions": (1,)}
    values = [g.arg(BATCH, ROWS, 128) for _ in range(2)]
    ends = [g.op("dot_general", made, v, shape=(BATCH, HEADS, ROWS, 128), **said, **contracted) for v in values]
    return any(made in kernel.writes for kernel in fuse(g.graph(*ends)).kernels)


def test_what_softmax_makes_for_keys_that_heads_share_is_written_for_two_products() -> None:
    assert writes_shares(of_rows=True)
    assert not writes_shares(of_rows=False)


def attention(
    readers: int,
    dtype: str = "bf16",
    *,
    rounds: bool = True,
    scales: bool = True,
    groups: int = 0,
    sums: str = "",
    returns: bool = False,
) -> tuple[Writer, dict[int, str], list[int]]:
    """Products of a softmax, what each value of it is, and the products' results, as many.

    The product makes the ``raw`` scores in this dtype; the ``share`` is what it makes of them in the end, as narrow if
    it ``rounds``. A softmax of grouped heads has a dim of so many ``groups`` besides. ``sums`` is what adds the scores
    up over devices, if anything; they are returned with the products' results if it ``returns`` them.
    """
    g = Writer()
    said = {f"{side}_batching_dimensions": (0, 1) for side in ("lhs", "rhs")}
    shape = (BATCH, HEADS, ROWS, ROWS)

    def product(left: int, right: int, columns: int, dims: tuple[int, int]) -> int:
        contracted = {"lhs_contracting_dimensions": dims[:1], "rhs_contracting_dimensions": dims[1:]}
        return g.op("dot_general", left, right, shape=(BATCH, HEADS, ROWS, columns), **said, **contracted)

    queries, keys, *values = (g.arg(BATCH, HEADS, ROWS, 64, dtype=dtype) for _ in range(2 + readers))
    raw = product(queries, keys, ROWS, (3, 3))
    raw = g.op(sums, raw, axes=("x",), reducer="add") if sums else raw
    of = (BATCH, HEADS, groups, ROWS, ROWS) if groups else shape
    seen = g.op("reshape", raw, shape=of) if groups else raw
    wide = g.op("convert", seen, dtype="f32") if dtype != "f32" else seen
    scores = g.op("multiply", wide, g.spread(g.scalar(0.125), *of)) if scales else wide
    last, rest = len(of) - 1, tuple(range(len(of) - 1))
    most = g.spread(g.total(scores, last, reducer="maximum"), *of, dims=rest)
    made = g.op("exponential", g.op("subtract", scores, most))
    share = g.op("divide", made, g.spread(g.total(made, last), *of, dims=rest))
    share = g.op("convert", share, dtype=dtype) if rounds and dtype != "f32" else share
    names = {scores: "scores", made: "exponentials", share: "share", seen: "raw", raw: "raw"}
    share = g.op("reshape", share, shape=shape) if groups else share
    ends = [product(share, each, 64, (3, 2)) for each in values]
    return g, names, [*ends, raw] if returns else ends


def written(readers: int, near_bytes: int, dtype: str = "bf16", *, scope: str = "", **how: Any) -> set[str]:
    """What is written of a softmax; ``scope`` is where its exponentials are computed, if that is said."""
    g, names, ends = attention(readers, dtype, **how)
    graph = g.graph(*ends)
    if scope:
        graph = replace(graph, ops=tuple(replace(op, origin=Origin(scope=scope)) for op in graph.ops))
    program = fuse(graph, near_bytes=near_bytes)
    size = ROWS * ROWS * BATCH * HEADS
    wide = {v for k in program.kernels for v in k.writes if program.graph.values[v].num_elements == size}
    return {names.get(value, "something else") for value in wide}


MUCH, LITTLE = 96 << 20, 46 << 20


def test_of_a_softmax_the_exponentials_are_written_out_of_the_kernel_of_its_scores() -> None:
    """For one product, as forward passes have it, and for several: so v4, v5e and v6e do, with masks or without."""
    assert written(1, MUCH) == written(2, MUCH) == {"exponentials"}


def test_scores_that_are_added_up_or_returned_are_written_too() -> None:
    """The sum is of the narrow scores, as compiled for v5e:2x2."""
    assert written(1, MUCH, returns=True) == {"exponentials", "raw"}
    assert {"exponentials", "raw"} <= written(1, MUCH, sums=ALL_REDUCE)


def test_where_nothing_is_near_the_narrow_scores_are() -> None:
    """As v3 has it."""
    assert written(2, 0) == {"raw"}


def test_so_are_those_whose_rows_have_a_dim_of_one() -> None:
    """A query of a group of heads: XLA reduces that dim with the row (v4 to tpu7x)."""
    assert written(1, MUCH, groups=1) == written(2, MUCH, groups=1) == {"raw"}


def test_so_are_those_that_are_only_made_wider() -> None:
    """As a T5's on v5p: their maximum is found narrow, before."""
    assert written(2, MUCH, scales=False) == {"raw"}


def test_where_less_is_near_what_two_products_read_is_written_too() -> None:
    """As v5p and tpu7x do: 128 MiB of 32 x 8 heads of 512 places."""
    assert written(2, LITTLE) == {"exponentials", "share"}
    assert written(2, LITTLE, groups=1) == {"raw", "share"}
    assert written(1, LITTLE) == {"exponentials"}


def test_what_products_read_wide_is_not() -> None:
    """As v5p and v6e keep the bfloat16 scores alone that ``softmax(s / numpy.sqrt(d))`` widens."""
    assert written(2, LITTLE, rounds=False) == written(2, MUCH, rounds=False) == {"raw"}


def test_what_a_remat_policy_computes_again_is_not() -> None:
    """As v4 to tpu7x have it where attention and what follows it are computed again together."""
    again = "checkpoint/rematted_computation/exp"
    assert written(2, LITTLE, scope=again) == {"exponentials"}
    assert written(2, LITTLE, scope=again, groups=1) == {"raw"}


def test_scores_as_wide_as_they_are_computed_with_stay_scores() -> None:
    """Of a forward pass for one product: what v4's and v5e's compilers make of float32 scores of 512 rows."""
    assert written(1, MUCH, "f32") == {"scores"}


def backward(
    *,
    is_again: bool,
    width: int = 128,
    sums: str = "",
    near_bytes: int = MUCH,
    dtype: str = "f32",
    scope: str = "",
    groups: int = 0,
    batch: int = BATCH,
    repeats_scores: str = "wide",
) -> tuple[bool, bool]:
    """Whether a backward pass writes the softmax of scores, and their gradient, each for two products.

    Of the forward pass that the gradient comes from, or computed again beside it. The products are of so many columns,
    and make this dtype; ``sums`` is what adds the scores and the shares' gradient up over devices, if anything. So many
    ``groups`` of queries share their keys, if that is said.
    """
    g = Writer()
    said = {f"{side}_batching_dimensions": (0, 1) for side in ("lhs", "rhs")}
    of_group = (groups,) if groups else ()
    shape, narrow = (batch, HEADS, *of_group, ROWS, ROWS), (batch, HEADS, *of_group, ROWS, width)
    last = len(shape) - 1
    rows, whole = tuple(range(2, last)), tuple(range(last))

    def product(left: int, right: int, of: tuple[int, ...], *dims: tuple[int, ...]) -> int:
        contracted = {"lhs_contracting_dimensions": dims[0], "rhs_contracting_dimensions": dims[1]}
        made = g.op("dot_general", rounded(left), rounded(right), shape=of, **said, **contracted)
        return g.op(sums, made, axes=("x",), reducer="add") if sums and of == shape else made

    def rounded(value: int) -> int:
        return value if g.values[value].dtype == dtype else g.op("convert", value, dtype=dtype)

    def widened(value: int) -> int:
        return value if g.values[value].dtype == "f32" else g.op("convert", value, dtype="f32")

    queries, after = (g.arg(*narrow, dtype=dtype) for _ in range(2))
    keys, values = (g.arg(batch, HEADS, ROWS, width, dtype=dtype) for _ in range(2))
    scores = widened(product(queries, keys, shape, (last,), (3,)))
    scores = scores if dtype == "f32" else g.op("multiply", scores, g.spread(g.scalar(0.125), *shape))
    most = g.spread(g.total(scores, last, reducer="maximum"), *shape, dims=whole)
    made = g.op("exponential", g.op("subtract", scores, most))
    share = rounded(g.op("divide", made, g.spread(g.total(made, last), *shape, dims=whole)))
    out = product(share, values, narrow, (last,), (2,))
    back = after if is_again else g.op("multiply", out, after)
    of_values = product(share, back, (batch, HEADS, ROWS, width), rows, rows)
    of_share = widened(product(back, values, shape, (last,), (3,)))
    mean = g.spread(g.total(g.op("multiply", of_share, made), last), *shape, dims=whole)
    gradient = rounded(g.op("multiply", g.op("subtract", of_share, mean), made))
    ends = [
        product(gradient, keys, narrow, (last,), (2,)),
        product(gradient, queries, (batch, HEADS, ROWS, width), rows, rows),
    ]
    graph = g.graph(out, of_values, *ends)
    graph = replace(graph, ops=tuple(replace(op, origin=Origin(scope=scope)) for op in graph.ops)) if scope else graph
    program = fuse(graph, near_bytes=near_bytes, repeats_scores=repeats_scores)
    wrote = {v for kernel in program.kernels for v in kernel.writes}
    return share in wrote, gradient in wrote


def test_the_gradient_of_scores_that_are_computed_again_is_computed_by_each_product() -> None:
    """As v3's and v5e's programs do where a remat policy keeps products only."""
    assert backward(is_again=True) == (True, False)
    assert backward(is_again=False) == (True, True)


def test_the_gradient_of_scores_that_are_added_up_is_written_where_less_is_near() -> None:
    """As v5p's programs do, tensor parallel, and v5e's and v6e's do not."""
    assert backward(is_again=False, width=32, sums=ALL_REDUCE, near_bytes=46 << 20)[1]
    assert not backward(is_again=False, width=32, sums=ALL_REDUCE)[1]


def test_the_gradient_of_scores_that_are_kept_as_exponentials_is_written() -> None:
    """Of heads of 64, 128 MiB beside 256 of exponentials: so v3 to v6e do; v5p and tpu7x write what a forward
    pass makes too.
    """
    again = "checkpoint/rematted_computation/exp"
    assert backward(is_again=False, width=64, dtype="bf16", near_bytes=LITTLE) == (True, True)
    assert backward(is_again=True, width=64, dtype="bf16", near_bytes=LITTLE, scope=again) == (False, True)
    assert backward(is_again=False, width=64, dtype="bf16") == (False, True)
    assert backward(is_again=False, width=64, dtype="bf16", near_bytes=0) == (False, True)


@pytest.mark.parametrize("near_bytes", [0, LITTLE, MUCH])
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_the_gradient_of_narrow_scores_is_written_where_a_scan_has_stacked_their_exponentials(
    dtype: str, near_bytes: int
) -> None:
    """As scanned decoders' programs for v3, v5e, v5p and v6e do with heads of 64, or with 32; wide ones' products
    compute it for themselves (v5e and v6e).
    """
    g = Writer()
    said = {f"{side}_batching_dimensions": (0, 1) for side in ("lhs", "rhs")}
    shape, heads, rows = (BATCH, HEADS, ROWS, ROWS), (BATCH, HEADS, ROWS, 32), (0, 1, 2)
    stack, turn = g.arg(2, *shape), g.arg(dtype="s32")
    after, values, queries, keys = (g.arg(*heads, dtype=dtype) for _ in range(4))
    zero = g.op("constant", shape=(), dtype="s32", splat=0)
    part = g.op("dynamic_slice", stack, turn, *[zero] * 4, shape=(1, *shape))
    made = g.op("reshape", part, shape=shape)
    contracted = {"lhs_contracting_dimensions": (3,), "rhs_contracting_dimensions": (3,)}
    of_share = g.op("dot_general", after, values, shape=shape, **said, **contracted)
    of_share = of_share if dtype == "f32" else g.op("convert", of_share, dtype="f32")
    sums = g.spread(g.arg(BATCH, HEADS, ROWS), *shape, dims=rows)
    divided = g.op("divide", of_share, sums)
    mean = g.spread(g.op("negate", g.total(g.op("multiply", divided, made), 3)), *shape, dims=rows)
    inner = g.op("multiply", g.op("add", divided, mean), made)
    kept = g.spread(g.arg(ROWS, ROWS, dtype="pred"), *shape, dims=(2, 3))
    gradient = g.op("select", kept, inner, g.spread(g.scalar(0.0), *shape), shape=shape, dtype="f32")
    gradient = g.op("multiply", gradient, g.spread(g.scalar(0.125), *shape))
    gradient = gradient if dtype == "f32" else g.op("convert", gradient, dtype=dtype)
    one_group = g.op("reshape", g.op("reshape", gradient, shape=(BATCH, HEADS, 1, ROWS, ROWS)), shape=shape)
    ends = [
        g.op("dot_general", one_group, read, shape=heads, **said, **contracted)
        for read, dim in ((keys, 3), (queries, 2))
        for contracted in [{"lhs_contracting_dimensions": (dim,), "rhs_contracting_dimensions": (2,)}]
    ]
    program = fuse(g.graph(*ends), near_bytes=near_bytes)
    wrote = {v for kernel in program.kernels for v in kernel.writes}
    assert (gradient in wrote) == (dtype == "bf16")


def test_the_gradient_of_raw_scores_that_a_remat_policy_computes_again_is_written_where_less_is_near() -> None:
    """As v5p and tpu7x have it of 16 heads of 512 places that share no keys; v4 and v6e do not write it."""
    again = "checkpoint/rematted_computation/exp"
    assert backward(is_again=True, width=64, dtype="bf16", near_bytes=LITTLE, scope=again, groups=1) == (False, True)
    assert backward(is_again=True, width=64, dtype="bf16", scope=again, groups=1) == (False, False)


def test_the_gradient_of_narrow_scores_of_heads_that_share_keys_is_written() -> None:
    """As v3, v4, v5p, v6e and tpu7x do, with remat or without, not v5e; v5p and tpu7x write the softmax too, of one
    sequence as of several (64 MiB a layer of seed 257 on v5p).
    """
    for is_again, scope in ((False, ""), (True, "checkpoint/rematted_computation/exp")):
        how: dict[str, Any] = {"is_again": is_again, "width": 64, "dtype": "bf16", "scope": scope, "groups": 4}
        assert backward(**how) == backward(**how, near_bytes=0) == (False, True)
        assert backward(**how, near_bytes=LITTLE) == backward(**how, near_bytes=LITTLE, batch=1) == (True, True)
        assert backward(**how, repeats_scores="all") == (False, False)


def test_the_gradient_of_wide_scores_of_heads_that_share_keys_is_written_on_one_chip() -> None:
    """Of 32 heads for 8 of keys and 1024 places tpu7x writes 128 MiB in bfloat16, with remat or without, as its narrow
    arrays lie in other tiles than wide ones; v4, v5p and v6e write none of it.
    """
    for is_again, scope in ((False, ""), (True, "checkpoint/rematted_computation/exp")):
        how: dict[str, Any] = {"is_again": is_again, "width": 64, "scope": scope, "near_bytes": LITTLE}
        assert backward(**how, groups=4, repeats_scores="none")[1]
        assert backward(**how, repeats_scores="none") == backward(**how)
        if is_again:
            assert not backward(**how, groups=4)[1]


@pytest.mark.parametrize(("groups", "stacked", "found"), [(4, True, True), (4, False, True), (1, True, False)])
def test_exponentials_of_heads_that_share_keys_are_written_for_one_product_or_a_scans_stack(
    groups: int, stacked: bool, found: bool
) -> None:
    """As float32 of its own, 256 MiB of 16 heads for 4 of keys and 512 places on tpu7x (v5e's peak of the same model is
    512 larger too); of a group of one query they are computed into the stack. Without a stack it is a forward pass,
    whose exponentials v4, v5e and v6e leave so too: 64 MiB of 8 heads for 4 of keys and 1024 places.
    """
    g = Writer()
    said = {f"{side}_batching_dimensions": (0, 1) for side in ("lhs", "rhs")}
    shape = (BATCH, HEADS, groups, ROWS, ROWS)
    queries = g.arg(BATCH, HEADS, groups, ROWS, 64, dtype="bf16")
    keys, values = (g.arg(BATCH, HEADS, ROWS, 64, dtype="bf16") for _ in range(2))
    stack, turn = g.arg(2, *shape), g.arg(dtype="s32")
    by_last = {"lhs_contracting_dimensions": (4,), "rhs_contracting_dimensions": (3,)}
    raw = g.op("dot_general", queries, keys, shape=shape, **said, **by_last)
    scores = g.op("multiply", g.op("convert", raw, dtype="f32"), g.spread(g.scalar(0.125), *shape))
    most = g.spread(g.total(scores, 4, reducer="maximum"), *shape, dims=tuple(range(4)))
    made = g.op("exponential", g.op("subtract", scores, most))
    share = g.op(
        "convert", g.op("divide", made, g.spread(g.total(made, 4), *shape, dims=tuple(range(4)))), dtype="bf16"
    )
    by_rows = {"lhs_contracting_dimensions": (4,), "rhs_contracting_dimensions": (2,)}
    out = g.op("dot_general", share, values, shape=(BATCH, HEADS, groups, ROWS, 64), **said, **by_rows)
    slot = g.op("reshape", made, shape=(1, *shape))
    put = [g.op("dynamic_update_slice", stack, slot, turn, *(5 * [turn]), shape=(2, *shape))] if stacked else []
    program = fuse(g.graph(out, *put), near_bytes=LITTLE)
    assert (made in {v for kernel in program.kernels for v in kernel.writes}) == found


def forward(*, rows: int = 2048, wide: bool = False, pieces: str = "", near_bytes: int = 64 << 20) -> tuple[bool, bool]:
    """Whether the scores and the exponentials of a forward pass are written, of queries and keys as they lie or put
    together from ``pieces``; ``wide`` if the product leaves float32 at once.
    """
    g = Writer()
    said = {f"{side}_batching_dimensions": (0, 1) for side in ("lhs", "rhs")}
    shape = (2, HEADS, rows, rows)

    def operand() -> int:
        if pieces == "halves":
            return g.op(
                "concatenate",
                *(g.arg(2, HEADS, rows, 64, dtype="bf16") for _ in range(2)),
                shape=(2, HEADS, rows, 128),
                dimension=3,
            )
        if pieces == "pairs":
            return g.op("reshape", g.arg(2, HEADS, rows, 64, 2, dtype="bf16"), shape=(2, HEADS, rows, 128))
        return g.arg(2, HEADS, rows, 128, dtype="bf16")

    last = {"lhs_contracting_dimensions": (3,), "rhs_contracting_dimensions": (3,)}
    raw = g.op("dot_general", operand(), operand(), shape=shape, dtype="f32" if wide else "bf16", **said, **last)
    scores = g.op("multiply", raw if wide else g.op("convert", raw, dtype="f32"), g.spread(g.scalar(0.125), *shape))
    most = g.spread(g.total(scores, 3, reducer="maximum"), *shape, dims=(0, 1, 2))
    made = g.op("exponential", g.op("subtract", scores, most))
    share = g.op("convert", g.op("divide", made, g.spread(g.total(made, 3), *shape, dims=(0, 1, 2))), dtype="bf16")
    by_rows = {"lhs_contracting_dimensions": (3,), "rhs_contracting_dimensions": (2,)}
    out = g.op(
        "dot_general", share, g.arg(2, HEADS, rows, 128, dtype="bf16"), shape=(2, HEADS, rows, 128), **said, **by_rows
    )
    written = {value for kernel in fuse(g.graph(out), near_bytes=near_bytes).kernels for value in kernel.writes}
    return scores in written, made in written


def test_scores_are_written_where_both_operands_of_their_product_are_put_together() -> None:
    """Rotated queries and keys of 2048 places: scores and exponentials of 256 MiB each on v4, v5e and v5p, of 1536 the
    exponentials alone; where numbers are rotated in pairs both of any number of places.
    """
    assert forward() == (False, True)
    assert forward(pieces="halves") == forward(pieces="pairs") == forward(pieces="pairs", rows=1024) == (True, True)
    assert forward(pieces="halves", rows=1536) == (False, True)


def test_a_product_of_narrow_numbers_that_leaves_wide_ones_is_as_one_that_is_made_wider() -> None:
    """``preferred_element_type``: 220 us on v5e in both ways."""
    assert forward(wide=True) == forward()
