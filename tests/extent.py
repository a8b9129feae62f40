"""How much is tested: all of it with ``MESHWRIGHT_EVERY=1`` in the environment, in an hour; else what twenty minutes
have room for, which is one of several like cases.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

EVERY = os.environ.get("MESHWRIGHT_EVERY") == "1"
Case = TypeVar("Case")


def some(cases: Sequence[Case], of: int = 2, first: int = 0) -> list[Case]:
    """One case of so many, from the first on; all where all are asked for."""
    return list(cases if EVERY else cases[first::of])


def examples(few: int, many: int) -> int:
    """How many examples hypothesis draws."""
    return many if EVERY else few
