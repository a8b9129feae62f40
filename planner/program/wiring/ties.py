"""Nodes of repeated blocks, which share one decision."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from .wires import Wiring

FEWEST = 6
"""From how many repetitions on they share decisions; fewer are decided one by one, as the norms of two layers, but for
those that have paths in common. One may stand for several.
"""

Numbers = NDArray[np.int64]


def tied(wiring: Wiring) -> Numbers:
    """For each node the one that decides for it: itself, or the first of the repetitions that it is one of."""
    keys = _keys(wiring)
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for number, key in enumerate(keys):
        groups[key].append(number)
    leader = np.arange(len(wiring.nodes))
    for key, members in groups.items():
        if key is not None and sum(wiring.nodes[number].repeats for number in members) >= FEWEST:
            leader[members] = members[0]
        elif key is not None:
            _share(wiring, members, leader)
    return leader


def _share(wiring: Wiring, members: Sequence[int], leader: Numbers) -> None:
    """Lets the first of those that have a path in common decide."""
    first: dict[str, int] = {}
    for number in members:
        paths = sorted(wiring.nodes[number].paths)
        leader[number] = min((first[path] for path in paths if path in first), default=number)
        for path in paths:
            first.setdefault(path, int(leader[number]))


def _keys(wiring: Wiring) -> Sequence[Hashable]:
    """What repetitions have in common: kernels their stems and choices, values theirs and what they are handed to."""
    known: dict[Hashable, int] = {}

    def number(key: Hashable) -> int:
        return known.setdefault(key, len(known))

    beside: list[list[int]] = [[] for _ in wiring.nodes]
    for a, b in wiring.tables:
        beside[a].append(b)
        beside[b].append(a)
    found: list[int] = []
    for node in wiring.nodes:
        layouts = tuple(map(tuple, node.layouts.values()))
        own = (node.costs / node.repeats).astype(np.float32).tobytes() if node.stems is not None else b""
        found.append(number((node.level, node.stems, layouts, own)))
    for _ in range(2):
        found = [
            now if node.stems else number((now, tuple(sorted({found[n] for n in beside[place]}))))
            for place, (node, now) in enumerate(zip(wiring.nodes, found, strict=True))
        ]
    return found
