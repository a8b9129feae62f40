"""Programs of one kernel or a few, of which the catalogue's figures of a GPU are fitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from .case import Case, abstract

BF16, F32 = jnp.bfloat16, jnp.float32
MIB = 2**20


def small() -> Iterator[Case]:
    """Every one of them."""
    yield from _products()
    yield from _batches()
    yield from _passes()
    yield from _lookups()
    yield from _chains()


def _case(name: str, step: Callable[..., Any], *args: Any, high: int = 0) -> Case:
    return Case(name=name, step=step, args=args, high=high)


def _name(dtype: Any) -> str:
    return {BF16: "bf16", F32: "f32"}[dtype]


def _product(rows: int, depth: int, columns: int, dtype: Any, precision: str = "default") -> Case:
    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.dot(x, w, precision=precision)

    more = "" if precision == "default" else f" {precision}"
    name = f"product {_name(dtype)}{more} {rows}x{depth}x{columns}"
    return _case(name, step, abstract((rows, depth), dtype), abstract((depth, columns), dtype))


def _products() -> Iterator[Case]:
    for size in (256, 512, 1024, 2048, 4096, 8192):
        yield _product(size, size, size, BF16)
        yield _product(size, size, size, F32)
    for rows, depth, columns in (
        (64, 4096, 4096), (512, 1024, 4096), (4096, 64, 4096), (16384, 1024, 1024), (32768, 512, 2048),
        (1024, 32768, 1024), (32768, 1024, 32768), (4096, 1000, 4096), (8192, 2048, 8192),
    ):  # fmt: skip
        yield _product(rows, depth, columns, BF16)
    for rows, depth, columns in ((512, 1024, 4096), (16384, 1024, 1024), (32768, 1024, 4096), (1024, 32768, 1024)):
        yield _product(rows, depth, columns, F32)
    yield _product(4096, 4096, 4096, F32, "high")
    yield _product(4096, 4096, 4096, F32, "highest")


def _einsum(spec: str, *shapes: tuple[int, ...], dtype: Any) -> Case:
    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.einsum(spec, x, w)

    sizes = " ".join("x".join(map(str, shape)) for shape in shapes)
    return _case(f"{spec} {_name(dtype)} {sizes}", step, *(abstract(shape, dtype) for shape in shapes))


def _batches() -> Iterator[Case]:
    for dtype in (BF16, F32):
        yield _einsum("btnd,bsnd->bnts", (64, 512, 16, 64), (64, 512, 16, 64), dtype=dtype)
        yield _einsum("bnts,bsnd->btnd", (64, 16, 512, 512), (64, 512, 16, 64), dtype=dtype)
        yield _einsum("egcm,emh->egch", (32, 32, 64, 1024), (32, 1024, 4096), dtype=dtype)
        yield _einsum("gsec,gsm->egcm", (32, 1024, 32, 64), (32, 1024, 1024), dtype=dtype)

        def convolution(x: jax.Array, k: jax.Array) -> jax.Array:
            return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

        for images, edge, features in ((32, 128, 64), (64, 32, 256)):
            name = f"convolution {_name(dtype)} {images}x{edge}x{edge}x{features}"
            shapes = abstract((images, edge, edge, features), dtype), abstract((3, 3, features, features), dtype)
            yield _case(name, convolution, *shapes)


def _passes() -> Iterator[Case]:
    for mib in (1, 4, 16, 64, 1024):
        yield _case(f"add f32 {mib} MiB each", lambda x, y: x * 2 + y, *[abstract((mib * MIB // 4096, 1024), F32)] * 2)
    wide = abstract((65536, 1024), F32)
    yield _case("gelu f32", jax.nn.gelu, wide)
    yield _case("gelu bf16", jax.nn.gelu, abstract((65536, 1024), BF16))
    yield _case("round f32", lambda x: x.astype(BF16), wide)
    yield _case("sum of rows f32", lambda x: x.sum(1), wide)
    yield _case("sum of columns f32", lambda x: x.sum(0), wide)
    yield _case("sum of all f32", jnp.sum, wide)
    yield _case("softmax f32 65536x1024", jax.nn.softmax, wide)
    yield _case("softmax f32 2048x32768", jax.nn.softmax, abstract((2048, 32768), F32))
    yield _case("softmax bf16 1024x512x512", jax.nn.softmax, abstract((1024, 512, 512), BF16))
    yield _case("norm f32 65536x1024", _norm, wide, abstract((1024,), F32))
    yield _case("transpose f32", lambda x: x.T.copy() + 0, abstract((8192, 8192), F32))
    yield _case("transpose bf16 btnd->bntd", lambda x: jnp.swapaxes(x, 1, 2) + 0, abstract((64, 512, 16, 64), BF16))
    yield _case("running sum f32 32x1024x64", lambda x: jnp.cumsum(x, 1), abstract((32, 1024, 64), F32))
    yield _case("argmax f32 65536x64", lambda x: jnp.argmax(x, -1), abstract((65536, 64), F32))
    yield _case("sort f32 1024x4096", lambda x: jnp.sort(x, -1), abstract((1024, 4096), F32))
    yield _case("sort f32 4194304", jnp.sort, abstract((4194304,), F32))
    yield _case("top 2 f32 32768x64", lambda x: jax.lax.top_k(x, 2), abstract((32768, 64), F32))


def _norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale


def _lookups() -> Iterator[Case]:
    for rows, width, ids in ((32000, 1024, 32768), (1048576, 64, 131072)):
        table, numbers = abstract((rows, width), F32), abstract((ids,), jnp.int32)
        yield _case(f"gather f32 {ids} of {rows}x{width}", lambda t, i: t[i], table, numbers, high=rows)
        yield _case(
            f"scatter f32 {ids} into {rows}x{width}",
            lambda t, i, x: t.at[i].add(x), table, numbers, abstract((ids, width), F32), high=rows,
        )  # fmt: skip


def _chains() -> Iterator[Case]:
    """Kernels that each wait for the one before, so small that starting them is what they take; and larger ones whose
    values the second-level cache holds between them.
    """

    def products(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(128):
            x = x @ w
        return x

    def norms(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(64):
            x = _norm(x @ w, w[0])
        return x

    def turns(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 128, lambda _, x: x @ w, x)

    def sums(x: jax.Array) -> jax.Array:
        for _ in range(32):
            x = x - x.mean(0, keepdims=True)
            x = x - x.mean(1, keepdims=True)
        return x

    square = abstract((128, 128), BF16)
    yield _case("chain of 128 products bf16 128", products, square, square)
    yield _case("loop of 128 products bf16 128", turns, square, square)
    yield _case("chain of 64 products and norms bf16 128", norms, square, square)
    yield _case("chain of 128 products bf16 1024", products, *[abstract((1024, 1024), BF16)] * 2)
    yield _case("chain of 64 means f32 64 KiB", sums, abstract((128, 128), F32))
    yield _case("chain of 64 means f32 4 MiB", sums, abstract((1024, 1024), F32))
    yield _case("chain of 64 means f32 16 MiB", sums, abstract((4096, 1024), F32))
    yield _case("chain of 64 means f32 256 MiB", sums, abstract((65536, 1024), F32))
