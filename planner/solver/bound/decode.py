"""A solution from messages: node by node the best choice beside those made, as far as the limits leave room."""

from __future__ import annotations

import numpy as np

from ..arrays import Floats, Ints
from ..compiled import internal
from ..rows_used import Usage, add_use, fits
from .field import Field


@internal
def decode(field: Field, usage: Usage, theta: Floats, messages: Floats, forward: bool) -> tuple[Ints, float, bool]:
    """Choices in the order of the nodes (or backward), their cost without prices, and whether all is allowed.

    ``theta`` has the choices' costs at the rows' prices; the cost given back is in these terms too.
    """
    nodes = len(field.backward)
    choices = np.zeros(nodes, np.int64)
    used = np.zeros(len(usage.limits), np.int64)
    total, good = 0.0, True
    for k in range(nodes):
        node = k if forward else nodes - 1 - k
        first = field.half_start[node]
        middle = first + field.backward[node]
        sofar = theta[field.choice_start[node] : field.choice_start[node + 1]].copy()
        hope = np.zeros(len(sofar))
        for h in range(first, field.half_start[node + 1]):
            if (h < middle) == forward:
                at = field.table_at[h] + choices[field.other[h]] * len(sofar)
                sofar += field.table[at : at + len(sofar)]
            else:
                hope += messages[field.message_at[h] : field.message_at[h + 1]]
        choice = _first_that_fits(usage, used, node, sofar + hope)
        if choice < 0:
            good = False
            choice = int(np.argmin(sofar + hope))
        choices[node] = choice
        add_use(usage, used, node, choice, 1)
        total += sofar[choice]
    return choices, total, good and total < np.inf


@internal
def _first_that_fits(usage: Usage, used: Ints, node: int, costs: Floats) -> int:
    """The cheapest choice within the limits, or -1."""
    if usage.piece_start[node] == usage.piece_start[node + 1]:
        return int(np.argmin(costs))
    left = costs.copy()
    for _ in range(len(costs)):
        best = int(np.argmin(left))
        if left[best] == np.inf:
            return -1
        if fits(usage, used, node, best):
            return best
        left[best] = np.inf
    return -1
