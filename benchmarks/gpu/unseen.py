"""Training steps drawn by seed (``drawn/steps.py``), each whole on one GPU: nobody looked at them while mending."""

from __future__ import annotations

import re
from collections.abc import Iterator

from drawn.steps import drawn

from .case import Case

SEEDS = range(300, 330)


def unseen() -> Iterator[Case]:
    """Every one of them; the machine and the layout that were drawn with a step are left out."""
    for seed in SEEDS:
        made = drawn(seed)
        said = made.name.rpartition(", ")[0]
        vocabulary = re.match(r"lm \S+ (\d+) ", said)
        donated = 0 if said.endswith("none") else 2
        high = int(vocabulary[1]) if vocabulary else 0
        yield Case(name=f"{seed}: {said}", step=made.step, args=made.args, high=high, donated=donated)
