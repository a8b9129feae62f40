"""Rows that matter: what every choice uses is absorbed into the limits; slack and implied rows are dropped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..arrays import Flags, Ints, starts
from ..compiled import compiled
from ..problem import Problem
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
        keep, goes_to = _needed(absorbed)
        forbid_oversized(
            absorbed.piece_nodes,
            absorbed.piece_rows,
            absorbed.usage_start,
            absorbed.usages,
            absorbed.limits,
            absorbed.choice_start,
            absorbed.costs,
        )
        home = np.where(home >= 0, goes_to[home], -1) if len(goes_to) else home
        problem = disjoint(_with_rows(absorbed, keep))
        if keep.all():
            return problem, home


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


def _needed(problem: Problem) -> tuple[Flags, Ints]:
    """The rows that some choices can exceed and that no neighbouring row implies; where the others' prices go."""
    if not len(problem.piece_nodes):
        return np.zeros(len(problem.limits), np.bool_), np.full(len(problem.limits), -1)
    most = np.maximum.reduceat(problem.usages, problem.usage_start[:-1])
    tight = _sum_over_rows(problem.piece_rows, most, len(problem.limits)) > problem.limits
    rise, fall = np.zeros(len(problem.limits), np.int64), np.zeros(len(problem.limits), np.int64)
    steps(problem.piece_nodes, problem.piece_rows, problem.usage_start, problem.usages, rise, fall)
    slack = problem.limits[:-1] - problem.limits[1:]  # of a row above the next one's
    implied, side = np.append(fall[1:] <= slack, False), 0
    if not implied.any():
        implied, side = np.append(False, rise[1:] <= -slack), 1
    keep = tight & ~implied
    goes_to = np.clip(np.cumsum(keep) - keep - side * ~keep, 0, max(keep.sum() - 1, 0))
    return keep, np.where(tight & keep.any(), goes_to, -1)


@compiled
def steps(nodes: Ints, rows: Ints, usage_start: Ints, usages: Ints, rise: Ints, fall: Ints) -> None:
    """Adds up, at each row, by how much usage can at most rise and fall from the row before to it, node by node."""
    for p in range(len(nodes)):
        at, size = usage_start[p], usage_start[p + 1] - usage_start[p]
        begin, end = rows[p]
        meets_next = p + 1 < len(nodes) and nodes[p + 1] == nodes[p] and rows[p + 1, 0] == end
        meets_last = p > 0 and nodes[p - 1] == nodes[p] and rows[p - 1, 1] == begin
        if not meets_last:
            rise[begin] += usages[at : at + size].max()
            fall[begin] += -usages[at : at + size].min()
        if end < len(rise):
            up, down = -(1 << 62), -(1 << 62)
            for i in range(size):
                change = (usages[at + size + i] if meets_next else 0) - usages[at + i]
                up, down = max(up, change), max(down, -change)
            rise[end] += up
            fall[end] += down


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
