"""Where the copies stand that keep donated arguments from their next values: around all else.

Those of arguments are made as a step begins, not where they are first read, and those of what is gathered in their
place as it ends, so that each lives throughout (seen of v3, v4, v5e, v5p and v6e: weights whose update is shared out).
What arrives in another layout is copied to be turned, as soon as it has.
"""

from __future__ import annotations

from collections.abc import Container

from ...fusion.returned import arrives_turned
from ...kernels import Program
from ...kinds import ALL_GATHER, IN_ORDER, TURNED_COPY


def copies_outside(program: Program, turned: Container[int] = ()) -> list[int]:
    """The kernels of a whole step with the copies of its donated arguments first, and of their next values last.
    ``turned`` are the values that lie transposed.
    """
    graph = program.graph
    if not graph.aliases:
        return list(range(len(program.kernels)))
    donated = {graph.arguments[argument]: argument for argument in graph.aliases.values()}
    returned = {graph.results[result]: result for result in graph.aliases}
    makers = {value: op for op in graph.ops for value in op.results}

    def place(number: int) -> tuple[int, int]:
        op = graph.ops[program.kernels[number].ops[-1]]
        if op.kind != TURNED_COPY or IN_ORDER not in op.attributes:
            return 0, number
        (read,), (made,) = op.operands, op.results
        if made in returned:
            maker = makers.get(read)
            is_turned = maker is not None and maker.kind == ALL_GATHER and arrives_turned(graph, maker, makers, turned)
            return (0, number) if is_turned else (1, returned[made])
        return (-1, donated[read]) if read in donated else (0, number)

    return sorted(range(len(program.kernels)), key=place)
