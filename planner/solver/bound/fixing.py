"""Reduced-cost fixing: choices and pairs that no solution cheaper than a known one can take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..arrays import Floats
from ..compiled import compiled, internal
from ..problem import Problem
from .field import Field


@compiled
def excesses(field: Field, theta: Floats, messages: Floats) -> tuple[Floats, Floats, float]:
    """By how much each choice, and each entry of the field's tables, raises the lower bound if taken; the bound.

    A choice is charged its node's and its edges' least reparametrised costs above their minima; all other nodes and
    edges keep their minima.
    """
    choice = np.zeros(len(theta))
    bound = 0.0
    on_edge = np.zeros(len(messages))  # least cost on the edge of each own choice
    edge_least = np.zeros(len(field.other))
    for node in range(len(field.backward)):
        begin, end = field.choice_start[node], field.choice_start[node + 1]
        own = choice[begin:end]
        own[:] = theta[begin:end]
        for h in range(field.half_start[node], field.half_start[node + 1]):
            at, stop = field.message_at[h], field.message_at[h + 1]
            own += messages[at:stop]
            least = on_edge[at:stop]
            _least(field, messages, h, least)
            edge_least[h] = least.min()
            least -= edge_least[h]
            if field.other[h] > node:
                bound += edge_least[h]
        least_own = own.min()
        bound += least_own
        own -= least_own
        for h in range(field.half_start[node], field.half_start[node + 1]):
            own += on_edge[field.message_at[h] : field.message_at[h + 1]]
    pair = np.zeros(field.table_start[-1])
    for edge in range(len(field.second)):
        _pairs(field, messages, choice, on_edge, field.second[edge], edge_least, pair[field.table_start[edge] :])
    return choice, pair, bound


@internal
def _least(field: Field, messages: Floats, half: int, least: Floats) -> None:
    """The least reparametrised cost on the edge of each own choice."""
    twin = field.twin[half]
    theirs = messages[field.message_at[twin] : field.message_at[twin + 1]]
    mine = messages[field.message_at[half] : field.message_at[half + 1]]
    count = len(mine)
    least[:] = np.inf
    for j in range(len(theirs)):
        at = field.table_at[half] + j * count
        for i in range(count):
            least[i] = min(least[i], field.table[at + i] - theirs[j])
    for i in range(count):
        least[i] -= mine[i]


@internal
def _pairs(
    field: Field, messages: Floats, choice: Floats, on_edge: Floats, half: int, edge_least: Floats, pair: Floats
) -> None:
    """An edge's pairs: its own cost, and all that the two choices cost elsewhere."""
    twin = field.twin[half]
    mine, theirs, at = field.message_at[half], field.message_at[twin], field.table_at[half]
    own, far = field.choice_start[field.other[twin]], field.choice_start[field.other[half]]
    count = field.message_at[half + 1] - mine
    least = min(edge_least[half], edge_least[twin])
    for j in range(field.message_at[twin + 1] - theirs):
        beyond = choice[far + j] - on_edge[theirs + j] - messages[theirs + j] - least
        for i in range(count):
            entry = j * count + i
            here = choice[own + i] - on_edge[mine + i] - messages[mine + i]
            pair[entry] = field.table[at + entry] + here + beyond


def without(problem: Problem, choice: Floats, pair: Floats, gap: float) -> Problem:
    """The problem with choices and pairs forbidden that raise the bound by more than ``gap``."""
    return replace(
        problem,
        costs=np.where(choice > gap, np.inf, problem.costs),
        tables=np.where(pair > gap, np.inf, problem.tables),
    )
