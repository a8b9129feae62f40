"""Where the copies stand that keep donated arguments from their next values: around all else.

Those of arguments are made as a step begins, not where they are first read, and those of what is gathered in their
place as it ends, so that each lives throughout (seen of v4, v5e, v5p and v6e: weights whose update is shared out).
"""

from __future__ import annotations

from ...kernels import Program
from ...kinds import IN_ORDER, TURNED_COPY


def copies_outside(program: Program) -> list[int]:
    """The kernels of a whole step with the copies of its donated arguments first, and of their next values last."""
    graph = program.graph
    donated = {graph.arguments[argument]: argument for argument in graph.aliases.values()}
    returned = {graph.results[result]: result for result in graph.aliases}

    def place(number: int) -> tuple[int, int]:
        kernel = program.kernels[number]
        op = graph.ops[kernel.ops[-1]]
        if op.kind != TURNED_COPY or IN_ORDER not in op.attributes:
            return 0, number
        (read,), (made,) = op.operands, op.results
        if made in returned:
            return 1, returned[made]
        return (-1, donated[read]) if read in donated else (0, number)

    return sorted(range(len(program.kernels)), key=place)
