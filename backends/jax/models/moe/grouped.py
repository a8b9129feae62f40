"""Grouped products: rows sorted by expert, each expert's rows times its own matrix.

Dims: N rows, E experts with some rows each, one after another, M and H the matrices'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

Product = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
Kernel = Literal["auto", "ragged_dot", "megablox", "blocks"]
TILE = 128
"""Rows of a tile of the Pallas kernel, and the most that are multiplied at once where a loop goes over blocks."""


def block_rows(rows: int, experts: int) -> int:
    """Rows of a block: a power of two, at most half of what a balanced expert has, from 8 to 128."""
    share = max(8, rows // max(1, 2 * experts))
    return int(min(TILE, 2 ** (share.bit_length() - 1)))


def grouped_product(rows: jax.Array, weights: jax.Array, sizes: jax.Array, kernel: Kernel) -> jax.Array:
    """[N, H] from ``rows`` [N, M], ``weights`` [E, M, H] and ``sizes`` [E] int32, the rows of each expert in turn.

    What stands behind the last expert's rows is undefined. ``kernel`` is what computes it: ``ragged_dot`` is JAX's
    operation, an instruction on TPU, on CPU a masked product with every matrix, E times the operations; ``megablox``
    is the Pallas kernel that ships with JAX (TPU v4 and later; N a multiple of 128); ``blocks`` is a loop over blocks
    of rows, which computes what it must and up to a block of rows an expert more. ``auto`` is ``blocks`` on CPU and
    ``ragged_dot`` elsewhere.
    """
    if kernel == "auto":
        chosen: jax.Array = jax.lax.platform_dependent(rows, weights, sizes, cpu=block_product, default=ragged_product)
        return chosen
    kernels: dict[str, Product] = {"ragged_dot": ragged_product, "megablox": megablox_product, "blocks": block_product}
    return kernels[kernel](rows, weights, sizes)


def ragged_product(rows: jax.Array, weights: jax.Array, sizes: jax.Array) -> jax.Array:
    """By ``jax.lax.ragged_dot``."""
    return jax.lax.ragged_dot(rows, weights, sizes, preferred_element_type=rows.dtype)


def megablox_product(rows: jax.Array, weights: jax.Array, sizes: jax.Array) -> jax.Array:
    """By Pallas' ``gmm``."""
    from jax.experimental.pallas.ops.tpu.megablox import gmm

    tiles = (TILE, min(TILE, weights.shape[1]), min(TILE, weights.shape[2]))
    product: jax.Array = gmm(rows, weights, sizes, rows.dtype, tiles)
    return product


@jax.custom_vjp
def block_product(rows: jax.Array, weights: jax.Array, sizes: jax.Array) -> jax.Array:
    """By a loop over experts and blocks of their rows.

    The last block of an expert runs over into the next one's rows, whose own blocks, which come later, write over it.
    """
    starts = jnp.cumsum(sizes) - sizes
    block = block_rows(len(rows), len(weights))
    padded = jnp.pad(rows, ((0, block), (0, 0)))

    def of_expert(e: jax.Array, out: jax.Array) -> jax.Array:
        weight = weights[e]

        def of_block(j: jax.Array, out: jax.Array) -> jax.Array:
            at = starts[e] + j * block
            product = jax.lax.dynamic_slice_in_dim(padded, at, block) @ weight
            return jax.lax.dynamic_update_slice_in_dim(out, product, at, axis=0)

        filled: jax.Array = jax.lax.fori_loop(0, _blocks(sizes[e], block), of_block, out)
        return filled

    out = jnp.zeros((len(padded), weights.shape[-1]), rows.dtype)
    whole: jax.Array = jax.lax.fori_loop(0, len(weights), of_expert, out)
    return whole[: len(rows)]


def _block_forward(
    rows: jax.Array, weights: jax.Array, sizes: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
    return block_product(rows, weights, sizes), (rows, weights, sizes)


def _block_backward(
    saved: tuple[jax.Array, jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array, None]:
    rows, weights, sizes = saved
    return block_product(gradient, weights.mT, sizes), _outer_products(rows, gradient, sizes), None


block_product.defvjp(_block_forward, _block_backward)


def _outer_products(rows: jax.Array, gradient: jax.Array, sizes: jax.Array) -> jax.Array:
    """[E, M, H]: for each expert the sum over its rows of ``rows`` [N, M] times ``gradient`` [N, H]."""
    starts, block = jnp.cumsum(sizes) - sizes, block_rows(len(rows), len(sizes))
    left, right = (jnp.pad(x, ((0, block), (0, 0))) for x in (rows, gradient))

    def of_expert(e: jax.Array, sums: jax.Array) -> jax.Array:
        def of_block(j: jax.Array, total: jax.Array) -> jax.Array:
            own = (j * block + jnp.arange(block) < sizes[e])[:, None]
            x, y = (jax.lax.dynamic_slice_in_dim(z, starts[e] + j * block, block) for z in (left, right))
            return total + jnp.matmul(jnp.where(own, x, 0).T, y, preferred_element_type=jnp.float32)

        total = jnp.zeros(sums.shape[1:], jnp.float32)
        total = jax.lax.fori_loop(0, _blocks(sizes[e], block), of_block, total)
        return sums.at[e].set(total.astype(sums.dtype))

    sums = jnp.zeros((len(sizes), rows.shape[1], gradient.shape[1]), rows.dtype)
    whole: jax.Array = jax.lax.fori_loop(0, len(sizes), of_expert, sums)
    return whole


def _blocks(size: jax.Array, block: int) -> jax.Array:
    return (size + block - 1) // block
