"""A text that Meshwright says of something wrong."""

from __future__ import annotations

from typing import NamedTuple


class Text(NamedTuple):
    """A message and its remedy, with ``{names}`` for the numbers."""

    message: str
    remedy: str = ""
