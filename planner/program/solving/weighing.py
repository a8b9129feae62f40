"""Solutions that take less memory, by its price: a byte of what is there at a peak costs more and more seconds.

Rows with limits say too little where fast memory holds much, or where other layouts have kernels put together
otherwise, and what fits by them may take far longer; what a byte is worth changes what saves most for least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..rows.usage import Misfit, misfit_row
from ..wiring.wires import Wiring
from .solutions import LOOKING, Solutions, often

WORTH = 0.1, 0.2, 0.3, 0.45, 0.7, 1.0
"""What the memory at the peak of the quickest solution is worth, one after the other, as parts of its step."""
LEAST_OFTEN = 2

Misfits = Mapping[tuple[int, ...], Misfit]


def weigh(kept: Solutions) -> Misfits:
    """Prices the solutions that take least at each worth of what is there at the peak of the quickest, and at theirs;
    those that do not fit. What they teach is a guess for those after them alone, and their rows are for none: they lie
    far from what is looked for otherwise.
    """
    learnt, nodes = kept.learnt, kept.program.wiring.nodes
    guess_s, rough = [each.copy() for each in learnt.guess_s], [dict(node.rough) for node in nodes]
    before = kept.limit_bytes, kept.floor_s, kept.bound_s, kept.misfits
    kept.limit_bytes, kept.misfits = None, dict(list(kept.misfits.items())[:1])
    _look(kept)
    found = kept.misfits
    kept.limit_bytes, kept.floor_s, kept.bound_s, kept.misfits = before
    for node, known, guess in zip(nodes, rough, guess_s, strict=True):
        for choice in known.keys() - node.rough.keys():  # priced since, which was a guess before
            guess[choice] -= known[choice]
    learnt.guess_s = guess_s
    return found


def _look(kept: Solutions) -> None:
    program, learnt, first = kept.program, kept.learnt, kept.priced[0]
    held: list[list[NDArray[np.float64]]] = []
    for worth in WORTH[: often((LEAST_OFTEN, len(WORTH)), LOOKING, len(program.deciders))]:
        held += [_held(program.wiring, *one) for one in list(kept.misfits.items())[len(held) :]]
        byte_s = worth * first.seconds / first.peak_bytes / len(held)
        weighed = [guess + byte_s * sum(own) for guess, *own in zip(learnt.guess_s, *held, strict=True)]
        solution = kept.solved(guess=True, learnt=replace(learnt, guess_s=weighed))
        if solution.choices is None or kept.ended():
            return
        kept.price(solution.choices)


def _held(wiring: Wiring, choices: Sequence[int], misfit: Misfit) -> list[NDArray[np.float64]]:
    """What each node holds by its choice, of what is there at the peak of a solution."""
    found = [np.zeros(len(node.costs)) for node in wiring.nodes]
    for node, own in misfit_row(wiring, choices, misfit, 0, hopeful=False).usages:
        found[node] += own
    return found
