"""What a plan says that makes it take longer than was promised is left out.

What lies between a value and what makes it may have no path: as the program lays that out, bringing the value into a
layout costs nothing, and as propagation does it costs much.
"""

from __future__ import annotations

from collections.abc import Sequence

from .flow import Flow
from .groups import Group
from .guide import seconds
from .prices import CLOSE, Priced, Prices

MOST = 8  # groups of values that are left out one at a time, those where the step takes longest first


def relieved(prices: Prices, found: Priced, groups: Sequence[Group], flow: Flow) -> Priced:
    """``found`` without what it is quicker without, where it takes longer than was promised."""
    if found.estimate is None or prices.keeps(found):
        return found
    took = seconds(found.estimate)
    said = [group for group in groups if found.values.intersection(group.paths)]
    said.sort(
        key=lambda group: (
            -max((took.get(flow.spots[path], 0.0) for path in group.makers if path in flow.spots), default=0.0)
        )
    )
    for group in said[:MOST]:
        if prices.late or prices.keeps(found):
            break
        trial = prices.of(found.values.difference(group.paths))
        if trial.rank[0] <= found.rank[0] and trial.rank[1] < found.rank[1] * (1 - CLOSE):
            found = trial
    return found
