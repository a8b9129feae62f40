"""Rows that matter: what every choice uses is absorbed into the limits; slack and implied rows are dropped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..arrays import Flags, Ints, starts
from ..compiled import compiled
from ..problem import Problem
from .implied import implied_by
from .pieces import disjoint


def fewer_rows(problem: Problem) -> tuple[Problem, Ints] | None:
    """The problem with the rows that can bind and are implied by no neighbour. None where a row cannot be kept.

    Choices that alone are beyond a limit are made to cost infinity. Costs and the other choices stay as they are.
    Also where each old row's price goes: to the row itself, to the one that implies it, or nowhere (-1).
    """
    problem = disjoint(problem)
    home = np.arange(len(problem.limits))
    while True:
        absorbed = _absorbed(problem)
        if len(absorbed.limits) and absorbed.limits.min() < 0:
            return None
        tight = _tight(absorbed)
        forbid_oversized(
            absorbed.piece_nodes,
            absorbed.piece_rows,
            absorbed.usage_start,
            absorbed.usages,
            absorbed.limits,
            absorbed.choice_start,
            absorbed.costs,
        )
        problem = disjoint(_with_rows(absorbed, tight))
        implied = implied_by(problem)
        keep = implied == np.arange(len(implied))
        number = np.cumsum(keep) - 1
        home = _through(_through(home, np.where(tight, np.cumsum(tight) - 1, -1)), number[implied])
        problem = disjoint(_with_rows(problem, keep))
        if tight.all() and keep.all():
            return problem, home


def _through(home: Ints, goes_to: Ints) -> Ints:
    """Where the rows' prices go after one more step."""
    return np.where(home >= 0, goes_to[home], -1) if len(goes_to) else home


def _absorbed(problem: Problem) -> Problem:
    """What each piece uses at least is taken from the limits. Usages, limits and costs are fresh arrays."""
    if not len(problem.piece_nodes):
        return replace(problem, costs=problem.costs.copy())
    at = problem.usage_start[:-1]
    allowed = np.isfinite(problem.costs)
    index = _choice_of_usage(problem)
    big = np.where(allowed[index], problem.usages, np.iinfo(np.int64).max)
    least = np.minimum.reduceat(big, at)
    least[least == np.iinfo(np.int64).max] = 0
    size = np.diff(problem.usage_start)
    usages = np.where(allowed[index], problem.usages - np.repeat(least, size), 0)
    base = _sum_over_rows(problem.piece_rows, least, len(problem.limits))
    return replace(problem, usages=usages, limits=problem.limits - base, costs=problem.costs.copy())


def _choice_of_usage(problem: Problem) -> Ints:
    """Which entry of ``costs`` each entry of ``usages`` belongs to."""
    size = np.diff(problem.usage_start)
    within = np.arange(len(problem.usages)) - np.repeat(problem.usage_start[:-1], size)
    return np.repeat(problem.choice_start[:-1][problem.piece_nodes], size) + within


def _sum_over_rows(rows: Ints, amounts: Ints, count: int) -> Ints:
    """What the amounts of pieces add up to on each row."""
    change = np.zeros(count + 1, np.int64)
    np.add.at(change, rows[:, 0], amounts)
    np.subtract.at(change, rows[:, 1], amounts)
    return np.cumsum(change)[:count]


def _tight(problem: Problem) -> Flags:
    """The rows that some choices can exceed."""
    if not len(problem.piece_nodes):
        return np.zeros(len(problem.limits), np.bool_)
    most = np.maximum.reduceat(problem.usages, problem.usage_start[:-1])
    return _sum_over_rows(problem.piece_rows, most, len(problem.limits)) > problem.limits


@compiled
def forbid_oversized(
    nodes: Ints, rows: Ints, usage_start: Ints, usages: Ints, limits: Ints, choice_start: Ints, costs: np.ndarray
) -> None:
    """Makes choices cost infinity that use more than a row has."""
    for p in range(len(nodes)):
        room = limits[rows[p, 0] : rows[p, 1]].min()
        for i in range(usage_start[p + 1] - usage_start[p]):
            if usages[usage_start[p] + i] > room:
                costs[choice_start[nodes[p]] + i] = np.inf


def _with_rows(problem: Problem, keep: Flags) -> Problem:
    """The problem with only these rows; pieces that touch none of them go."""
    new_row = starts(keep.astype(np.int64))
    rows = new_row[problem.piece_rows]
    stays = rows[:, 0] < rows[:, 1]
    size = np.diff(problem.usage_start)
    return replace(
        problem,
        piece_nodes=problem.piece_nodes[stays],
        piece_rows=rows[stays],
        usage_start=starts(size[stays]),
        usages=problem.usages[np.repeat(stays, size)],
        limits=problem.limits[keep],
    )
