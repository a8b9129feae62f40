"""The strategies of a kernel with their seconds, and what these are more or less by in other company."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graph import Sharding
from .choices import Choice
from .costs import Sum

Seconds = NDArray[np.float64]
EachTurn = tuple[Seconds, Sequence[Sum | None]]
BY_READING = ("far", "parts", "across", "rounded")
BY_VALUE = ("layouts", "savings", "tables", *BY_READING, "sums", "each_turn", "done", "whole")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The strategies of a kernel: ``costs`` are seconds of one run under each, ``apart`` those more if one that is free
    has to run by itself, ``after`` if a product before it is to compute it, ``layouts`` those of its values.

    ``savings`` are the seconds less where it reads a value that it is handed, not computing it in passing;
    ``tables`` those more where it reads a value as it lies that was scattered into, ``far`` where it reads one from the
    large memory that lies there so, or one that a GPU copies for it, ``parts`` where it does a part of one, ``across``
    where one has been gathered of pieces that lie across; ``rounded`` are those less where it reads one that was
    rounded for its products. Those of a product that something ends are more by ``ended`` if that is computed with it,
    and by ``alone`` if not. ``sums`` has what is added up over devices as it is written, ``each_turn`` what else is
    added up behind a loop, with the seconds more where it is in every turn; ``done`` under which strategies nothing
    done to it later can be computed with it, by the value: it is left as bits, or devices sent it. What is computed in
    passing takes ``whole`` more, by the value, where a device's part is cut out of it: then it is written before. From
    those ``deterred`` a search is kept as if they cost so much more.
    """

    costs: Seconds
    apart: Seconds
    after: Seconds
    layouts: dict[int, list[Sharding]]
    savings: dict[int, Seconds]
    tables: dict[int, Seconds] = field(default_factory=dict)
    far: dict[int, Seconds] = field(default_factory=dict)
    parts: dict[int, Seconds] = field(default_factory=dict)
    across: dict[int, Seconds] = field(default_factory=dict)
    rounded: dict[int, Seconds] = field(default_factory=dict)
    chosen: tuple[Choice, ...] = ()
    ended: Seconds | None = None
    alone: Seconds | None = None
    sums: dict[int, list[Sum | None]] = field(default_factory=dict)
    each_turn: dict[int, EachTurn] = field(default_factory=dict)
    done: dict[int, NDArray[np.bool_]] = field(default_factory=dict)
    whole: dict[int, Seconds] = field(default_factory=dict)
    rough: dict[int, float] = field(default_factory=dict)
    deterred: dict[int, float] = field(default_factory=dict)

    @property
    def exactly(self) -> list[bool]:
        """Which of them are priced."""
        return [place not in self.rough for place in range(len(self.chosen))]

    def renamed(self, numbers: Sequence[int]) -> Options:
        """The same of a kernel whose values have other numbers."""
        found: dict[str, Any] = {
            name: {numbers[place]: each for place, each in getattr(self, name).items()} for name in BY_VALUE
        }
        return replace(self, **found)

    def reading(self, values: Container[int]) -> Options:
        """What hangs on how values are read, of these alone."""
        found: dict[str, Any] = {
            name: {v: each for v, each in getattr(self, name).items() if v in values} for name in BY_READING
        }
        return replace(self, **found)
