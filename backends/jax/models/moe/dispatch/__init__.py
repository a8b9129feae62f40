"""Dispatch: how tokens reach the experts, and how what experts say returns to the tokens."""

from __future__ import annotations

from typing import Any, Protocol

import jax

from ..routing import Routing


class Dispatch(Protocol):
    """A way there and back. What it sends is [E, G, C, M], buffers of C slots, or ``Sorted``."""

    def prepare(self, routing: Routing, *, experts: int, capacity: int) -> Any:
        """What both ways need to know of a routing: a pytree of arrays."""
        ...

    def send(self, prepared: Any, inputs: jax.Array, *, experts: int, capacity: int) -> Any:
        """Each token of ``inputs`` [G, S, M] to where its choices' experts find it, laid out as the tokens are."""
        ...

    def combine(self, prepared: Any, returned: Any) -> jax.Array:
        """[G, S, M]: the weighted sum of what the experts say of each token; zero for one that no expert takes."""
        ...
