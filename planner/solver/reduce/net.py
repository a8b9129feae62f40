"""The problem while it shrinks: nodes and edges in linked lists, choices, tables and usages in pools."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from ..arrays import Flags, Floats, Ints
from ..problem import Problem

A = TypeVar("A", Floats, Ints)
NONE = -1
TABLE, USAGE, RECORD, ANSWER, FULL = range(5)  # what ``used`` counts; FULL: whether a pool was too small


class Net(NamedTuple):
    """Half edges 2e and 2e+1 belong to the first and second end of edge e; a node's are a doubly linked list."""

    alive: Flags  # nodes
    changed: Flags  # nodes: whether something of it or of its edges has changed since it was looked at for dominance
    counts: Ints  # choices of each node
    cost_at: Ints
    cost: Floats  # pool
    label: Ints  # pool, beside cost: which choice of the problem before it was
    labels: Ints  # choices of each node in the problem before
    first: Ints  # half edge of each node
    after: Ints  # half edge
    before: Ints
    end: Ints  # node of each half edge; NONE once the edge is gone
    table_at: Ints  # edges
    table: Floats  # pool
    piece_first: Ints  # of each node
    piece_after: Ints
    piece_rows: Ints  # pieces x 2
    usage_at: Ints  # pieces
    usage: Ints  # pool
    record: Ints  # x 4: a node gone, the two that decide it, where its answers begin
    answer: Ints  # pool
    used: Ints  # of the pools
    constant: Floats  # one


def open_net(problem: Problem) -> Net:
    """The problem as a net, with room in its pools."""
    nodes, edges, counts = problem.nodes, problem.edges, problem.counts
    first, after, before = _lists(problem)
    piece_first, piece_after = _piece_lists(problem)
    return Net(
        alive=np.ones(nodes, np.bool_),
        changed=np.ones(nodes, np.bool_),
        counts=counts.copy(),
        cost_at=problem.choice_start[:-1].copy(),
        cost=problem.costs.copy(),
        label=np.arange(len(problem.costs)) - np.repeat(problem.choice_start[:-1], counts),
        labels=counts.copy(),
        first=first,
        after=after,
        before=before,
        end=problem.ends.ravel().copy(),
        table_at=problem.table_start[:edges].copy(),
        table=_room(problem.tables, 1 << 16),
        piece_first=piece_first,
        piece_after=piece_after,
        piece_rows=problem.piece_rows.copy(),
        usage_at=problem.usage_start[:-1].copy(),
        usage=_room(problem.usages, 1 << 16),
        record=np.zeros((nodes, 4), np.int64),
        answer=np.zeros(len(problem.costs) + (1 << 16), np.int64),
        used=np.array([len(problem.tables), len(problem.usages), 0, 0, 0], np.int64),
        constant=np.array([problem.constant_cost]),
    )


def grown(net: Net) -> Net:
    """The same net with twice the room in its pools."""
    net.used[FULL] = 0
    return net._replace(table=_room(net.table), usage=_room(net.usage), answer=_room(net.answer))


def _room(pool: A, least: int = 0) -> A:
    """The pool with as much room behind it, which takes no memory until something is written there."""
    roomy = np.zeros(len(pool) + max(len(pool), least), pool.dtype)
    roomy[: len(pool)] = pool
    return roomy


def _lists(problem: Problem) -> tuple[Ints, Ints, Ints]:
    """Each node's half edges, in the order of the edges: the first, and each one's neighbours in the list."""
    end = problem.ends.ravel()
    return _chains(end, problem.nodes)


def _piece_lists(problem: Problem) -> tuple[Ints, Ints]:
    first, after, _ = _chains(problem.piece_nodes, problem.nodes)
    return first, after


def _chains(owner: Ints, owners: int) -> tuple[Ints, Ints, Ints]:
    """Lists of the items of each owner: the first of each owner, the next and the previous of each item."""
    order = np.argsort(owner, kind="stable")
    same = owner[order[1:]] == owner[order[:-1]]
    after, before = np.full(len(owner), NONE), np.full(len(owner), NONE)
    after[order[:-1][same]] = order[1:][same]
    before[order[1:][same]] = order[:-1][same]
    first = np.full(owners, NONE)
    heads = np.flatnonzero(before == NONE)
    first[owner[heads]] = heads
    return first, after, before
