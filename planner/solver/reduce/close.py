"""A net as a problem again, with the way back."""

from __future__ import annotations

import numpy as np

from ..arrays import Ints, spans, starts
from ..compiled import compiled
from ..problem import Problem
from .net import ANSWER, NONE, RECORD, Net
from .undo import Undo


def close_net(net: Net, name: str, limits: Ints, home: Ints) -> tuple[Problem, Undo]:
    """The nodes and edges that are left, numbered anew in their old order, and how to undo what was done."""
    node = np.flatnonzero(net.alive)
    number = np.cumsum(net.alive) - 1
    edge = np.flatnonzero(net.end[::2] != NONE)
    ends = net.end.reshape(-1, 2)[edge]
    counts = net.counts[node]
    sizes = net.counts[ends[:, 0]] * net.counts[ends[:, 1]]
    owner = _owners(net.alive, net.piece_first, net.piece_after)
    piece = np.flatnonzero(owner != NONE)
    choice_at = spans(net.cost_at[node], counts)
    problem = Problem(
        name=name,
        choice_start=starts(counts),
        costs=net.cost[choice_at],
        ends=number[ends],
        table_start=starts(sizes),
        tables=net.table[spans(net.table_at[edge], sizes)],
        piece_nodes=number[owner[piece]],
        piece_rows=net.piece_rows[piece],
        usage_start=starts(net.counts[owner[piece]]),
        usages=net.usage[spans(net.usage_at[piece], net.counts[owner[piece]])],
        limits=limits,
        constant_cost=float(net.constant[0]),
    )
    return problem, Undo(
        labels=net.labels,
        node=node,
        choice_start=problem.choice_start,
        label=net.label[choice_at],
        record=net.record[: net.used[RECORD]].copy(),
        answer=net.answer[: net.used[ANSWER]].copy(),
        home=home,
    )


@compiled
def _owners(alive: np.ndarray, piece_first: Ints, piece_after: Ints) -> Ints:
    """The living node that each piece belongs to, or NONE."""
    owner = np.full(len(piece_after), NONE)
    for node in range(len(alive)):
        if alive[node]:
            p = piece_first[node]
            while p != NONE:
                owner[p] = node
                p = piece_after[p]
    return owner
