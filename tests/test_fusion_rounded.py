"""What is written where products cannot compute an operand in passing: rounded, as bits, or as it was before wider."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute import price
from meshwright.planner.fusion import fuse
from meshwright.planner.fusion.masks import is_packed
from meshwright.planner.fusion.sliced import with_slices_first
from meshwright.planner.kernels import Kernel, Program
from programs import CONVOLVED
from test_fusion import Writer

IMAGES = ("NHWC", "HWIO", "NHWC")
GROUPS, TOKENS, EXPERTS, PLACES, WIDTH = 4, 256, 8, 64, 512


def routed(g: Writer, mask: int) -> int:
    """The tokens of each group sent to the places of each expert: a batch of products over the tokens."""
    tokens = g.arg(GROUPS, TOKENS, WIDTH)
    return g.op(
        "dot_general",
        tokens,
        mask,
        shape=(GROUPS, WIDTH, *g.values[mask].shape[2:]),
        lhs_batching_dimensions=(0,),
        rhs_batching_dimensions=(0,),
        lhs_contracting_dimensions=(1,),
        rhs_contracting_dimensions=(1,),
    )


def combined(g: Writer) -> int:
    """A tensor of the masks' shape made of two smaller ones."""
    shape = (GROUPS, TOKENS, EXPERTS, PLACES)
    one = g.spread(g.arg(GROUPS, TOKENS, EXPERTS), *shape, dims=(0, 1, 2))
    return g.op("multiply", one, g.spread(g.arg(GROUPS, TOKENS, PLACES), *shape, dims=(0, 1, 3)))


def written(program: Program, kernels: Sequence[Kernel]) -> list[tuple[str, int]]:
    """The dtypes and ranks of what kernels write."""
    values = program.graph.values
    return [(values[v].dtype, len(values[v].shape)) for kernel in kernels for v in kernel.writes]


def test_what_joins_two_dims_is_written_rounded_for_the_product_and_computed_anew_for_others() -> None:
    g = Writer()
    weights = combined(g)
    first = routed(g, weights)
    second = g.total(g.op("exponential", weights), 0, 1, 2, 3)
    program = fuse(g.graph(first, second))
    assert ("bf16", 4) in written(program, program.kernels)
    reduction = next(k for k in program.kernels if second in k.writes)
    assert all(len(program.graph.values[v].shape) < 4 for v in reduction.reads)


def test_products_of_a_gpu_read_float32_as_it_is() -> None:
    """No matrix unit of a TPU rounds it."""
    g = Writer()
    weights = combined(g)
    first = routed(g, weights)
    graph = g.graph(first, g.total(g.op("exponential", weights), 0, 1, 2, 3))
    program = fuse(graph, is_gpu=True)
    assert {dtype for dtype, _ in written(program, program.kernels)} == {"f32"}
    assert all(value.dtype == "f32" for value in program.graph.values)


def test_a_mask_is_written_as_it_is_and_made_a_number_by_the_product() -> None:
    g = Writer()
    weights = combined(g)
    mask = g.op("compare", weights, g.spread(g.scalar(0.0), GROUPS, TOKENS, EXPERTS, PLACES), dtype="pred")
    program = fuse(g.graph(routed(g, g.op("convert", mask, dtype="f32"))))
    assert written(program, program.kernels[:-1]) == [("pred", 4)]


def test_products_that_join_two_dims_write_them_apart_and_wide_for_other_products() -> None:
    g = Writer()
    sent = routed(g, g.op("convert", g.arg(GROUPS, TOKENS, EXPERTS, PLACES, dtype="pred"), dtype="f32"))
    turned = g.op("transpose", sent, shape=(EXPERTS, GROUPS, PLACES, WIDTH), permutation=(2, 0, 3, 1))
    made = g.op(
        "dot_general",
        turned,
        g.arg(EXPERTS, WIDTH, WIDTH),
        shape=(EXPERTS, GROUPS, PLACES, WIDTH),
        lhs_batching_dimensions=(0,),
        rhs_batching_dimensions=(0,),
        lhs_contracting_dimensions=(3,),
        rhs_contracting_dimensions=(1,),
    )
    program = fuse(g.graph(made))
    assert [program.graph.values[v].dtype for v in program.kernels[0].writes] == ["f32"]


def test_a_sum_that_is_read_wider_is_written_narrow() -> None:
    g = Writer()
    one, other = g.arg(256, 512, dtype="bf16"), g.arg(256, 512, dtype="bf16")
    total = g.op("add", one, other)
    wide = g.op("convert", total, dtype="f32")
    sums = [g.total(g.op(kind, wide), 1) for kind in ("exponential", "tanh", "abs")]
    products = [g.dot(g.op("add", total, total), g.arg(512, size)) for size in (64, 32, 16)]
    program = fuse(g.graph(*products, *sums))
    assert any(total in kernel.writes for kernel in program.kernels)
    assert all(wide not in kernel.writes for kernel in program.kernels)


@pytest.mark.parametrize(("batch", "is_written"), [((2, 4), True), ((1, 4), False), ((), False)])
def test_what_two_products_read_of_two_arrays_is_written_for_batches_over_two_dims(
    batch: tuple[int, ...], is_written: bool
) -> None:
    g = Writer()
    scores, gradient = g.arg(*batch, 256, 256), g.arg(*batch, 256, 256)
    product = g.op("multiply", g.op("exponential", scores), gradient)
    dims = {f"{side}_batching_dimensions": tuple(range(len(batch))) for side in ("lhs", "rhs")}
    results = []
    for summed in (0, 1):
        dims |= {f"{side}_contracting_dimensions": (len(batch) + summed,) for side in ("lhs", "rhs")}
        results.append(g.op("dot_general", product, g.arg(*batch, 256, 256), shape=(*batch, 256, 256), **dims))
    program = fuse(g.graph(*results))
    assert any(product in kernel.writes for kernel in program.kernels) == is_written


def test_a_batch_of_masks_is_kept_as_bits_along_its_third_dim_from_the_end() -> None:
    assert is_packed((2, 32, 64, 8192))
    assert is_packed((1, 32, 64, 8192))
    assert not is_packed((2, 8, 64, 8192))
    assert not is_packed((32, 32, 64, 512))


@pytest.mark.parametrize(
    ("sent", "readers", "is_kept"),
    [("", 2, True), ("", 1, False), ("before", 2, False), ("after", 2, True), ("after", 1, False)],
)
def test_a_mask_is_kept_for_what_products_make_and_others_read(*, sent: str, readers: int, is_kept: bool) -> None:
    """As compiled for v4 and v6e: ``u32[40,2048]`` beside what the product makes, in no kernel of its own; where what
    it masks comes from other devices, or one product alone reads it, behind a barrier or on other devices (v3, where a
    layer of experts so takes a quarter more), it is compared again.
    """
    shape, summed = (32, 40, 2048), {"lhs_contracting_dimensions": (2,), "rhs_contracting_dimensions": (0,)}
    g = Writer()
    nothing = g.spread(g.scalar(0.0), *shape)
    made = g.op("dot_general", g.arg(32, 40, 512), g.arg(512, 2048), shape=shape, **summed)
    ends = [g.op("dot_general", g.op("maximum", made, nothing), g.arg(2048, 512), shape=(32, 40, 512), **summed)]
    back = g.op("dot_general", g.arg(32, 40, 512), g.arg(512, 2048), shape=shape, **summed)
    back = g.op("all-to-all", back, dimensions=(0, 1), axes=("x",)) if sent == "before" else back
    masked = g.op("select", g.op("compare", made, nothing, dtype="pred"), back, nothing, dtype="f32")
    masked = g.op("all-to-all", masked, dimensions=(0, 1), axes=("x",)) if sent == "after" else masked
    ends += [g.op("dot_general", masked, g.arg(2048, 512), shape=(32, 40, 512), **summed) for _ in range(readers)]
    program = fuse(g.graph(*ends))
    prices = price(program, catalogue()["v4"])
    assert not [each for each in prices if each.cycles and ("pred", 3) in written(program, [each.kernel])]
    assert (("pred", 3) in written(program, program.kernels)) == is_kept


@pytest.mark.parametrize("also_rectified", [True, False])
def test_what_a_product_leaves_beside_what_it_rectifies_is_compared_wide(*, also_rectified: bool) -> None:
    """As compiled for v4 (seed 275): ``f32[2,512,8192]`` beside ``bf16[2,512,8192]``, of which a kernel of its own
    makes ``u8[512,8192]``; where the product leaves its numbers alone it makes the bits, and these are bfloat16.
    """
    shape, summed = (2, 512, 2048), {"lhs_contracting_dimensions": (2,), "rhs_contracting_dimensions": (0,)}
    g = Writer()
    nothing = g.spread(g.scalar(0.0), *shape)
    made = g.op("dot_general", g.arg(2, 512, 512), g.arg(512, 2048), shape=shape, **summed)
    read = g.op("maximum", made, nothing)
    ends = [g.op("dot_general", read, g.arg(2048, 512), shape=(2, 512, 512), **summed)]
    ends += [g.op("all-to-all", read, dimensions=(0, 1), axes=("x",))] * also_rectified
    back = g.op("dot_general", g.arg(2, 512, 512), g.arg(512, 2048), shape=shape, **summed)
    masked = g.op("select", g.op("compare", made, nothing, dtype="pred"), back, nothing, dtype="f32")
    ends += [g.op("dot_general", masked, g.arg(2048, 512), shape=(2, 512, 512), **summed) for _ in range(2)]
    assert fuse(g.graph(*ends)).graph.values[made].dtype == ("f32" if also_rectified else "bf16")


def test_what_a_convolution_leaves_beside_what_it_rectifies_is_rounded_all_the_same() -> None:
    """As compiled for v3: a conv net split by images and columns takes 3.57 ms; 3.69 if what kernels of their own make
    bits of were float32, of which they read 24 MiB and not 40.
    """

    def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        for each in weights:
            x = jax.nn.relu(jax.lax.conv_general_dilated(x, each, (1, 1), "SAME", dimension_numbers=IMAGES))
        return jnp.mean(x**2)

    plan = mw.loads(
        "meshwright: 1\ntopology: v3:4x4\nmesh: {x: 4, y: 8}\ntensors: {'weights/*': replicate, x: B@x A@y ...}"
    )
    weights = [jax.ShapeDtypeStruct((3, 3, 64, 64), jnp.float32)] * 4
    found = mw.estimate(
        plan, jax.value_and_grad(loss), (weights, jax.ShapeDtypeStruct((32, 256, 256, 64), jnp.float32))
    )
    assert {each.num_bytes >> 20 for each in found.kernels if each.label == "compare"} == {0, 24}


@pytest.mark.parametrize("also_rectified", [True, False])
def test_a_convolution_that_writes_two_images_makes_no_bits_of_them(*, also_rectified: bool) -> None:
    """As compiled for v3: ``u32[8,256,64]`` by a kernel of its own of 151872 cycles, a mask again by another of 98224;
    of one not rectified, by itself.
    """
    image, said = (8, 256, 32, 64), CONVOLVED
    g = Writer()
    nothing = g.spread(g.scalar(0.0), *image)
    made = g.op("convolution", g.arg(*image), g.arg(3, 3, 64, 64), shape=image, **said)
    read = g.op("maximum", made, nothing) if also_rectified else made
    after = g.op("all-to-all", read, dimensions=(0, 1), axes=("x",))
    back = g.op("convolution", g.arg(*image), g.arg(3, 3, 64, 64), shape=image, **said)
    masked = g.op("select", g.op("compare", made, nothing, dtype="pred"), back, nothing, dtype="f32")
    ends = [g.op("convolution", masked, g.arg(3, 3, 64, 64), shape=image, **said) for _ in range(2)]
    program = fuse(g.graph(after, *ends))
    (mask,) = (each for each in price(program, catalogue()["v3"]) if ("pred", 4) in written(program, [each.kernel]))
    assert mask.cycles == pytest.approx((151872 + 98224) * also_rectified, rel=0.1)


def test_gates_of_two_products_are_computed_anew_by_each_product_that_reads_them() -> None:
    """Gated layers on every chip keep what their two products make, in float32, and not what the gate makes of it."""
    rows, width = 256, 512

    def program(*, gated: bool) -> Program:
        g = Writer()
        batch = g.arg(rows, width)
        up = g.dot(batch, g.arg(width, width))
        gate = g.dot(batch, g.arg(width, width)) if gated else g.arg(rows, width)
        both = g.op("multiply", g.op("tanh", gate), up)
        more = [g.op("exponential", up), g.op("exponential", gate)] if gated else []
        return fuse(g.graph(g.dot(both, g.arg(width, width)), g.dot(g.arg(rows, width), both, 0, 0), *more))

    shared = [written(found, found.kernels).count(("bf16", 2)) for found in (program(gated=True), program(gated=False))]
    assert shared == [0, 1]


@pytest.mark.parametrize(
    ("experts", "places", "joins"), [(8, 64, True), (32, 32, True), (64, 32, False), (32, 16, False), (16, 128, False)]
)
def test_products_join_two_dims_where_the_last_is_no_smaller_than_the_other(
    experts: int, places: int, *, joins: bool
) -> None:
    """As compiled for v3, v4, v5e and v5p: more experts than places come into the lanes as they are."""
    g = Writer()
    shape = (GROUPS, TOKENS, experts, places)
    one = g.spread(g.arg(GROUPS, TOKENS, experts), *shape, dims=(0, 1, 2))
    mask = g.op("multiply", one, g.spread(g.arg(GROUPS, TOKENS, places), *shape, dims=(0, 1, 3)))
    program = fuse(g.graph(routed(g, mask)))
    assert any(mask in kernel.writes for kernel in program.kernels) == joins


def sliced(g: Writer, value: int) -> int:
    """All rows but the last."""
    said = {"start_indices": (0, 0), "limit_indices": (255, 4096), "strides": (1, 1)}
    return g.op("slice", value, shape=(255, 4096), **said)


def test_a_part_of_what_is_converted_is_taken_before() -> None:
    """Logits of all tokens but the last, made wide before that is cut off: so compiled for v6e, largest in passing."""
    found = []
    for converts_first in (True, False):
        g = Writer()
        logits = g.dot(g.arg(256, 512, dtype="bf16"), g.arg(512, 4096, dtype="bf16"))
        wide = g.op("convert", logits if converts_first else sliced(g, logits), dtype="f32")
        part = sliced(g, wide) if converts_first else wide
        program = fuse(g.graph(g.total(part, 1, reducer="maximum"), g.op("exponential", part)))
        found.append([sorted(program.graph.ops[op].kind for op in kernel.ops) for kernel in program.kernels])
    assert found[0] == found[1]
    assert {"dot_general", "slice", "reduce"} <= {*found[0][0]}


def test_what_is_converted_whole_for_others_is_sliced_then() -> None:
    g = Writer()
    wide = g.op("convert", g.arg(256, 4096, dtype="bf16"), dtype="f32")
    graph = g.graph(sliced(g, wide), wide)
    assert with_slices_first(graph) is graph


@pytest.mark.parametrize(("products", "is_written"), [(1, False), (2, True)])
def test_a_mask_of_wider_numbers_is_written_once_for_several_products(products: int, *, is_written: bool) -> None:
    """As compiled for v4, v5e and v6e: ``pred[32,1024,1,40]`` of float32 where tokens have gradients."""
    shape = (GROUPS, TOKENS, EXPERTS, 128)
    g = Writer()
    weights = g.op("multiply", g.arg(*shape), g.spread(g.arg(GROUPS, TOKENS), *shape, dims=(0, 1)))
    mask = g.op("compare", weights, g.spread(g.scalar(0.0), *shape), dtype="pred")
    numbers = g.op("convert", mask, dtype="bf16")
    program = fuse(g.graph(*(routed(g, numbers) for _ in range(products))))
    assert (("pred", 4) in written(program, program.kernels)) == is_written


@pytest.mark.parametrize("is_looked_up", [True, False])
def test_a_products_table_is_read_as_it_is_rounded_for_lookups(*, is_looked_up: bool) -> None:
    """Tied embeddings in bfloat16, as compiled for v4 and v5p: rounded once, not by each product again."""
    g = Writer()
    table, rows, ids = g.arg(4096, 256), g.arg(64, 256, dtype="bf16"), g.arg(64, 1, dtype="s32")
    looked_up = g.op("convert", table, dtype="bf16")
    found = g.op("gather", looked_up, ids, shape=(64, 256), collapsed_slice_dims=(0,), slice_sizes=(1, 256))
    turned = g.op("transpose", table, shape=(256, 4096), permutation=(1, 0))
    logits = g.dot(rows, g.op("convert", turned, dtype="bf16"))
    program = fuse(g.graph(*((found, logits) if is_looked_up else (logits,))))
    (product,) = (kernel for kernel in program.kernels if logits in kernel.writes)
    assert (table in product.reads) != is_looked_up
