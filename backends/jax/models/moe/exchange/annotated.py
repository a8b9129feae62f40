"""The exchange by annotation: layouts say where tokens and experts are, and the compiler's reshards move them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from ....annotate import propagation_barrier
from ..routing import Params
from . import Exchanged, Work
from .chunked import in_chunks


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatedExchange:
    """The dispatch is computed where the tokens are, the combination where they return to.

    The experts' layout does not spread back into them, so that what moves is their result, in an all-to-all
    (GShard section 3.3.2, "resharding").
    """

    chunks: int = 1
    """Chunks of the slots that are exchanged and computed in turn; ``Sorted`` tokens go as one."""

    def __call__(self, work: Work, params: Params, sent: Any, *, key: jax.Array | None) -> Exchanged:
        """``work(params, sent, key)``, between barriers. Nothing is ever refused."""

        def there_and_back(sent: Any, key: jax.Array | None) -> Exchanged:
            arrived = jax.tree.map(lambda x: propagation_barrier(x, allowed="forward"), sent)
            said = work(params, arrived, key)
            returned = jax.tree.map(lambda x: propagation_barrier(x, allowed="backward"), said)
            return Exchanged(returned, jax.numpy.int32(0))

        return in_chunks(there_and_back, sent, key, chunks=self.chunks)
