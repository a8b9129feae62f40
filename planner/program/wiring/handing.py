"""Which choices of those that hand values on, and of those that are handed them, leave what that takes as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...solver.arrays import Flags
from .wires import Wiring


class Handing(NamedTuple):
    """An end of an edge: who asks for what that takes, its node, and those of its choices under which it takes as long
    as under the one chosen.
    """

    reader: int
    node: int
    same: frozenset[int]


def handing(wiring: Wiring, choices: Sequence[int]) -> Iterator[Handing]:
    """All ends of edges. The choices are those that the program tells apart in nothing on this edge, those from which
    as much is sent, and those that lie the same.
    """
    for ends, table in wiring.tables.items():
        reader, (source, target) = wiring.reader(ends), wiring.handing(ends)
        rows = table if source == ends[0] else table.T
        here, there = choices[source], choices[target]
        own = (rows == rows[here]).all(axis=1)
        as_long = rows[:, there] == rows[here, there]
        own |= as_long if rows[here, there] > 0 else _lying_alike(wiring, source, here, own, as_long)
        yield Handing(reader, source, frozenset(np.flatnonzero(own).tolist()))
        theirs = (rows[:, there] == rows.T).all(axis=1)
        as_long = (rows[own] == rows[here, there]).all(axis=0)
        theirs |= _lying_alike(wiring, target, there, theirs, as_long)
        yield Handing(reader, target, frozenset(np.flatnonzero(theirs).tolist()))


def _lying_alike(wiring: Wiring, node: int, choice: int, known: Flags, among: Flags) -> Flags:
    """Which of some choices of a node, but for those ``known``, lay all out as one does: the step is the same then."""
    several, found = wiring.nodes[node].layouts.values(), np.zeros(len(among), np.bool_)
    for at in np.flatnonzero(among & ~known).tolist():
        found[at] = all(own[at] == own[choice] for own in several)
    return found
