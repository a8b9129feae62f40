"""The names of what operations read."""

from __future__ import annotations

import re

TURN = re.compile(r"(.*)/(\d+)$")


def operand_path(path: str, position: int) -> str:
    """The path of an operand of the operation that makes the value at ``path``, as it reads it."""
    turn = TURN.match(path)
    return f"{path}.in{position}" if turn is None else f"{turn[1]}.in{position}/{turn[2]}"
