"""Reads problems in the JSON of the ASPLOS/EuroSys 2025 contest on intra-operator parallelism (google/iopddl).

``problem.nodes.{intervals, costs, usages}`` with half-open intervals, ``problem.edges.{nodes, costs}`` with tables row
by row, ``problem.usage_limit`` (none: unlimited). Costs of 10**18 and more are forbidden. Every mistake is reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dsl.plan import Place
from .arrays import Floats, Ints, starts
from .document import read_document
from .json_shape import Shape
from .problem import FORBIDDEN, Problem, Resource, assemble

FORBIDDEN_COST = 10**18
LARGEST = 2**53
LARGEST_COST = 2**63 - 1
MOST_ROWS = 2**24
NODES, EDGES = "problem.nodes", "problem.edges"
Parts = tuple[Ints, Ints]  # numbers flat, lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """What the file's lists hold."""

    intervals: Parts
    costs: Parts
    usages: Parts
    ends: Parts
    tables: Parts


def read_problem(path: str) -> Problem:
    """The problem in a file. Raises ``PlanError`` with everything that is wrong with it."""
    return problem_of(read_document(path), path)


def problem_of(document: Any, file: str | None = None) -> Problem:
    """The problem that JSON values describe. Raises ``PlanError`` with everything that is wrong with it."""
    shape = Shape(Place(file=file))
    top = shape.mapping({} if document is None else document, "the file", ("problem",))
    body = shape.mapping(top.get("problem"), "problem", ("nodes", "edges"), ("name", "usage_limit"))
    nodes = shape.mapping(body.get("nodes"), NODES, ("intervals", "costs", "usages"))
    edges = shape.mapping(body.get("edges"), EDGES, ("nodes", "costs"))
    name = shape.text(body.get("name", ""), "problem.name")
    limit = body.get("usage_limit")
    if limit is not None:
        limit = shape.whole(limit, "problem.usage_limit", 0, LARGEST)
    columns = _Columns(
        intervals=shape.lists(nodes.get("intervals"), f"{NODES}.intervals", 0, MOST_ROWS, each=2),
        costs=shape.lists(nodes.get("costs"), f"{NODES}.costs", -LARGEST, LARGEST_COST),
        usages=shape.lists(nodes.get("usages"), f"{NODES}.usages", 0, LARGEST),
        ends=shape.lists(edges.get("nodes"), f"{EDGES}.nodes", 0, LARGEST, each=2),
        tables=shape.lists(edges.get("costs"), f"{EDGES}.costs", -LARGEST, LARGEST_COST),
    )
    shape.raise_mistakes()
    _check(columns, shape)
    shape.raise_mistakes()
    return _problem(name, limit, columns)


def _check(columns: _Columns, shape: Shape) -> None:
    """What lists must have in common."""
    counts = columns.costs[1]
    for what, lengths in (("intervals", columns.intervals[1]), ("usages", columns.usages[1])):
        _same_length(shape, f"{NODES}.{what}", lengths, f"{NODES}.costs", counts)
    _same_length(shape, f"{EDGES}.costs", columns.tables[1], f"{EDGES}.nodes", columns.ends[1])
    shape.raise_mistakes()
    for node in np.flatnonzero(columns.usages[1] != counts):
        where, other = f"{NODES}.usages[{node}]", f"{NODES}.costs[{node}]"
        shape.add("MW805", where=where, got=columns.usages[1][node], other=other, wanted=counts[node])
    intervals = columns.intervals[0].reshape(-1, 2)
    for node in np.flatnonzero(intervals[:, 0] > intervals[:, 1]):
        begin, end = intervals[node]
        shape.add("MW809", where=f"{NODES}.intervals[{node}]", begin=begin, end=end, most=MOST_ROWS)
    _check_edges(columns, shape)
    total = int(columns.usages[0].max(initial=0)) * len(counts)
    if total >= 2**62:
        shape.add("MW810", where=f"{NODES}.usages", total=total, most=2**62)


def _same_length(shape: Shape, where: str, lengths: Ints, other: str, wanted: Ints) -> None:
    if len(lengths) != len(wanted):
        shape.add("MW805", where=where, got=len(lengths), other=other, wanted=len(wanted))


def _check_edges(columns: _Columns, shape: Shape) -> None:
    counts, ends = columns.costs[1], columns.ends[0].reshape(-1, 2)
    wrong = (ends >= len(counts)).any(axis=1) | (ends[:, 0] == ends[:, 1])
    for edge in np.flatnonzero(wrong):
        first, second = ends[edge]
        shape.add("MW807", where=f"{EDGES}.nodes[{edge}]", first=first, second=second, last=len(counts) - 1)
    rows, columns_ = counts[np.where(wrong, 0, ends[:, 0])], counts[np.where(wrong, 0, ends[:, 1])]
    for edge in np.flatnonzero(~wrong & (columns.tables[1] != rows * columns_)):
        shape.add(
            "MW808",
            where=f"{EDGES}.costs[{edge}]",
            got=columns.tables[1][edge],
            first=ends[edge, 0],
            second=ends[edge, 1],
            rows=rows[edge],
            columns=columns_[edge],
            wanted=rows[edge] * columns_[edge],
        )


def _problem(name: str, limit: int | None, columns: _Columns) -> Problem:
    intervals = columns.intervals[0].reshape(-1, 2)
    resource = None if limit is None else Resource(intervals=intervals, usages=columns.usages[0], limit=limit)
    return assemble(
        name=name,
        choice_start=starts(columns.costs[1]),
        costs=_costs(columns.costs[0]),
        ends=columns.ends[0].reshape(-1, 2),
        table_start=starts(columns.tables[1]),
        tables=_costs(columns.tables[0]),
        resources=[resource] if resource else [],
    )


def _costs(numbers: Ints) -> Floats:
    return np.where(numbers >= FORBIDDEN_COST, FORBIDDEN, numbers.astype(np.float64))
