"""The way back: from the choices of a reduced problem to those of the problem before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Floats, Ints
from ..compiled import compiled


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """What one round of reductions did: which nodes and choices are left, what decides the others."""

    labels: Ints  # choices of each node of the problem before
    node: Ints  # the node before, of each that is left
    choice_start: Ints  # of the reduced problem
    label: Ints  # the choice before, of each of the reduced problem's
    record: Ints  # nodes gone, in order: node, deciding nodes, where the answers begin
    answer: Ints
    home: Ints  # the row left that has each earlier row's price, or -1

    def choices(self, reduced: Ints) -> Ints:
        """The choices of the problem before that the reduced problem's choices stand for."""
        before = np.full(len(self.labels), -1, np.int64)
        before[self.node] = self.label[self.choice_start[:-1] + reduced]
        _answer(before, self.labels, self.record, self.answer)
        return before

    def prices(self, before: Floats, rows: int) -> Floats:
        """Prices of the rows before as prices of the ``rows`` that are left."""
        left = np.zeros(rows)
        stays = self.home >= 0
        np.add.at(left, self.home[stays], before[stays])
        return left


@compiled
def _answer(choices: Ints, labels: Ints, record: Ints, answer: Ints) -> None:
    """Fills in the nodes that others decide, the last one that went first."""
    for r in range(len(record) - 1, -1, -1):
        node, a, b, at = record[r]
        if a >= 0:
            at += choices[a]
        if b >= 0:
            at += choices[a] * (labels[b] - 1) + choices[b]
        choices[node] = answer[at]
