"""How long the code of products is: the more they multiply, up to a limit of the chip's."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
import small_steps
from meshwright.backends.jax.drafts import Drafts
from meshwright.planner.catalogue import catalogue
from meshwright.planner.graph import Op, Value
from meshwright.planner.kernels import Kernel, Program
from meshwright.planner.memory.code import BASE_BYTES, OTHER_KERNEL_BYTES, code_bytes, least_code_bytes
from programs import CONVOLVED, of_ops
from small_steps import Pair
from written_plans import by_hand

KIB = 1 << 10


def code(rows: int, depth: int, columns: int, kind_of_chip: str) -> int:
    """What a program of one product takes beyond one without."""
    values = (Value((rows, depth), "f32"), Value((depth, columns), "f32"), Value((rows, columns), "f32"))
    said = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    op = Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=said)
    chip = catalogue()[kind_of_chip]
    return code_bytes(of_ops(values, (op,), (0, 1), (2,)), chip) - BASE_BYTES


@pytest.mark.parametrize(("rows", "depth", "columns", "kind_of_chip", "kib"), [
    (1024, 512, 512, "v5p", 103),
    (1024, 512, 512, "v3", 73),
    (1024, 512, 2048, "v5p", 212),
    (1024, 512, 2048, "v6e", 270),
    (4096, 1024, 4096, "v3", 243),
    (4096, 1024, 4096, "v6e", 529),
])  # fmt: skip
def test_code_is_about_as_long_as_compiled(rows: int, depth: int, columns: int, kind_of_chip: str, kib: int) -> None:
    assert code(rows, depth, columns, kind_of_chip) / KIB == pytest.approx(kib, rel=0.3)


@pytest.mark.parametrize(("width", "kib"), [(32, 6), (1024, 160)])
def test_the_code_of_an_update_is_as_long_as_its_arrays_need(width: int, kib: int) -> None:
    """Three results number by number, as Adam's: small ones are not gone through in a loop."""
    values = (Value((width, width), "f32"),) * 4
    ops = tuple(Op(kind=kind, operands=(0,), results=(n,)) for n, kind in enumerate(("tanh", "negate", "sign"), 1))
    graph = of_ops(values, ops, (0,), (1, 2, 3)).graph
    update = Program(graph=graph, kernels=(Kernel(ops=(0, 1, 2), reads=(0,), writes=(1, 2, 3)),))
    assert (code_bytes(update, catalogue()["v5e"]) - BASE_BYTES - OTHER_KERNEL_BYTES) / KIB <= kib


@pytest.mark.parametrize(("places", "groups", "kib"), [(1, 1, 376), (3, 1, 1157), (5, 1, 1180), (7, 128, 208)])
def test_the_code_of_convolutions_hangs_on_their_windows(places: int, groups: int, kib: int) -> None:
    """As compiled for v5e, forward and for the kernel on average: windows of 1, 9 and 25 places over 16 images and over
    a single one, and features apart.
    """
    image, kernel = Value((16, 64, 64, 128), "f32"), Value((places, places, 128 // groups, 128), "f32")
    op = Op(
        kind="convolution",
        operands=(0, 1),
        results=(2,),
        attributes=CONVOLVED | {"feature_group_count": groups},
    )
    made = code_bytes(of_ops((image, kernel, image), (op,), (0, 1), (2,)), catalogue()["v5e"]) - BASE_BYTES
    assert 0.5 * kib <= made / KIB <= 2 * kib


@pytest.mark.parametrize(
    ("size", "enters", "leaves", "window", "kib"),
    [(56, 64, 64, 3, 686), (14, 256, 256, 3, 476), (7, 512, 512, 3, 265), (14, 256, 1024, 1, 241)],
)
def test_the_code_of_convolutions_of_many_images_grows_with_the_root_of_their_work(
    size: int, enters: int, leaves: int, window: int, kib: int
) -> None:
    """As compiled for v5e, of eight images in bfloat16 and of sums beside what is made of them."""
    image, kernel = Value((8, size, size, enters), "bf16"), Value((window, window, enters, leaves), "bf16")
    made, summed = Value((8, size, size, leaves), "bf16"), Value((leaves,), "bf16")
    ops = (
        Op(kind="convolution", operands=(0, 1), results=(2,), attributes=CONVOLVED),
        Op(kind="reduce", operands=(2, 3), results=(4,), attributes={"dimensions": (0, 1, 2), "reducer": "add"}),
    )
    graph = of_ops((image, kernel, made, Value((), "bf16"), summed), ops, (0, 1, 3), (2, 4)).graph
    program = Program(graph=graph, kernels=(Kernel(ops=(0, 1), reads=(0, 1), writes=(2, 4)),))
    assert (code_bytes(program, catalogue()["v5e"]) - BASE_BYTES) / KIB == pytest.approx(kib, rel=0.5)


@pytest.mark.parametrize(("batch", "size", "enters", "leaves", "window", "kind_of_chip", "kib"), [
    (4, 8, 32, 128, 5, "v5e", 75), (4, 32, 128, 128, 5, "v5e", 155),
    (1, 14, 32, 128, 5, "v5p", 71), (1, 28, 128, 64, 5, "v5p", 68),
    (1, 14, 64, 64, 3, "v6e", 236), (2, 16, 64, 32, 3, "v6e", 276), (1, 16, 256, 64, 5, "v6e", 532),
])  # fmt: skip
def test_the_code_of_convolutions_of_images_with_gaps_is_short(
    batch: int, size: int, enters: int, leaves: int, window: int, kind_of_chip: str, kib: int
) -> None:
    """As compiled, alone, of the bundles of 64 bytes that libtpu prints of a kernel: few images, windows that moved on
    by two on the way forward.
    """
    values = (
        Value((batch, size, size, enters), "bf16"),
        Value((window, window, leaves, enters), "bf16"),
        Value((batch, 2 * size, 2 * size, leaves), "bf16"),
    )
    half = window // 2
    gaps = {"lhs_dilation": (2, 2), "padding": ((half + 1, half),) * 2, "window_reversal": (True, True)}
    said = CONVOLVED | gaps | {"kernel_input_feature_dimension": 3, "kernel_output_feature_dimension": 2}
    op = Op(kind="convolution", operands=(0, 1), results=(2,), attributes=said)
    made = code_bytes(of_ops(values, (op,), (0, 1), (2,)), catalogue()[kind_of_chip]) - BASE_BYTES
    assert 0.6 * kib <= made / KIB <= 2.2 * kib


def test_no_program_takes_less_than_the_least() -> None:
    assert code(8, 8, 8, "v5e") >= least_code_bytes([8**3 * 2.0], 0)


@pytest.mark.parametrize(("size", "enters", "leaves", "kib"), [(28, 256, 64, 317), (14, 64, 32, 119), (7, 32, 256, 73)])
def test_the_code_of_small_convolutions_is_short_where_nothing_is_near(
    size: int, enters: int, leaves: int, kib: int
) -> None:
    """As compiled for v3, of two images in bfloat16: windows of nine places that move on by two."""
    images = (Value((2, 2 * size, 2 * size, enters), "bf16"), Value((2, size, size, leaves), "bf16"))
    values = (images[0], Value((3, 3, enters, leaves), "bf16"), images[1])
    said = CONVOLVED | {"window_strides": (2, 2), "padding": ((0, 1), (0, 1))}
    op = Op(kind="convolution", operands=(0, 1), results=(2,), attributes=said)
    made = code_bytes(of_ops(values, (op,), (0, 1), (2,)), catalogue()["v3"]) - BASE_BYTES
    assert made / KIB == pytest.approx(kib, rel=0.4)


@pytest.mark.tpu_compiler
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")
def test_what_widens_the_parts_of_few_images_is_written_out() -> None:
    """Two images a device, windows of one place that move on by two: without it half of the code is predicted (v6e)."""

    def loss(kernels: list[jax.Array], images: jax.Array) -> jax.Array:
        for steps, kernel in enumerate(kernels, 1):
            images = jax.lax.conv_general_dilated(
                images.astype(jnp.bfloat16),
                kernel.astype(jnp.bfloat16),
                (steps, steps),
                "SAME",
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )
            images = jax.nn.relu(images)
        return jnp.mean(images.astype(jnp.float32) ** 2)

    kernels = [jax.ShapeDtypeStruct((1, 1, enters, 128), jnp.float32) for enters in (16, 128)]
    args = kernels, jax.ShapeDtypeStruct((8, 64, 64, 16), jnp.float32)
    text = "meshwright: 1\ntopology: v6e:2x2\nmesh: {a: 4}\ntensors:\n  images: B@a ...\n  kernels/**: replicate\n"
    plan, step = mw.loads(text + "  out/**: infer\n"), jax.jit(jax.value_and_grad(loss))
    compiled = mw.apply(plan, step, args).lower(*args).compile().memory_analysis().generated_code_size_in_bytes
    assert mw.estimate(plan, step, args).memory.code_bytes == pytest.approx(compiled, rel=0.25)


@pytest.mark.tpu_compiler
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")
@pytest.mark.parametrize("topology", ["v3:2x2", "v5e:2x4"])
@pytest.mark.parametrize(("make", "flops", "loops"), [
    (lambda: small_steps.mlp(512, 256, 512, 2), [2 * 512 * 256 * 512 / 8] * 11, 0),
    (lambda: small_steps.mlp(4096, 1024, 2048, 2), [2 * 4096 * 1024 * 2048 / 8] * 11, 0),
    (lambda: small_steps.scanned(2048, 512, 1024, 4), [2 * 2048 * 512 * 1024 / 8] * 6, 2),
])  # fmt: skip
def test_small_steps_take_little_code(make: Callable[[], Pair], flops: list[float], loops: int, topology: str) -> None:
    """What a step's kernels take is all that there is: a plan was refused for a MiB of code that it does not have."""
    pair = make()
    where = mw.loads(f"meshwright: 1\ntopology: {topology}\n").topology
    plan = by_hand(Drafts(*pair).tensors, where, {"a": 4, "b": 2})["data and tensor parallel"]
    compiled = mw.apply(plan, *pair).lower(*pair[1]).compile().memory_analysis().generated_code_size_in_bytes
    predicted = mw.estimate(plan, *pair).memory.code_bytes
    assert least_code_bytes(flops, loops) <= min(compiled, predicted)
    assert 0.5 * compiled <= predicted <= 2 * compiled


@pytest.mark.tpu_compiler
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")
@pytest.mark.parametrize("turns", [0, 40])
def test_no_compiled_program_takes_less_than_the_least(turns: int) -> None:
    """Tiny products, one after another or each in a loop of its own: what is proven not to fit must not."""

    def step(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        for w in weights:
            x = jax.lax.fori_loop(0, turns, lambda _, x, w=w: jnp.tanh(x @ w), x) if turns else jnp.tanh(x @ w)
        return x

    count = 6 if turns else 24
    args = ([small_steps.shape(128, 128)] * count, small_steps.shape(64, 128))
    weights = "".join(f"  weights/{n}: _ _\n" for n in range(count))
    plan = mw.loads(f"meshwright: 1\ntopology: v5e:2x4\nmesh: {{x: 8}}\ntensors:\n{weights}  x: _ _\n  out: _ _\n")
    compiled = mw.apply(plan, step, args).lower(*args).compile().memory_analysis().generated_code_size_in_bytes
    assert least_code_bytes([2.0 * 64 * 128 * 128] * count, count if turns else 0) <= compiled


@pytest.mark.parametrize(("kind_of_chip", "kind", "table", "rows", "kib"), [
    ("v5e", "gather", (32768, 512), 512, (20, 40)),
    ("v3", "gather", (32768, 512), 8192, (14, 40)),
    ("v6e", "gather", (1000, 128), 512, (0, 40)),
    ("v6e", "gather", (32768, 512), 8192, (490, 510)),
    ("v5p", "gather", (32768, 512), 8192, (490, 540)),
    ("v5e", "scatter", (1000, 128), 4096, (150, 220)),
    ("v5e", "scatter", (32768, 512), 2048, (100, 170)),
    ("v5e", "scatter", (32768, 512), 4096, (790, 860)),
    ("v4", "scatter", (32768, 512), 8192, (840, 990)),
])  # fmt: skip
def test_the_code_of_lookups_is_about_as_long_as_compiled(
    kind_of_chip: str, kind: str, table: tuple[int, int], rows: int, kib: tuple[int, int]
) -> None:
    """The first or the last of ``kib`` is what programs of one of them take beyond one that adds a number."""
    taken, found = Value((rows, table[1]), "f32"), Value((rows, 1), "s32")
    if kind == "gather":
        op = Op(kind=kind, operands=(0, 1), results=(2,), attributes={"slice_sizes": (1, table[1])})
        made = of_ops((Value(table, "f32"), found, taken), (op,), (0, 1), (2,))
    else:
        op = Op(kind=kind, operands=(0, 1, 2), results=(3,))
        made = of_ops((Value(table, "f32"), found, taken, Value(table, "f32")), (op,), (0, 1, 2), (3,))
    assert kib[0] <= (code_bytes(made, catalogue()[kind_of_chip]) - BASE_BYTES) / KIB <= kib[1]


def test_what_is_put_into_stacks_takes_the_code_of_its_slices() -> None:
    """A scan's: the step of a GRU of 128, whose loop fills eight stacks of 32, takes 1.1 MiB for v5e in all."""
    stack, piece = Value((32, 16, 128), "f32"), Value((1, 16, 128), "f32")
    ops = tuple(Op(kind="dynamic_update_slice", operands=(n, 3), results=(4 + n,)) for n in range(3))
    graph = of_ops((stack,) * 3 + (piece,) + (stack,) * 3, ops, (0, 1, 2, 3), (4, 5, 6)).graph
    put = Program(graph=graph, kernels=(Kernel(ops=(0, 1, 2), reads=(0, 1, 2, 3), writes=(4, 5, 6)),))
    assert code_bytes(put, catalogue()["v5e"]) - BASE_BYTES - OTHER_KERNEL_BYTES <= 8 * KIB
