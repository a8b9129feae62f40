"""The experts' work on what was sent to them.

Dims: E experts with C slots for each of G groups, model dim M, hidden dim H.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import jax
import jax.numpy as jnp

from ...annotate import tag
from ..dropout import dropout
from .dispatch.sorted import Sorted, merged, permuted
from .grouped import Kernel, block_rows, grouped_product
from .routing import Params

Sent = TypeVar("Sent", jax.Array, Sorted)


class Experts(Protocol):
    """What experts do: a frozen value."""

    def weights(self, params: Params, dtype: Any) -> Any:
        """The experts' own weights among the layer's, for tokens of ``dtype``: every leaf has a leading dim E."""
        ...

    def __call__(self, params: Params, sent: Any, *, key: jax.Array | None) -> Any:
        """What each expert says of the tokens sent to it, laid out as ``sent``; dropout draws from ``key``.

        ``params`` are what ``weights`` gives.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """wo·ReLU(wi·x), without biases (GShard equation 2); ``wi`` [E, M, H] and ``wo`` [E, H, M]."""

    dropout: float = 0.0
    """Rate of the dropout of hidden values (Switch's expert dropout, section 2.4)."""
    kernel: Kernel = "auto"
    """What computes grouped products of sorted tokens."""

    def weights(self, params: Params, dtype: Any) -> Params:
        """``wi`` and ``wo`` in the tokens' dtype, so that what is gathered of them is no wider, nor are gradients."""
        return {name: params[name].astype(dtype) for name in ("wi", "wo")}

    def __call__(self, params: Params, sent: Sent, *, key: jax.Array | None) -> Sent:
        """[E, G, C, M] from ``sent`` [E, G, C, M], or ``Sorted`` from ``Sorted``."""
        if isinstance(sent, Sorted):
            return on_merged(sent, lambda rows, sizes: self._of_rows(params, rows, sizes, key))
        wi, wo = (params[name].astype(sent.dtype) for name in ("wi", "wo"))
        hidden = jax.nn.relu(jnp.einsum("EGCM,EMH->EGCH", sent, wi))
        hidden = tag(self._dropped(hidden, key), "moe/hidden")
        return tag(jnp.einsum("EGCH,EHM->EGCM", hidden, wo), "moe/expert_outputs")

    def _of_rows(self, params: Params, rows: jax.Array, sizes: jax.Array, key: jax.Array | None) -> jax.Array:
        wi, wo = (params[name].astype(rows.dtype) for name in ("wi", "wo"))
        hidden = jax.nn.relu(grouped_product(rows, wi, sizes, self.kernel))
        hidden = tag(self._dropped(hidden, key), "moe/hidden")
        return grouped_product(hidden, wo, sizes, self.kernel)

    def _dropped(self, hidden: jax.Array, key: jax.Array | None) -> jax.Array:
        if key is None or self.dropout == 0:
            return hidden
        return dropout(hidden, self.dropout, jax.random.fold_in(key, 3))  # 0 to 2 are the gate's


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyExperts:
    """Any module as the expert, as in FastMoE: ``module(params, tokens)`` gives [n, M'] of ``tokens`` [n, M].

    It says of each token what it would say of it alone. Its parameters are the layer's ``experts``: any pytree, every
    leaf with a leading dim E.
    """

    module: Callable[[Any, jax.Array], jax.Array]

    def weights(self, params: Params, dtype: Any) -> Any:
        """``experts``, as they are."""
        return params["experts"]

    def __call__(self, params: Any, sent: Sent, *, key: jax.Array | None) -> Sent:
        """[E, G, C, M'] from ``sent`` [E, G, C, M], or ``Sorted`` from ``Sorted``."""
        if isinstance(sent, Sorted):
            return on_merged(sent, lambda rows, sizes: self._of_rows(params, rows, sizes))
        E, G, C, M = sent.shape
        said = jax.vmap(self.module)(params, sent.reshape(E, G * C, M))
        return tag(said.reshape(E, G, C, -1), "moe/expert_outputs")

    def _of_rows(self, params: Any, rows: jax.Array, sizes: jax.Array) -> jax.Array:
        """By blocks of rows of one expert each, one after another."""
        block_size = block_rows(len(rows), len(sizes))
        starts, blocks = jnp.cumsum(sizes) - sizes, (sizes + block_size - 1) // block_size
        last_block, padded = jnp.cumsum(blocks), jnp.pad(rows, ((0, block_size), (0, 0)))
        first_block = last_block - blocks

        def of_block(number: jax.Array) -> jax.Array:
            expert = jnp.minimum(jnp.searchsorted(last_block, number, side="right"), len(sizes) - 1)
            at = starts[expert] + (number - first_block[expert]) * block_size
            block = jax.lax.dynamic_slice_in_dim(padded, at, block_size)
            return self.module(jax.tree.map(lambda p: p[expert], params), block)

        said = jax.lax.map(of_block, jnp.arange(len(rows) // block_size + len(sizes)))
        number = jnp.arange(len(rows))
        expert = jnp.minimum(jnp.searchsorted(starts + sizes, number, side="right"), len(sizes) - 1)
        inner = number - starts[expert]
        found: jax.Array = said[first_block[expert] + inner // block_size, inner % block_size]
        return found


def on_merged(sent: Sorted, work: Callable[[jax.Array, jax.Array], jax.Array]) -> Sorted:
    """``work(rows [N, M], sizes [E])`` on the rows of all groups together, and back to the groups."""
    G, N, _ = sent.rows.shape
    if G == 1:
        said = work(sent.rows[0], sent.sizes[0])[None]
    else:
        source, place, sizes = merged(sent)
        flat = permuted(sent.rows.reshape(G * N, -1), source, place)
        said = permuted(work(flat, sizes), place, source).reshape(G, N, -1)
    return sent._replace(rows=tag(said, "moe/expert_outputs"))
