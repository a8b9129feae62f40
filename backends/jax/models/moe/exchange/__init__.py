"""Exchange: how what was dispatched moves to the devices that own the experts, and what they say moves back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Work = Callable[[Any], Any]
"""The experts' work on what was sent, with the same structure in and out."""


class Exchange(Protocol):
    """A way to the experts and back: ``exchange(work, sent)`` gives what ``work`` says of ``sent``, where it came from.

    ``sent`` is what a dispatch sends: [E, G, C, M], or ``Sorted``. The exchange runs the work, so that it may cut it
    into chunks and let those that compute overlap with those that move.
    """

    def __call__(self, work: Work, sent: Any) -> Any:
        """What the experts say, laid out as ``sent``."""
        ...
