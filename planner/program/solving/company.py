"""What choices of several nodes take together, in a problem of nodes and pairs, so that its relaxation sees it.

A node that pays unless one of them chooses otherwise has its relaxation let each do so a little, and where they must do
so as one, the same little is counted for each. So first all are left out that hardly can by themselves: what a pair
takes beyond what is said of it there pays for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...solver.problem import FORBIDDEN
from .learnt import Together

BINDING = 8.0
"""How many times what is taken together a node must take more on a pair to follow its other end."""

Costs = NDArray[np.float64]
Pairs = MutableMapping[tuple[int, int], Costs]


class Company(NamedTuple):
    """A node that pays: its ``costs``, and the table of each of some nodes with it, ``tables``."""

    costs: Costs
    tables: dict[int, Costs]


def company(together: Together, missed_s: float, counts: Mapping[int, int]) -> Company:
    """A node that takes ``missed_s`` if all of some nodes, of ``counts`` choices, choose as said, and nothing else.

    Its first choice is to pay, and each other one to say which node chooses otherwise.
    """
    costs = np.zeros(len(together) + 1)
    costs[0] = missed_s
    tables = {}
    for position, (node, choices) in enumerate(together):
        tables[node] = np.zeros((counts[node], len(costs)))
        tables[node][list(choices), position + 1] = FORBIDDEN
    return Company(costs, tables)


def led(together: Together, missed_s: float, costs: Mapping[int, Costs], pairs: Pairs) -> Together:
    """Those of some nodes that lead the others: who does not follow one pays as much at least on their pair. That is
    taken off there, ``pairs``, which so may count less than a solution takes, and never more.
    """
    left = {node: _mask(costs[node], choices) for node, choices in together}
    beside = {node: [ends for ends in pairs if node in ends and left.keys() >= set(ends)] for node in left}
    while len(left) > 1:
        found = ((_binds(node, ends, left, costs, pairs), node, ends) for node in left for ends in beside[node])
        most_s, node, ends = max(found, default=(-math.inf, -1, (-1, -1)))
        if most_s < BINDING * missed_s:
            break
        table = pairs[ends] if ends[0] == node else pairs[ends].T
        leader = ends[1] if ends[0] == node else ends[0]
        less = np.where(np.outer(~left[node], left[leader]), table - missed_s, table)
        pairs[ends] = less if ends[0] == node else less.T
        del left[node]
        beside = {node: [ends for ends in several if left.keys() >= set(ends)] for node, several in beside.items()}
    return tuple(each for each in together if each[0] in left)


def _mask(costs: Costs, choices: tuple[int, ...]) -> NDArray[np.bool_]:
    return np.isin(np.arange(len(costs)), choices)


def _binds(
    node: int,
    ends: tuple[int, int],
    left: Mapping[int, NDArray[np.bool_]],
    costs: Mapping[int, Costs],
    pairs: Pairs,
) -> float:
    """What a node takes more at least, by itself and on a pair, where the other end chooses as said and it does not."""
    own = left[node]
    if own.all():
        return FORBIDDEN
    if not own.any():
        return 0.0
    table = pairs[ends] if ends[0] == node else pairs[ends].T
    other = left[ends[1] if ends[0] == node else ends[0]]
    with_own = table[:, other] + costs[node][:, None]
    least, least_own = with_own[~own].min(axis=0), with_own[own].min(axis=0)
    can_be = np.isfinite(least) | np.isfinite(least_own)  # what the other end chooses is not forbidden anyway
    return float((least[can_be] - least_own[can_be]).min(initial=FORBIDDEN)) if other.any() else 0.0


def taken_together(learnt: Mapping[Together, float], costs: dict[int, Costs], pairs: Pairs) -> list[Company]:
    """The nodes that pay for what was learnt that choices take together; what one node decides is added to its
    ``costs``. From ``pairs`` it is taken what others pay for (``led``). Both are by the nodes that decide.
    """
    found = []
    still = ((together, missed_s) for together, missed_s in learnt.items() if missed_s > 0)  # some was taken back
    for together, missed_s in sorted(still, key=lambda each: -each[1]):
        leading = led(together, missed_s, costs, pairs)
        if len(leading) == 1:
            ((node, choices),) = leading
            costs[node] = costs[node] + missed_s * _mask(costs[node], choices)
        else:
            found.append(company(leading, missed_s, {node: len(costs[node]) for node, _ in leading}))
    return found
