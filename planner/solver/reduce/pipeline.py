"""All reductions, again and again until none of them finds anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..arrays import Flags, Floats, Ints
from ..problem import Problem
from .arcs import remove_unsupported
from .close import close_net
from .dominated import remove_dominated
from .eliminate import eliminate
from .followers import merge_followers
from .net import FULL, Net, grown, open_net
from .parallel import join_parallel
from .rows import fewer_rows
from .separable import fold_separable
from .undo import Undo

GROWTH = 1.0
MOST_WORK = 1 << 24
ROUNDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """A smaller problem with the same least cost, and the way back; ``problem`` is None where none has a solution."""

    problem: Problem | None
    undos: tuple[Undo, ...] = ()

    def choices(self, reduced: Ints) -> Ints:
        """The choices of the problem before that these of the smaller one stand for."""
        for undo in reversed(self.undos):
            reduced = undo.choices(reduced)
        return reduced

    def prices(self, before: Floats) -> Floats:
        """The prices of rows of the problem before as prices of the smaller one's rows."""
        for undo in self.undos:
            before = undo.prices(before, int(undo.home.max(initial=-1)) + 1)
        rows = len(self.problem.limits) if self.problem else 0
        return np.append(before, np.zeros(max(0, rows - len(before))))[:rows]


def reduce(problem: Problem, *, pairs: bool = True, halt: Flags | None = None) -> Reduction:
    """Reduces a problem until nothing changes, or ``halt`` is set. With ``pairs`` also forbids dominated pairs."""
    halt = np.zeros(1, np.bool_) if halt is None else halt
    undos: list[Undo] = []
    size = None
    while size != (size := _size(problem)):
        rowed = fewer_rows(problem)
        net = _shrink(open_net(rowed[0]), pairs, halt) if rowed else None
        if rowed is None or net is None:
            return Reduction(problem=None)
        problem, undo = close_net(net, problem.name, rowed[0].limits, rowed[1])
        undos.append(undo)
        if halt[0]:
            break
    return Reduction(problem=problem, undos=tuple(undos))


def _size(problem: Problem) -> tuple[int, ...]:
    finite = int(np.isfinite(problem.tables).sum())
    return problem.nodes, problem.edges, len(problem.costs), finite, len(problem.limits), len(problem.piece_nodes)


def _shrink(net: Net, pairs: bool, halt: Flags) -> Net | None:
    """The reductions on nodes and edges, until none finds anything. None where a node has no choice left."""
    join_parallel(net)
    for _ in range(ROUNDS):
        if remove_unsupported(net) < 0:
            return None
        found = 0
        net, merged = _roomy(net, merge_followers)
        found += merged + fold_separable(net)
        choices, forbidden = remove_dominated(net, MOST_WORK, pairs)
        net, gone = _roomy(net, lambda n: eliminate(n, GROWTH))
        if found + choices + forbidden + gone == 0 or halt[0]:
            break
    return net if remove_unsupported(net) >= 0 else None


def _roomy(net: Net, step: Callable[[Net], int]) -> tuple[Net, int]:
    """Takes a step with as much room in the pools as it needs."""
    total = step(net)
    while net.used[FULL]:
        net = grown(net)
        total += step(net)
    return net, total
