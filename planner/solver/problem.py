"""The problem: one choice for each node, costs of choices and of pairs of choices, usage of rows within limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .arrays import Floats, Ints, starts

FORBIDDEN = np.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Minimise the costs of the choices and of the edges' pairs while no row is used beyond its limit.

    Flat arrays, so that compiled code works on them directly; the parts of flat array ``x`` begin at ``x_start``.

    A row is a point in time of one resource: several resources are so many ranges of rows. A piece says what the
    choices of one node use on each row of a half-open range; a node may have many. Costs are in any one unit (a proof
    of optimality is exact where they are whole numbers), forbidden ones are infinite.
    """

    name: str = ""
    choice_start: Ints  # nodes + 1
    costs: Floats  # of every node's choices
    ends: Ints  # edges x 2: nodes
    table_start: Ints  # edges + 1
    tables: Floats  # of every edge: first end's choices x second end's, row-major
    piece_nodes: Ints
    piece_rows: Ints  # pieces x 2: first row, end
    usage_start: Ints  # pieces + 1
    usages: Ints  # of every piece: what each choice of its node uses
    limits: Ints  # rows
    constant_cost: float = 0.0  # of every solution

    @property
    def nodes(self) -> int:
        """How many."""
        return len(self.choice_start) - 1

    @property
    def edges(self) -> int:
        """How many."""
        return len(self.ends)

    @property
    def counts(self) -> Ints:
        """Choices of each node."""
        return np.diff(self.choice_start)

    @property
    def whole(self) -> bool:
        """Whether every cost is a whole number, so that a better solution is better by at least one."""
        return all(bool(np.all((x == np.rint(x)) | np.isinf(x))) for x in (self.costs, self.tables))


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """What is used of one resource over time: an interval for each node (half open, may be empty) and a limit."""

    intervals: Ints  # nodes x 2
    usages: Ints  # of every node's choices
    limit: int


def build(
    *,
    name: str = "",
    costs: Sequence[Floats],
    ends: Ints,
    tables: Sequence[Floats],
    resources: Sequence[Resource] = (),
) -> Problem:
    """A problem of costs for each node, a table for each edge (first end's choices x second end's) and resources."""
    choice_start = starts(np.array([len(c) for c in costs], np.int64))
    pieces = _pieces(choice_start, resources)
    return Problem(
        name=name,
        choice_start=choice_start,
        costs=_joined(costs),
        ends=np.asarray(ends, np.int64).reshape(-1, 2),
        table_start=starts(np.array([t.size for t in tables], np.int64)),
        tables=_joined([np.ravel(t) for t in tables]),
        piece_nodes=pieces.nodes,
        piece_rows=pieces.rows,
        usage_start=starts(np.diff(choice_start)[pieces.nodes]),
        usages=pieces.usages,
        limits=pieces.limits,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pieces:
    nodes: Ints
    rows: Ints
    usages: Ints
    limits: Ints


def _pieces(choice_start: Ints, resources: Sequence[Resource]) -> _Pieces:
    """The pieces of several resources, one range of rows after the other."""
    nodes, rows, usages, limits = [], [], [], []
    first_row = 0
    for resource in resources:
        live = np.flatnonzero(resource.intervals[:, 0] < resource.intervals[:, 1])
        length = int(resource.intervals[live].max(initial=0))
        nodes.append(live)
        rows.append(resource.intervals[live] + first_row)
        usages.extend(resource.usages[choice_start[n] : choice_start[n + 1]] for n in live)
        limits.append(np.full(length, resource.limit, np.int64))
        first_row += length
    none = np.zeros(0, np.int64)
    return _Pieces(
        nodes=np.concatenate([none, *nodes]),
        rows=np.concatenate([none.reshape(0, 2), *rows]),
        usages=np.concatenate([none, *usages]),
        limits=np.concatenate([none, *limits]),
    )


def _joined(parts: Sequence[Floats]) -> Floats:
    return np.concatenate([np.zeros(0), *parts]).astype(np.float64)
