"""Slices and concatenations along split dims, beside the collectives of XLA's own partitioner on CPU devices."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from meshwright.planner.graph import Factors
from meshwright.planner.kinds import ALL_REDUCE, REDUCE_SCATTER
from meshwright.planner.partition import partition
from meshwright.planner.partition.slices import rows_sent
from test_partition import Written, machine, moved

SENT = re.compile(r"f32\[\d+,(\d+)\]\S* collective-permute\(")


def compiled(step: Callable[..., jax.Array], parts: int, *shapes: tuple[int, ...]) -> str:
    mesh = jax.make_mesh((parts,), ("x",), axis_types=(AxisType.Auto,))
    split = NamedSharding(mesh, PartitionSpec(None, "x"))
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return jax.jit(step, in_shardings=split, out_shardings=split).lower(*args).compile().as_text()


@pytest.mark.parametrize(
    ("size", "begin", "end", "parts"),
    [(2048, 0, 1024, 4), (2048, 1024, 2048, 4), (3072, 0, 1024, 4), (3072, 2048, 3072, 4), (6144, 2048, 4096, 8),
     (6144, 0, 2048, 8), (4096, 2048, 3072, 4), (4096, 64, 2112, 4)],
)  # fmt: skip
def test_rows_from_further_away_are_sent_in_the_partitioners_permutes(
    size: int, begin: int, end: int, parts: int
) -> None:
    text = compiled(lambda x: jax.lax.slice_in_dim(x, begin, end, axis=1), parts, (8, size))
    made = (end - begin) // parts
    needed = [(begin + n * made, begin + (n + 1) * made - 1) for n in range(parts)]
    assert Counter(map(int, SENT.findall(text))) == Counter(rows_sent(size // parts, needed, size))


@pytest.mark.parametrize(
    ("lies", "cut", "end"),
    [("_ _@x", "replicate", 2048), ("_@y _@x", "_@y _", 2048), ("_ _@x+y", "_ _@y", 2048),
     ("_ _@x+y", "_@y _", 1088), ("_ _@x", "_@x _", 2048), ("_ _@x+y", "_@y _@x", 2048)],
)  # fmt: skip
def test_what_lies_in_more_parts_than_its_slice_is_cut_as_it_lies(lies: str, cut: str, end: int) -> None:
    """In all that is sent beside what XLA's partitioner makes of it, where the slice's place is as fixed as its own."""
    rules = f"  x: {lies}\n  out: {cut}\n  ops/**/sin.0: {lies}\n  ops/**/slice.0: {cut}\n"
    plan = mw.loads(f"meshwright: 1\ntopology: cpu:8\nmesh: {{x: 4, y: 2}}\ntensors:\n{rules}")

    def step(x: jax.Array) -> jax.Array:
        return jnp.tanh(jnp.tanh(jnp.sin(x)[:, 1024:end]))

    args = [jax.ShapeDtypeStruct((16, 4096), jnp.float32)]
    devices = jax.devices("cpu")[:8]
    compiled = mw.verify(plan, step, args, devices=devices).compiled
    assert sent(mw.estimate(plan, step, args).collectives) == sent(compiled.collectives)


def sent(collectives: Iterable[Any]) -> Counter[str]:
    """Bytes by kind."""
    found: Counter[str] = Counter()
    for each in collectives:
        found[each.kind] += each.num_bytes * each.times
    return found


@pytest.mark.parametrize(("begin", "end"), [(512, 3584), (1024, 4096), (0, 3072)])
def test_rows_of_neighbours_need_no_permutes_of_their_own(begin: int, end: int) -> None:
    made = (end - begin) // 4
    needed = [(begin + n * made, begin + (n + 1) * made - 1) for n in range(4)]
    assert rows_sent(1024, needed, 4096) == ()


@pytest.mark.parametrize("rows", [16, 6])
def test_what_is_put_together_along_a_split_dim_moves_its_axes_to_another_meanwhile(rows: int) -> None:
    """Where no other dim divides, the operands are gathered; seen in the kinds that XLA's partitioner makes."""
    plan = mw.loads('meshwright: 1\ntopology: cpu:4\nmesh: {x: 4}\ntensors:\n  "**": A _@x\n')

    def step(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.concatenate([a, b], 1)

    text = compiled(step, 4, (rows, 1024), (rows, 512))
    args = [jax.ShapeDtypeStruct((rows, size), jnp.float32) for size in (1024, 512)]
    predicted = Counter(each.kind for each in mw.estimate(plan, step, args).collectives for _ in range(each.times))
    assert predicted == Counter(re.findall(r" (all-to-all|all-gather|collective-permute)\(", text))


@pytest.mark.parametrize(("size", "k"), [(4096, 64), (256, 128)])
def test_the_largest_of_a_split_dim_are_each_devices_own_gathered(size: int, k: int) -> None:
    """Where a device has as many; else all are gathered. Numbers and places are gathered, as seen on v3 and v5e."""

    def step(x: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jax.lax.top_k(x, k))

    plan = mw.loads('meshwright: 1\ntopology: v5e:2x2\nmesh: {x: 4}\ntensors:\n  x: A B@x\n  "**": _ _\n')
    found = mw.estimate(plan, step, [jax.ShapeDtypeStruct((16, size), jnp.float32)]).collectives
    expected = 2 * 16 * 4 * k * 4 if 4 * k <= size else 16 * size * 4
    assert sum(each.num_bytes * each.times for each in found) == expected
    assert {each.kind for each in found} == {"all-gather"}


def test_the_largest_of_rows_that_are_split_are_looked_for_where_they_lie() -> None:
    """And what is computed of them lies so too: a gate's choices stay with their tokens."""

    def step(x: jax.Array) -> jax.Array:
        values, places = jax.lax.top_k(x, 2)
        return (values * places.astype(jnp.float32)).sum(-1)

    plan = mw.loads("meshwright: 1\ntopology: v5e:2x2\nmesh: {x: 4}\ntensors:\n  x: A@x _ _\n  out: A@x _\n")
    assert not mw.estimate(plan, step, [jax.ShapeDtypeStruct((16, 64, 8), jnp.float32)]).collectives


@pytest.mark.parametrize(
    ("shape", "k", "split", "dtype", "gathers"),
    [
        ((256, 4096), 1, "x", "float32", True),
        ((256, 4096), 4, "x", "float32", True),
        ((256, 4096), 33, "x", "float32", True),
        ((256, 384), 4, "x", "float32", True),
        ((256, 256), 4, "x", "float32", False),
        ((256, 4096), 64, "x", "float32", False),
        ((256, 65536), 512, "x", "float32", False),
        ((256, 4096), 4, "x+y", "float32", False),
        ((16, 16, 4096), 4, "x", "float32", False),
        ((256, 4096), 33, "x", "bfloat16", True),
        ((256, 4096), 4, "x+y", "bfloat16", True),
        ((256, 256), 64, "x", "bfloat16", False),
    ],
)
def test_rows_that_only_some_axes_split_are_ranked_whole_where_one_operation_ranks_them(
    shape: tuple[int, ...], k: int, split: str, dtype: str, gathers: bool
) -> None:
    """As compiled for v5e:4x4, and of a beam's search over a vocabulary: what is sorted instead stays where it lies.

    Of bfloat16 numbers and places are gathered as one, 4 bytes, however the rows are split.
    """

    def step(x: jax.Array) -> jax.Array:
        return jax.lax.top_k(x * 2, k)[0]

    plan = (
        f"meshwright: 1\ntopology: v5e:4x4\nmesh: {{x: 4, y: 4}}\ntensors:\n  x: _@{split} ...\n  out: _@{split} ...\n"
    )
    found = mw.estimate(mw.loads(plan), step, [jax.ShapeDtypeStruct(shape, dtype)]).collectives
    sizes = [(each.kind, each.num_bytes) for each in found]
    assert sizes == ([("all-gather", 4 * shape[0] * shape[1])] if gathers else [])


@pytest.mark.parametrize(
    ("topology", "k", "dtype", "num_bytes"),
    [
        ("v3:2x2", 8, "float32", 262144),
        ("v3:2x2", 300, "float32", 262144),
        ("v5e:2x4", 1, "float32", 262144),
        ("v6e:2x4", 64, "bfloat16", 131072),
    ],
)
def test_a_row_by_itself_is_gathered_to_be_sorted(topology: str, k: int, dtype: str, num_bytes: int) -> None:
    """As compiled: no device ranks a part of it, and numbers are gathered as they are, whatever their dtype."""

    def step(x: jax.Array) -> jax.Array:
        return jax.lax.top_k(x, k)[0]

    plan = f"meshwright: 1\ntopology: {topology}\nmesh: {{x: 8}}\ntensors:\n  x: _@x\n  out: _\n"
    found = mw.estimate(mw.loads(plan), step, [jax.ShapeDtypeStruct((65536,), dtype)]).collectives
    assert [(each.kind, each.num_bytes) for each in found] == [("all-gather", num_bytes)]


@pytest.mark.parametrize(("axes", "devices"), [("y", 4), ("x+y", 16)])
def test_the_place_of_the_largest_of_a_split_dim_is_that_of_the_devices_largest_gathered(
    axes: str, devices: int
) -> None:
    """As compiled for v5e:4x4: f32[4,1,256] and s32[4,1,256] of 256 rows (k-means with its centres split)."""
    plan = mw.loads(
        f"meshwright: 1\ntopology: v5e:4x4\nmesh: {{x: 4, y: 4}}\ntensors:\n  x: _ _@{axes}\n  out: replicate\n"
    )

    def step(x: jax.Array) -> jax.Array:
        return jnp.argmax(x, -1)

    found = mw.estimate(plan, step, [jax.ShapeDtypeStruct((256, 4096), jnp.float32)]).collectives
    assert [(each.kind, each.dtype, each.num_bytes) for each in found] == [
        ("all-gather", dtype, devices * 256 * 4) for dtype in ("f32", "s32")
    ]


def gradient_of_buffers(turned: bool) -> set[str]:
    """The collectives of what experts were given, added up over their split hidden dims and sent back to its groups."""

    def step(h: jax.Array, w: jax.Array, d: jax.Array) -> jax.Array:
        y = jnp.einsum("egch,emh->egcm", h, w)
        if not turned:
            return jax.lax.dot_general(d, y, (((2, 3), (0, 2)), ((0,), (1,))))
        return jax.lax.dot_general(d, y.transpose(1, 3, 0, 2), (((2, 3), (2, 3)), ((0,), (0,))))

    plan = "topology: v3:2x4\nmesh: {x: 16}\ntensors:\n  h: E G C H@x\n  w: E M H@x\n  d: G@x S E C\n  out: G@x S M\n"
    shapes = ((8, 32, 20, 1024), (8, 256, 1024), (32, 64, 8, 20))
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return {each.kind for each in mw.estimate(mw.loads(f"meshwright: 1\n{plan}"), step, args).collectives}


def test_a_sum_lies_as_the_transpose_that_reads_its_part_has_it() -> None:
    """So each device's part lies apart in memory and is all that it gets, though experts' dims stand before it."""
    assert gradient_of_buffers(turned=True) == {"reduce-scatter"}
    assert gradient_of_buffers(turned=False) == {"all-reduce"}


def test_images_follow_a_kernel_whose_groups_of_features_are_split() -> None:
    def step(x: jax.Array, k: jax.Array) -> jax.Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=64)

    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((16, 8, 8, 64), (3, 3, 1, 64))]
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
    images, kernel = (NamedSharding(mesh, PartitionSpec(*spec)) for spec in (("x",), (None, None, None, "x")))
    text = jax.jit(step, in_shardings=(images, kernel), out_shardings=images).lower(*args).compile().as_text()
    plan = mw.loads(
        'meshwright: 1\ntopology: cpu:4\nmesh: {x: 4}\ntensors:\n  x: B@x _ _ _\n  k: _ _ _ F@x\n  "**": B@x _ _ _\n'
    )
    predicted = Counter(each.kind for each in mw.estimate(plan, step, args).collectives for _ in range(each.times))
    assert predicted == {"all-to-all": 2}
    assert predicted == Counter(re.findall(r" (all-to-all|all-gather|collective-permute)\(", text))


@pytest.mark.parametrize(("dtype", "kind"), [("f32", REDUCE_SCATTER), ("bf16", ALL_REDUCE)])
def test_a_sum_is_scattered_along_whole_registers_of_lanes(dtype: str, kind: str) -> None:
    """Of 128 columns a device; seen on v3: bf16[4096,2048] over 16 devices stays an all-reduce."""
    written = Written({"x": 4, "y": 8})
    a, b = (written.argument((4096, size), (("y",), ()), dtype) for size in (4096, 1024))
    factors = Factors(
        sizes=(4096, 1024, 4096), operands=(((2,), (0,)), ((2,), (1,))), results=(((0,), (1,)),), reduction=(2,)
    )
    graph = written.graph(written.op("dot_general", (a, b), (4096, 1024), ((), ("y",)), factors=factors, dtype=dtype))
    assert [found[0] for found in moved(partition(graph, machine=machine("v3:4x4")))] == [kind]
