"""The exchange by annotation: layouts say where tokens and experts are, and the compiler's reshards move them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from ....annotate import propagation_barrier
from ..routing import Params
from . import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatedExchange:
    """The dispatch is computed where the tokens are, the combination where they return to.

    The experts' layout does not spread back into them, so that what moves is their result, in an all-to-all
    (GShard section 3.3.2, "resharding").
    """

    def __call__(self, work: Work, params: Params, sent: Any) -> Any:
        """``work(params, sent)``, between barriers."""
        arrived = jax.tree.map(lambda x: propagation_barrier(x, allowed="forward"), sent)
        return jax.tree.map(lambda x: propagation_barrier(x, allowed="backward"), work(params, arrived))
