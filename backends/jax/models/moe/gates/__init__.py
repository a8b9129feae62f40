"""Gates: which experts a token goes to, and with what weight."""

from __future__ import annotations

from typing import Protocol

import jax

from ..routing import Params, Routing


class Gate(Protocol):
    """A gate: a frozen value that routes tokens."""

    def __call__(
        self, params: Params, inputs: jax.Array, valid: jax.Array, *, capacity: int, key: jax.Array | None
    ) -> Routing:
        """Routes ``inputs`` [G, S, M], of which ``valid`` [G, S] bool are not padding, into ``capacity`` slots.

        ``params`` are the layer's own. Noise and random routing draw from ``key``; without one there is neither.
        """
        ...
