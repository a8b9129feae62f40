"""Sequential message passing: costs move between nodes and edges so that the sum of all least costs rises.

Kolmogorov, "Convergent tree-reweighted message passing" (PAMI 2006), in the form of "A new look at reweighted message
passing" (PAMI 2015): a node takes from the edges behind it what they cost at least, and hands its cost on, in equal
parts, to the edges before it. The messages are what nodes have taken from edges; whatever they are, the sum over
nodes and edges of their least reparametrised costs is a lower bound.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Floats, Ints
from ..compiled import internal
from .field import Field


@internal
def sweep(field: Field, theta: Floats, messages: Floats, forward: bool, choices: Ints) -> float:
    """One pass over the nodes; fills in a solution on the way. The lower bound that it reaches."""
    nodes = len(field.backward)
    bound = 0.0
    for k in range(nodes):
        node = k if forward else nodes - 1 - k
        first, end = field.half_start[node], field.half_start[node + 1]
        middle = first + field.backward[node]
        own = theta[field.choice_start[node] : field.choice_start[node + 1]].copy()
        seen = own.copy()  # the cost beside the neighbours already chosen
        for h in range(first, end):
            behind = (h < middle) == forward
            mine = messages[field.message_at[h] : field.message_at[h + 1]]
            if behind:
                _take(field, messages, h, mine)
                _add_row(field, h, choices[field.other[h]], seen)
            else:
                seen += mine
            own += mine
        choices[node] = np.argmin(seen)
        least = own.min()
        bound += least
        ahead = end - middle if forward else middle - first
        share = 1.0 / max(ahead, end - first - ahead) if ahead else 0.0
        for h in range(middle if forward else first, end if forward else middle):
            mine = messages[field.message_at[h] : field.message_at[h + 1]]
            for i in range(len(mine)):
                mine[i] -= share * (own[i] - least)
    return bound


@internal
def _take(field: Field, messages: Floats, half: int, mine: Floats) -> None:
    """Takes from the edge what each of the node's choices costs on it at least."""
    twin = field.twin[half]
    theirs = messages[field.message_at[twin] : field.message_at[twin + 1]]
    count = len(mine)
    least = np.full(count, np.inf)
    at = field.table_at[half]
    for j in range(len(theirs)):
        row = field.table[at + j * count : at + (j + 1) * count]
        taken = theirs[j]
        for i in range(count):
            least[i] = min(least[i], row[i] - taken)
    for i in range(count):
        mine[i] = least[i]


@internal
def _add_row(field: Field, half: int, choice: int, total: Floats) -> None:
    at = field.table_at[half] + choice * len(total)
    for i in range(len(total)):
        total[i] += field.table[at + i]
