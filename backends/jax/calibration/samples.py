"""The programs that calibration compiles: one thing varied at a time, and small pieces of models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from . import pieces

F32, BF16 = jnp.float32, jnp.bfloat16
LENGTHS = (1024, 8192)
PRODUCTS = (
    (1024, 1024, 1024), (4096, 4096, 4096), (8192, 1024, 1024), (1024, 8192, 1024), (512, 8192, 8192),
    (8192, 512, 4096), (4096, 4096, 256), (16384, 768, 3072), (4096, 128, 4096), (8192, 4096, 64), (128, 2048, 8192),
)  # fmt: skip
BATCHED = ((16, 512, 64, 512), (64, 256, 128, 256), (8, 2048, 128, 512), (128, 128, 128, 128))


@dataclass(frozen=True, slots=True)
class Sample:
    """A program: a function and the shapes and dtypes of its arguments."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def samples() -> tuple[Sample, ...]:
    """All programs, in an order in which neighbours are alike."""
    kinds = (_chains(), _reductions(), _moves(), _products(), _batched(), _updates(), pieces.all_pieces(Sample))
    return tuple(sample for kind in kinds for sample in kind)


def _of(*shape: int, dtype: Any = F32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def _chains() -> Iterator[Sample]:
    """Elementwise work: one to four arrays, both dtypes, few and many operations on them."""
    for size in LENGTHS:
        for dtype in (F32, BF16):
            one = _of(size, 2048, dtype=dtype)
            tag = f"{size} {jnp.dtype(dtype).name}"
            yield Sample(f"scale {tag}", lambda a: a * 2 + 1, (one,))
            yield Sample(f"add {tag}", lambda a, b: a + b, (one, one))
            yield Sample(f"combine {tag}", lambda a, b, c: a * b + c, (one, one, one))
            yield Sample(f"two results {tag}", lambda a, b: (a * b, a - b), (one, one))
        yield Sample(f"exponential {size}", lambda a: jnp.exp(a), (_of(size, 2048),))
        yield Sample(f"narrow {size}", lambda a: (a * 2).astype(BF16), (_of(size, 2048),))
        yield Sample(f"widen {size}", lambda a: a.astype(F32) * 2, (_of(size, 2048, dtype=BF16),))
        yield Sample(f"mask {size}", lambda a: a * 2 > 1, (_of(size, 2048),))
        yield Sample(f"deep {size}", _deep, (_of(size, 2048),))


def _deep(a: Any) -> Any:
    for _ in range(24):
        a = a * a + 1
    return a


def _reductions() -> Iterator[Sample]:
    for size in LENGTHS:
        for dtype in (F32, BF16):
            one = _of(size, 2048, dtype=dtype)
            tag = f"{size} {jnp.dtype(dtype).name}"
            yield Sample(f"sum rows {tag}", lambda a: (a * a).sum(-1, dtype=F32), (one,))
            yield Sample(f"sum columns {tag}", lambda a, b: (a * b).sum(0, dtype=F32), (one, one))
            yield Sample(f"plain maximum {tag}", lambda a: a.max(-1), (one,))


def _moves() -> Iterator[Sample]:
    for size in LENGTHS:
        one = _of(size, 2048)
        yield Sample(f"spread {size}", lambda a, b: a[:, None] + b, (_of(size), one))
        yield Sample(f"slice {size}", lambda a: a[: a.shape[0] // 2] * 2, (one,))
        yield Sample(f"pad {size}", lambda a, b: jnp.pad(a, ((8, 0), (0, 0)))[: b.shape[0]] + b, (one, one))


def _products() -> Iterator[Sample]:
    """Products plain, of a transposed operand, with work before and behind them."""
    for rows, depth, columns in PRODUCTS:
        left, right, made = _of(rows, depth), _of(depth, columns), _of(rows, columns)
        tag = f"{rows}x{depth}x{columns}"
        yield Sample(f"product {tag}", lambda a, b: a @ b, (left, right))
        yield Sample(f"product {tag} bfloat16", lambda a, b: a @ b, (_narrow(left), _narrow(right)))
        yield Sample(f"turned {tag}", lambda a, b: a.T @ b, (_of(depth, rows), right))
        yield Sample(f"prologue {tag}", lambda a, b, c: (jnp.exp(a) * b) @ c, (left, left, right))
        yield Sample(f"epilogue {tag}", lambda a, b, c: jnp.tanh(a @ b) + c, (left, right, made))


def _batched() -> Iterator[Sample]:
    for batch, rows, depth, columns in BATCHED:
        left, right = _of(batch, rows, depth), _of(batch, depth, columns)
        tag = f"{batch}x{rows}x{depth}x{columns}"
        yield Sample(f"batched {tag}", lambda a, b: jnp.einsum("bij,bjk->bik", a, b), (left, right))
        yield Sample(f"batched {tag} bfloat16", lambda a, b: jnp.einsum("bij,bjk->bik", a, b), (_narrow(left), right))
        turned = _of(batch, depth, rows)
        yield Sample(f"batched turned {tag}", lambda a, b: jnp.einsum("bji,bjk->bik", a, b), (turned, right))


def _narrow(of: Any) -> Any:
    return of.update(dtype=BF16)


def _updates() -> Iterator[Sample]:
    for rows, columns in ((512, 1024), (1024, 4096), (4096, 4096), (16384, 1024)):
        one = _of(rows, columns)
        yield Sample(f"adam {rows}x{columns}", pieces.adam, (one, one, one, one))
        yield Sample(f"momentum {rows}x{columns}", pieces.momentum, (one, one, one))
