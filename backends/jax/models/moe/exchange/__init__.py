"""Exchange: how what was dispatched moves to the devices that own the experts, and what they say moves back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax

from ..routing import Params

Work = Callable[[Params, Any, jax.Array | None], Any]
"""The experts' work, ``work(params, sent, key)``, with the same structure in and out; dropout draws from the key."""


class Exchanged(NamedTuple):
    """What comes back of an exchange."""

    returned: Any
    """What the experts say, laid out as sent."""
    refused: jax.Array
    """Int32: the rows that found no room where their experts are; zeros return for them."""


class Exchange(Protocol):
    """A way to the experts and back: ``exchange(work, params, sent)`` gives what ``work`` says, laid out as sent.

    ``sent`` is what a dispatch sends: [E, G, C, M], or ``Sorted``; ``params`` are the experts' weights, leading dim E.
    The exchange runs the work, so that it may cut it into chunks and let those that compute overlap with those that
    move.
    """

    def __call__(self, work: Work, params: Params, sent: Any, *, key: jax.Array | None) -> Exchanged:
        """What the experts say, and what was refused."""
        ...
