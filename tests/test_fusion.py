"""Kernels made of a device's graph: small graphs whose kernels are known from the TPU compiler's programs, and laws."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from extent import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kernels import Kernel, Program


class Writer:
    """A graph as it is written down: ``arg`` and ``op`` return the numbers of values."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.ops: list[Op] = []
        self.arguments: list[int] = []

    def arg(self, *shape: int, dtype: str = "f32") -> int:
        self.arguments.append(self._value(shape, dtype))
        return self.arguments[-1]

    def op(self, kind: str, *operands: int, shape: tuple[int, ...] | None = None, dtype: str = "", **said: Any) -> int:
        like = self.values[operands[0]] if operands else Value((), "f32")
        result = self._value(like.shape if shape is None else shape, dtype or like.dtype)
        self.ops.append(Op(kind=kind, operands=operands, results=(result,), attributes=said))
        return result

    def scalar(self, value: float) -> int:
        return self.op("constant", shape=(), dtype="f32", splat=value)

    def spread(self, value: int, *shape: int, dims: tuple[int, ...] = ()) -> int:
        return self.op("broadcast_in_dim", value, shape=shape, broadcast_dimensions=dims)

    def total(self, value: int, *dims: int, reducer: str = "add") -> int:
        kept = tuple(s for d, s in enumerate(self.values[value].shape) if d not in dims)
        return self.op("reduce", value, self.scalar(0.0), shape=kept, dimensions=dims, reducer=reducer)

    def dot(self, left: int, right: int, left_dim: int = 1, right_dim: int = 0, **said: Any) -> int:
        shape = (self.values[left].shape[1 - left_dim], self.values[right].shape[1 - right_dim])
        said |= {"lhs_contracting_dimensions": (left_dim,), "rhs_contracting_dimensions": (right_dim,)}
        return self.op("dot_general", left, right, shape=shape, **said)

    def graph(self, *results: int) -> Graph:
        return Graph(values=tuple(self.values), ops=tuple(self.ops), arguments=tuple(self.arguments), results=results)

    def _value(self, shape: tuple[int, ...], dtype: str) -> int:
        self.values.append(Value(tuple(shape), dtype))
        return len(self.values) - 1


def kinds(program: Program, kernel: Kernel) -> Counter[str]:
    return Counter(program.graph.ops[number].kind for number in kernel.ops)


def all_kinds(program: Program) -> list[set[str]]:
    return [set(kinds(program, kernel)) for kernel in program.kernels]


def test_a_chain_is_one_kernel_that_writes_only_its_end() -> None:
    g = Writer()
    x = g.arg(64, 256)
    end = g.op("tanh", g.op("multiply", g.op("exponential", x), x))
    program = fuse(g.graph(end))
    assert len(program.kernels) == 1
    assert program.kernels[0].reads == (x,)
    assert program.kernels[0].writes == (end,)


def test_what_a_chain_starts_from_is_computed_anew_for_each_product_that_reads_it() -> None:
    g = Writer()
    x, w, v = g.arg(64, 256), g.arg(256, 128), g.arg(256, 512)
    lifted = g.op("exponential", x)
    program = fuse(g.graph(g.dot(lifted, w), g.dot(lifted, v)))
    assert all_kinds(program) == [{"exponential", "dot_general"}] * 2
    assert all(lifted not in kernel.writes for kernel in program.kernels)


def test_what_follows_a_product_is_computed_behind_it() -> None:
    g = Writer()
    x, w, y = g.arg(64, 256), g.arg(256, 128), g.arg(64, 128)
    end = g.op("add", g.op("tanh", g.dot(x, w)), y)
    (kernel,) = fuse(g.graph(end)).kernels
    assert kernel.writes == (end,)
    assert set(kernel.reads) == {x, w, y}


def test_of_two_products_that_are_added_one_takes_the_sum() -> None:
    g = Writer()
    x, w, v = g.arg(64, 256), g.arg(256, 128), g.arg(256, 128)
    end = g.op("add", g.dot(x, w), g.dot(x, v))
    program = fuse(g.graph(end))
    assert [kinds(program, k)["dot_general"] for k in program.kernels] == [1, 1]
    assert [kinds(program, k)["add"] for k in program.kernels] == [0, 1]


def test_an_optimiser_update_is_computed_behind_its_gradient() -> None:
    g = Writer()
    x, dy, w, m = g.arg(64, 256), g.arg(64, 128), g.arg(256, 128), g.arg(256, 128)
    gradient = g.dot(x, dy, 0, 0)
    moment = g.op("add", g.op("multiply", m, g.spread(g.scalar(0.9), 256, 128)), gradient)
    weights = g.op("subtract", w, g.op("multiply", moment, gradient))
    (kernel,) = fuse(g.graph(weights, moment)).kernels
    assert set(kernel.writes) == {weights, moment}
    assert gradient not in kernel.writes


def test_a_reduction_reads_a_product_as_it_is_made_and_the_rest_waits_for_the_reduction() -> None:
    g = Writer()
    q, k = g.arg(64, 256), g.arg(256, 512)
    scores = g.dot(q, k)
    highest = g.total(scores, 1, reducer="maximum")
    lifted = g.op("exponential", g.op("subtract", scores, g.spread(highest, 64, 512, dims=(0,))))
    program = fuse(g.graph(g.total(lifted, 1)))
    first, second = program.kernels
    assert kinds(program, first)["dot_general"] == 1
    assert kinds(program, first)["reduce"] == 1
    assert set(first.writes) == {scores, highest}
    assert {scores, highest} <= set(second.reads)


def test_two_reductions_of_one_array_read_it_once() -> None:
    g = Writer()
    x = g.arg(64, 512)
    rows, columns = g.total(g.op("multiply", x, x), 1), g.total(x, 0)
    (kernel,) = fuse(g.graph(rows, columns)).kernels
    assert kernel.reads.count(x) == 1
    assert set(kernel.writes) == {rows, columns}


@pytest.mark.parametrize(("dtype", "rounded", "kernels"), [("bf16", False, 2), ("f32", False, 1), ("bf16", True, 1)])
def test_a_total_in_another_dtype_than_what_is_computed_beside_it_is_a_kernel_of_its_own(
    dtype: str, rounded: bool, kernels: int
) -> None:
    """A loss in float32 and what comes back, as compiled for v4, v5e and v6e: where that is only rounded it is one."""
    g = Writer()
    image = g.arg(2, 64, 64, 64, dtype=dtype)
    wide = g.op("convert", image, dtype="f32")
    loss = g.total(g.op("multiply", wide, wide), 0, 1, 2, 3)
    back = g.op("convert", g.op("sine", wide), dtype="bf16") if rounded else g.op("tanh", image)
    assert len(fuse(g.graph(loss, back)).kernels) == kernels


def test_what_is_spread_over_a_larger_array_is_computed_before() -> None:
    g = Writer()
    x, scale = g.arg(64, 512), g.arg(64)
    root = g.op("rsqrt", scale)
    program = fuse(g.graph(g.op("multiply", x, g.spread(root, 64, 512, dims=(0,)))))
    assert next(set(kernel.writes) for kernel in program.kernels) == {root}


@pytest.mark.parametrize(
    ("arrays", "products", "is_written"), [(2, 3, False), (2, 4, True), (3, 2, False), (3, 3, True)]
)
def test_a_sum_that_several_read_is_written_where_that_moves_fewer_bytes(
    arrays: int, products: int, is_written: bool
) -> None:
    """As compiled on v3, v5e and v6e."""
    g = Writer()
    total = g.arg(256, 256)
    for _ in range(arrays - 1):
        total = g.op("add", total, g.arg(256, 256))
    program = fuse(g.graph(*(g.dot(total, g.arg(256, 256)) for _ in range(products))))
    assert any(total in kernel.writes for kernel in program.kernels) == is_written


@pytest.mark.parametrize(("sums", "products", "is_written"), [(4, 1, False), (0, 5, True)])
def test_sums_that_go_through_the_same_numbers_read_them_once(sums: int, products: int, is_written: bool) -> None:
    """As compiled for v5e, v5p and v6e, of what comes back to an image that is normed by its batch and then pooled."""
    g = Writer()
    total = g.op("multiply", g.arg(256, 256), g.arg(256, 256))
    results = [g.total(g.op("multiply", total, g.arg(256, 256)), 0) for _ in range(sums)]
    results += [g.dot(total, g.arg(256, 256)) for _ in range(products)]
    program = fuse(g.graph(*results))
    assert any(total in kernel.writes for kernel in program.kernels) == is_written


def test_of_two_sums_that_may_be_computed_in_passing_the_later_one_is() -> None:
    """As compiled on v5e: each alone would be, and then the earlier one has more readers."""
    g = Writer()
    one = g.op("add", g.arg(256, 256), g.arg(256, 256))
    other = g.op("add", one, g.arg(256, 256))
    program = fuse(g.graph(*(g.dot(read, g.arg(256, 256)) for read in (one, one, other, other))))
    written = {value for kernel in program.kernels for value in kernel.writes}
    assert one in written
    assert other not in written


@pytest.mark.parametrize(
    ("sent", "before", "is_written"), [(True, "", True), (False, "", False), (True, "tanh", False)]
)
def test_a_sum_that_meets_what_devices_add_up_of_it_is_written(sent: bool, before: str, is_written: bool) -> None:
    """As compiled on v5e and v6e, and as XLA says: it cannot be computed in passing on all ways. That says nothing of
    what it has become once something was computed in it.
    """
    g = Writer()
    x, y, w = g.arg(256, 256), g.arg(256, 256), g.arg(256, 256)
    total = g.op("add", g.op(before, x) if before else x, y)
    product = g.dot(total, w)
    product = g.op("all-reduce", product, axes=("a",)) if sent else product
    program = fuse(g.graph(g.op("subtract", total, product)))
    assert any(total in kernel.writes for kernel in program.kernels) == is_written


def test_what_only_products_read_is_bfloat16_unless_they_are_asked_to_be_precise() -> None:
    for precision, dtype in (("DEFAULT", "bf16"), ("HIGHEST", "f32")):
        g = Writer()
        x, w, v = g.arg(64, 256), g.arg(256, 128), g.arg(128, 512)
        hidden = g.dot(x, w)
        program = fuse(g.graph(g.dot(hidden, v, precision_config=(precision, precision))))
        assert program.graph.values[hidden].dtype == dtype


def test_what_nothing_reads_and_what_is_said_twice_goes() -> None:
    g = Writer()
    x = g.arg(64, 256)
    one, other = g.op("tanh", x), g.op("tanh", x)
    g.op("exponential", x)
    program = fuse(g.graph(g.op("add", one, other)))
    assert Counter(op.kind for op in program.graph.ops) == {"tanh": 1, "add": 1}


def test_collectives_stand_alone_and_reshapes_cost_no_kernel_of_their_own_work() -> None:
    g = Writer()
    x = g.arg(64, 256)
    sums = g.op("all-reduce", g.op("tanh", x), axes=("a",))
    program = fuse(g.graph(g.op("reshape", sums, shape=(16384,))))
    assert all_kinds(program) == [{"tanh"}, {"all-reduce"}, {"reshape"}]


def test_loops_are_entered() -> None:
    inner = Writer()
    y = inner.arg(64, 256)
    body = inner.graph(inner.op("exponential", inner.op("tanh", y)))
    g = Writer()
    x = g.arg(64, 256)
    end = g.op("while", x)
    g.ops[-1] = replace(g.ops[-1], bodies=(body,), trips=7)
    program = fuse(g.graph(end))
    assert [times for _, kernel, times in program.walk() if not kernel.bodies] == [7]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Random graphs of square arrays and their row sums."""
    g = Writer()
    whole = [g.arg(256, 256) for _ in range(2)]
    for _ in range(draw(st.integers(3, 14))):
        one, other = draw(st.sampled_from(whole)), draw(st.sampled_from(whole))
        kind = draw(st.sampled_from(("add", "exponential", "dot", "rows", "tanh", "transpose")))
        if kind == "dot":
            whole.append(g.dot(one, other))
        elif kind == "rows":
            whole.append(g.spread(g.total(one, 1), 256, 256, dims=(0,)))
        elif kind == "transpose":
            whole.append(g.op(kind, one, permutation=(1, 0)))
        else:
            whole.append(g.op(kind, *((one, other) if kind == "add" else (one,))))
    return g.graph(*draw(st.lists(st.sampled_from(whole), min_size=1, max_size=4)))


@settings(max_examples=examples(50, 150), deadline=None)
@given(graphs())
def test_kernels_hold_every_operation_in_an_order_in_which_what_they_read_is_there(graph: Graph) -> None:
    program = fuse(graph)
    there = set(program.graph.arguments)
    there |= {v for op in program.graph.ops if op.kind == "constant" for v in op.results}
    for kernel in program.kernels:
        assert set(kernel.reads) <= there
        inside = there | set(kernel.reads)
        for number in kernel.ops:
            assert set(program.graph.ops[number].operands) <= inside
            inside |= set(program.graph.ops[number].results)
        assert set(kernel.writes) <= inside
        there |= set(kernel.writes)
    assert set(program.graph.results) <= there
    held = {number for kernel in program.kernels for number in kernel.ops}
    assert held == {n for n, op in enumerate(program.graph.ops) if op.kind != "constant"}


@settings(max_examples=80, deadline=None)
@given(graphs())
def test_a_kernel_has_one_product_at_most_and_no_value_is_written_twice(graph: Graph) -> None:
    program = fuse(graph)
    assert all(kinds(program, kernel)["dot_general"] <= 1 for kernel in program.kernels)
    writes = Counter(v for kernel in program.kernels for v in kernel.writes)
    assert all(count == 1 for count in writes.values())


def writes_groups(groups: int, features: int, batch: int = 4) -> bool:
    """Whether an image is written in the form in which its groups of features are reduced."""
    g = Writer()
    image, kernel = g.arg(batch, 32, 32, 8), g.arg(3, 3, 8, features)
    dims = {
        f"{side}_{name}_dimension": at for side in ("input", "output") for name, at in (("batch", 0), ("feature", 3))
    }
    dims |= {"kernel_input_feature_dimension": 2, "kernel_output_feature_dimension": 3}
    spatial = {f"{side}_spatial_dimensions": (1, 2) for side in ("input", "output")} | {
        "kernel_spatial_dimensions": (0, 1)
    }
    made = g.op("convolution", image, kernel, shape=(batch, 32, 32, features), **dims, **spatial)
    parted = g.op("reshape", made, shape=(batch, 32, 32, groups, features // groups))
    ends = g.total(g.op("multiply", parted, parted), 1, 2, 4)
    return any(parted in each.writes for each in fuse(g.graph(made, ends)).kernels)


def test_images_across_are_copied_to_be_reduced_by_groups_of_features() -> None:
    assert writes_groups(8, 32, batch=128)
    assert not writes_groups(2, 256, batch=128)  # whole registers' lanes


@pytest.mark.parametrize(("batch", "groups", "features"), [(1, 32, 128), (4, 8, 64), (8, 32, 128), (16, 8, 128)])
def test_other_images_are_reduced_feature_by_feature(batch: int, groups: int, features: int) -> None:
    """As compiled for v3, v4, v5e, v5p and v6e."""
    assert not writes_groups(groups, features, batch=batch)


def test_logits_shifted_for_a_part_of_them_are_made_again_of_narrow_ones() -> None:
    """What is read of a slice is written wide; the gradient's exponentials come of the product's bfloat16 result."""
    g = Writer()
    rows, columns = 512, 4096
    raw = g.dot(g.arg(rows, 256, dtype="bf16"), g.arg(256, columns, dtype="bf16"))
    wide = g.op("convert", raw, dtype="f32")
    shift = g.op("subtract", wide, g.spread(g.total(wide, 1, reducer="maximum"), rows, columns, dims=(0,)))
    cut = g.op("slice", shift, shape=(rows - 1, columns))
    found = g.op("sort", cut)
    share = g.op("convert", g.op("exponential", shift), dtype="bf16")
    program = fuse(g.graph(found, g.dot(share, g.arg(columns, 256, dtype="bf16"))))
    assert any(shift in kernel.writes for kernel in program.kernels)
    (last,) = (k for k in program.kernels if kinds(program, k)["dot_general"] and kinds(program, k)["exponential"])
    assert raw in last.reads
    assert shift not in last.reads


def test_pads_between_numbers_stand_alone() -> None:
    """As the compiler leaves all of an associative scan's; a pad at the edge is computed in passing."""
    for interior, number in ((1, 2), (0, 1)):
        g = Writer()
        said = {"edge_padding_low": (0, 0), "edge_padding_high": (0, 128 - interior), "interior_padding": (0, interior)}
        size = 256 if not interior else 128 + 127 * interior + 128 - interior
        spread = g.op("pad", g.arg(256, 128), g.scalar(0.0), shape=(256, size), **said)
        program = fuse(g.graph(g.op("add", spread, g.arg(256, size))))
        assert len(program.kernels) == number


def put_together(reader_batch: int, free: int) -> list[list[str]]:
    """Two halves of keys, computed number by number, put together for a product of so many dims of a batch."""
    w = Writer()
    sizes = (2, 4)[:reader_batch] + (8,) * free
    halves = [w.op("cosine", w.arg(*sizes, 32)) for _ in range(2)]
    whole = w.op("concatenate", *halves, shape=(*sizes, 64), dimension=len(sizes))
    other = w.arg(*sizes[:reader_batch], 16, 64)
    batch, last = tuple(range(reader_batch)), (len(sizes),)
    said = {f"{side}_batching_dimensions": batch for side in ("lhs", "rhs")}
    said |= {"lhs_contracting_dimensions": last, "rhs_contracting_dimensions": (reader_batch + 1,)}
    made = fuse(w.graph(w.op("dot_general", whole, other, shape=(*sizes, 16), **said)))
    return [sorted(made.graph.ops[n].kind for n in kernel.ops) for kernel in made.kernels]


def test_products_put_arrays_together_as_they_read_them() -> None:
    """Their parts lie in memory; a batch over two dims reads what it sees several dims of as one, written whole."""
    assert put_together(1, 1) == [["cosine"], ["cosine"], ["concatenate", "dot_general"]]
    assert put_together(2, 1) == [["cosine"], ["cosine"], ["concatenate", "dot_general"]]
    assert put_together(2, 2) == [["concatenate", "cosine", "cosine"], ["dot_general"]]


def read_in_part_and_whole(offsets: int, whole: int) -> list[tuple[list[str], list[tuple[str, int]]]]:
    """An activation of a product's result of which so many products read a part and so many all: each kernel's kinds,
    and the dtypes and sizes of what it writes. The result itself is read too.
    """
    w = Writer()
    made = w.dot(w.arg(4096, 1024), w.arg(1024, 2048))
    active = w.op("maximum", made, w.spread(w.scalar(0.0), 4096, 2048))
    ends = [w.op("reverse", made, dimensions=(0,)), w.dot(made, w.arg(2048, 512), dtype="f32")]
    for _ in range(offsets):
        part = w.op("dynamic_slice", active, w.arg(dtype="i32"), w.arg(dtype="i32"), shape=(1024, 2048))
        ends.append(w.dot(part, w.arg(2048, 512)))
    ends += [w.dot(active, w.arg(2048, 512)) for _ in range(whole)]
    program = fuse(w.graph(*ends))
    values, ops = program.graph.values, program.graph.ops
    return [
        (sorted(ops[n].kind for n in k.ops), [(values[v].dtype, values[v].num_elements) for v in k.writes])
        for k in program.kernels
    ]


def test_what_is_read_in_part_by_one_of_several_is_written_for_it_rounded() -> None:
    """As v3 and v5p compile it; what reads all of it computes it again from what it is made of."""
    wide, narrow = ("f32", 4096 * 2048), ("bf16", 4096 * 2048)
    for offsets, whole in ((1, 1), (2, 0)):
        made = read_in_part_and_whole(offsets, whole)
        assert [narrow in writes for kinds, writes in made if kinds.count("dot_general") and wide in writes] == [True]
        assert sum("maximum" in kinds for kinds, _ in made) == 1 + whole
    made = read_in_part_and_whole(1, 0)
    assert not any(narrow in writes for _, writes in made)
    assert any({"maximum", "dynamic_slice", "dot_general"} <= set(kinds) for kinds, _ in made)


def around_pieces(*, masked: bool = False, shared: bool = False, near_bytes: int = 0) -> list[list[str]]:
    """An all-to-all of a product's result, an activation of it, its mask, and the products that read them: the kinds of
    each kernel. ``shared`` if what is brought is read along with another array too.
    """
    w = Writer()
    sent = w.dot(w.arg(512, 1024), w.arg(1024, 4096))
    got = w.op("all-to-all", sent, shape=(4096, 512), dimensions=(0, 1), axes=("x",))
    nothing = w.spread(w.scalar(0.0), 4096, 512)
    ends = [w.dot(w.op("maximum", got, nothing), w.arg(512, 256))]
    if masked:
        mask = w.op("compare", got, nothing, dtype="pred")
        back = w.dot(w.arg(4096, 256), w.arg(256, 512))
        ends.append(w.dot(w.op("select", mask, back, nothing, dtype="f32"), w.arg(512, 256)))
    if shared:
        ends.append(w.op("add", got, w.arg(4096, 512)))
    program = fuse(w.graph(*ends), near_bytes=near_bytes)
    return [[program.graph.ops[n].kind for n in kernel.ops] for kernel in program.kernels]


def test_what_is_computed_of_a_product_that_was_sent_is_written_for_one_other_product() -> None:
    """A barrier keeps products apart, and what is sent between keeps it from the first one: as compiled for v4."""
    made = around_pieces(near_bytes=64 << 20)
    assert [kinds for kinds in made if "maximum" in kinds] == [["broadcast_in_dim", "maximum"]]


def test_what_comes_in_pieces_is_activated_before_products_see_it_whole() -> None:
    """So the activation is kept rounded and its mask as such, and not the wide array itself."""
    for masked in (False, True):
        made = around_pieces(masked=masked)
        own = [kinds for kinds in made if {"maximum", "compare"} & set(kinds)]
        assert len(own) == 1 + masked  # the mask by itself, since orders put it off till it is read
        assert not any("dot_general" in kinds for kinds in own)
    for made in (around_pieces(shared=True), around_pieces(masked=True, near_bytes=64 << 20)):
        assert any({"dot_general", "maximum"} <= set(kinds) for kinds in made)


def cut_for_products(*shape: int, batch: tuple[int, ...]) -> list[list[str]]:
    g = Writer()
    whole = g.op("all-gather", g.arg(*shape), shape=(*shape[:-1], 8 * shape[-1]), axes=("x",))
    part = g.op("dynamic_slice", whole, shape=shape, axes=("y",))
    said: dict[str, Any] = {"lhs_contracting_dimensions": (len(shape) - 1,), "lhs_batching_dimensions": batch}
    ends = [g.op("dot_general", part, g.arg(*shape), shape=(*shape[:-1], shape[-2]), **said) for _ in range(2)]
    program = fuse(g.graph(*ends))
    return [sorted(kinds(program, kernel)) for kernel in program.kernels]


def test_each_product_of_matrices_cuts_out_the_part_that_it_reads() -> None:
    """Batches of products read what was cut out for all of them, written once."""
    assert cut_for_products(512, 256, batch=()) == [["all-gather"], *[["dot_general", "dynamic_slice"]] * 2]
    cut_once = [["all-gather"], ["dynamic_slice"], ["dot_general"], ["dot_general"]]
    assert cut_for_products(4, 512, 256, batch=(0,)) == cut_once


def test_a_broadcast_that_only_adds_dims_of_one_is_sent_as_it_lies() -> None:
    w = Writer()
    made = w.spread(w.op("tanh", w.arg(512, 1024)), 512, 1, 1024, dims=(0, 2))
    sent = w.op("all-to-all", made, dimensions=(1, 0), axes=("x",))
    program = fuse(w.graph(sent))
    assert [program.graph.ops[n].kind for kernel in program.kernels for n in kernel.ops] == [
        "tanh",
        "reshape",
        "all-to-all",
    ]


def cut_out(groups: int, experts: int, places: int, *, batch: int, cuts_parts: bool) -> bool:
    """Whether a device's part of what others sent is written for two products, over its experts or over a group."""
    w = Writer()
    whole = w.op("all-gather", w.op("tanh", w.arg(experts, 1, places, 256)), shape=(32, 16, places, 256), axes=("x",))
    part = w.op("dynamic_slice", whole, w.scalar(0.0), shape=(experts, groups, places, 256))
    made = []
    for columns in (128, 384):
        sizes = (experts, 256, columns) if batch == 0 else (groups, columns, experts, places)
        summed = ((3,), (1,)) if batch == 0 else ((0, 2), (2, 3))
        said: dict[str, Any] = {f"{side}_batching_dimensions": (at,) for side, at in (("lhs", batch), ("rhs", 0))}
        said |= {f"{side}_contracting_dimensions": dims for side, dims in zip(("lhs", "rhs"), summed, strict=True)}
        shape = (experts, groups, places, columns) if batch == 0 else (groups, 256, columns)
        made.append(w.op("dot_general", part, w.arg(*sizes), shape=shape, **said))
    program = fuse(w.graph(*made), cuts_parts=cuts_parts)
    return any(part in kernel.writes for kernel in program.kernels)


def test_products_of_a_batch_cut_their_parts_out_themselves_on_v6e() -> None:
    """As compiled: ``bf16[8,16,32,1024]`` of 32 experts, in the products for v6e, in a kernel before them for v5e."""
    assert cut_out(16, 8, 32, batch=0, cuts_parts=False)
    assert not cut_out(16, 8, 32, batch=0, cuts_parts=True)


@pytest.mark.parametrize(("places", "is_written"), [(8, True), (32, True), (40, False), (64, False)])
def test_products_of_one_group_cut_it_out_where_they_do_not_join_its_dims(places: int, *, is_written: bool) -> None:
    """As compiled for v5e, v5p and v6e, of 32 experts."""
    for cuts_parts in (False, True):
        assert cut_out(1, 32, places, batch=1, cuts_parts=cuts_parts) == is_written


def test_a_product_in_either_order_is_computed_once() -> None:
    w = Writer()
    one, other = w.arg(512, 1024), w.arg(512, 1024)
    pairs = [w.op("multiply", *pair) for pair in ((one, other), (other, one))]
    program = fuse(w.graph(w.op("add", *(w.op("tanh", each) for each in pairs))))
    assert kinds(program, program.kernels[0])["tanh"] == 1


@pytest.mark.parametrize("read_again", [False, True])
def test_what_is_ranked_is_made_by_the_same_kernel_if_nothing_else_reads_it(read_again: bool) -> None:
    """Distances to centres, of which the least is found: on v3, v4, v5e and v6e."""
    g = Writer()
    distances = g.dot(g.arg(4096, 256), g.arg(256, 1024))
    place = g.op("iota", shape=(4096, 1024), dtype="s32")
    ranked = Op(
        kind="reduce", operands=(distances, place), results=(3 + place, 4 + place), attributes={"dimensions": (1,)}
    )
    values = (*g.values, Value((), "f32"), Value((), "s32"), Value((4096,), "f32"), Value((4096,), "s32"))
    results = (ranked.results[1], *([distances] if read_again else []))
    program = fuse(Graph(values=values, ops=(*g.ops, ranked), arguments=tuple(g.arguments), results=results))
    assert len(program.kernels) == 1 + read_again
