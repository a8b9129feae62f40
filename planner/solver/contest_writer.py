"""Writes problems and solutions as JSON, problems in the contest's form."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ...dsl.errors import PlanError
from ...dsl.errors import problem as mistake
from .arrays import Floats, Ints
from .contest_reader import FORBIDDEN_COST
from .problem import Problem


def document_of(problem: Problem) -> dict[str, Any]:
    """The problem as the contest's JSON values, which ``contest_reader`` takes.

    Raises ``PlanError`` for one that the format cannot say: fractional costs, several pieces of usage for a node,
    several limits, a constant cost.
    """
    what = _unsayable(problem)
    if what:
        raise PlanError([mistake("MW814", what=what)])
    body: dict[str, Any] = {
        "name": problem.name,
        "nodes": {
            "intervals": _intervals(problem).tolist(),
            "costs": _lists(_whole(problem.costs), problem.choice_start),
            "usages": _lists(_usages(problem), problem.choice_start),
        },
        "edges": {"nodes": problem.ends.tolist(), "costs": _lists(_whole(problem.tables), problem.table_start)},
    }
    if len(problem.limits):
        body["usage_limit"] = int(problem.limits[0])
    return {"problem": body}


def dumps(problem: Problem) -> str:
    """The problem as the contest's JSON."""
    return json.dumps(document_of(problem)) + "\n"


def _unsayable(problem: Problem) -> str:
    if len(np.unique(problem.piece_nodes)) < len(problem.piece_nodes):
        return "nodes with several pieces of usage"
    if len(np.unique(problem.limits)) > 1:
        return "several limits"
    if problem.constant_cost:
        return "a constant cost"
    return "" if problem.whole else "fractional costs"


def _whole(costs: Floats) -> Ints:
    return np.where(np.isinf(costs), FORBIDDEN_COST, np.where(np.isinf(costs), 0, costs).astype(np.int64))


def _intervals(problem: Problem) -> Ints:
    intervals = np.zeros((problem.nodes, 2), np.int64)
    intervals[problem.piece_nodes] = problem.piece_rows
    return intervals


def _usages(problem: Problem) -> Ints:
    usages = np.zeros(len(problem.costs), np.int64)
    for piece, node in enumerate(problem.piece_nodes):
        at = problem.usage_start[piece]
        count = problem.usage_start[piece + 1] - at
        first = problem.choice_start[node]
        usages[first : first + count] = problem.usages[at : at + count]
    return usages


def _lists(values: Ints, start: Ints) -> list[list[int]]:
    return [part.tolist() for part in np.split(values, start[1:-1])] if len(start) > 1 else []
