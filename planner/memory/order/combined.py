"""All-reduces that the compiler makes one: what they sum lives until the last of them has it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from ...fusion.joint import joint_sums
from ...kernels import Program
from ..flow.flow import Flow

Members = tuple[tuple[int, ...], ...]
T = TypeVar("T")


def combined(program: Program, flow: Flow) -> Members:
    """Groups of kernels, by their positions, that are one: what is known of the program, or else of its operations."""
    joint = program.joint
    if joint is None:
        joint = joint_sums(program.graph, {v: n for n, op in enumerate(program.graph.ops) for v in op.results})
    return tuple(tuple(flow.maker[value] for value in group) for group in joint)


def with_tuples(flow: Flow, groups: Members) -> Flow:
    """The flow in which nothing lies where a group's result did: its readers take that out of a tuple."""
    results = {value for group in groups for kernel in group for value in flow.made[kernel]}
    if not results:
        return flow
    kept = tuple(tuple(pair for pair in pairs if pair[1] not in results) for pairs in flow.places)
    return replace(flow, places=kept)


def at_once(flow: Flow, groups: Members) -> Flow:
    """The flow in which the last of each group reads what all of it do, and makes what all of it make: one instruction
    has all of it side by side, in fast memory too.
    """
    if not groups:
        return flow
    return replace(
        flow,
        reads=_at_last(flow.reads, groups),
        writes=_at_last(flow.writes, groups),
        places=_at_last(flow.places, groups),
    )


def _at_last(of_kernels: Sequence[tuple[T, ...]], groups: Members) -> tuple[tuple[T, ...], ...]:
    found = list(of_kernels)
    for group in groups:
        joint = tuple(dict.fromkeys(chain.from_iterable([of_kernels[kernel] for kernel in group])))
        for kernel in group:
            found[kernel] = joint if kernel == group[-1] else ()
    return tuple(found)


def in_order(flow: Flow, groups: Members) -> Members:
    """All kernels, those of a group together, so that each group comes after what it needs."""
    return tuple(_in_order(flow, groups))


def _in_order(flow: Flow, groups: Members) -> Iterator[tuple[int, ...]]:
    grouped = set(chain.from_iterable(groups))
    found = [*groups, *((kernel,) for kernel in range(len(flow.operands)) if kernel not in grouped)]
    number = {kernel: n for n, members in enumerate(found) for kernel in members}
    sources = [{number[flow.maker[v]] for kernel in members for v in flow.operands[kernel]} for members in found]
    readers: list[list[int]] = [[] for _ in found]
    for n, needed in enumerate(sources):
        for source in needed:
            readers[source].append(n)
    missing = [len(needed) for needed in sources]
    ready = [(members[-1], n) for n, members in enumerate(found) if not missing[n]]
    heapq.heapify(ready)
    while ready:
        _, n = heapq.heappop(ready)
        yield found[n]
        for reader in readers[n]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, (found[reader][-1], reader))
