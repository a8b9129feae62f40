"""The problem: one choice for each node, costs of choices and of pairs of choices, usage of rows within limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .arrays import Floats, Ints, spans, starts

FORBIDDEN = np.inf
EXACT = 2.0**53


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
        """Whether every cost is a whole number and sums are exact: a better solution is better by at least one."""
        if not all(bool(np.all((x == np.rint(x)) | np.isinf(x))) for x in (self.costs, self.tables)):
            return False
        return _most(self.costs, self.choice_start) + _most(self.tables, self.table_start) < EXACT


def _most(values: Floats, start: Ints) -> float:
    """The largest finite amounts of all parts together."""
    if len(start) < 2:
        return 0.0
    amounts = np.where(np.isfinite(values), np.abs(values), 0.0)
    return float(np.maximum.reduceat(amounts, start[:-1]).sum())


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
    return assemble(
        name=name,
        choice_start=starts(np.array([len(c) for c in costs], np.int64)),
        costs=np.concatenate([np.zeros(0), *costs]),
        ends=np.asarray(ends, np.int64).reshape(-1, 2),
        table_start=starts(np.array([np.size(t) for t in tables], np.int64)),
        tables=np.concatenate([np.zeros(0), *map(np.ravel, tables)]),
        resources=resources,
    )


def assemble(
    *,
    name: str,
    choice_start: Ints,
    costs: Floats,
    ends: Ints,
    table_start: Ints,
    tables: Floats,
    resources: Sequence[Resource],
) -> Problem:
    """A problem of flat arrays and resources, whose rows follow one another."""
    counts = np.diff(choice_start)
    nodes, rows, usages, limits = [], [], [], []
    first_row = 0
    for resource in resources:
        live = np.flatnonzero(resource.intervals[:, 0] < resource.intervals[:, 1])
        length = int(resource.intervals[live].max(initial=0))
        nodes.append(live)
        rows.append(resource.intervals[live] + first_row)
        usages.append(resource.usages[spans(choice_start[live], counts[live])])
        limits.append(np.full(length, resource.limit, np.int64))
        first_row += length
    none = np.zeros(0, np.int64)
    piece_nodes = np.concatenate([none, *nodes])
    return Problem(
        name=name,
        choice_start=choice_start,
        costs=costs.astype(np.float64),
        ends=ends,
        table_start=table_start,
        tables=tables.astype(np.float64),
        piece_nodes=piece_nodes,
        piece_rows=np.concatenate([none.reshape(0, 2), *rows]),
        usage_start=starts(counts[piece_nodes]),
        usages=np.concatenate([none, *usages]),
        limits=np.concatenate([none, *limits]),
    )
