"""Exchange: how what was dispatched moves to the devices that own the experts, and what they say moves back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ..routing import Params

Work = Callable[[Params, Any], Any]
"""The experts' work, ``work(params, sent)``, with the same structure in and out."""


class Exchange(Protocol):
    """A way to the experts and back: ``exchange(work, params, sent)`` gives what ``work`` says, laid out as sent.

    ``sent`` is what a dispatch sends: [E, G, C, M], or ``Sorted``; ``params`` are the experts' weights, leading dim E.
    The exchange runs the work, so that it may cut it into chunks and let those that compute overlap with those that
    move.
    """

    def __call__(self, work: Work, params: Params, sent: Any) -> Any:
        """What the experts say, laid out as ``sent``."""
        ...
