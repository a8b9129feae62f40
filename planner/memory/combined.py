"""All-reduces that the compiler makes one: what they sum lives until the last of them has it."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from ..kernels import Program
from ..kinds import ALL_REDUCE
from .flow import Flow
from .orders import post_order

LIMIT_BYTES = 120 << 20

Members = tuple[tuple[int, ...], ...]


def combined(program: Program, flow: Flow) -> Members:
    """Groups of kernels, by their positions, that become one: all-reduces over the same axes, of one kind.

    XLA's combiner (``collective_combiner_utils.h``) goes through them in post-order and takes to the first whatever
    does not depend on those it has and does not make too much of it: of 40, 90, 40, 10, 40 and 30 MiB those of 40, 40,
    10 and 30 are one. Followed here are those that no other waits for, as the gradients of weights: whether what stands
    between others is combined depends on how the partitioner wrote their groups down.
    """
    keys = dict(_keys(program))
    if len(keys) < 2:
        return ()
    order = [kernel for kernel in post_order(flow) if kernel in keys]
    needed = 0
    for kernel, mask in _needs(flow, order):
        needed |= mask if kernel in keys else 0
    waiting = [kernel for bit, kernel in enumerate(order) if not needed >> bit & 1]
    groups: list[tuple[int, ...]] = []
    while waiting:
        group = _first_group(program, waiting, keys)
        taken = set(group)
        waiting = [kernel for kernel in waiting if kernel not in taken]
        if len(group) > 1:
            groups.append(group)
    return tuple(groups)


def _keys(program: Program) -> Iterator[tuple[int, Hashable]]:
    graph = program.graph
    for position, kernel in enumerate(program.kernels):
        if len(kernel.ops) == 1 and (op := graph.ops[kernel.ops[0]]).kind == ALL_REDUCE and len(op.results) == 1:
            yield position, (tuple(op.attributes.get("axes", ())), op.attributes.get("reducer"))


def _first_group(program: Program, waiting: Sequence[int], keys: dict[int, Hashable]) -> tuple[int, ...]:
    group, total = list[int](), 0
    for kernel in waiting:
        if keys[kernel] != keys[waiting[0]]:
            continue
        num_bytes = sum(program.graph.values[v].num_bytes for v in program.kernels[kernel].writes)
        if not group or total + num_bytes <= LIMIT_BYTES:
            group.append(kernel)
            total += num_bytes
    return tuple(group)


def _needs(flow: Flow, waiting: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Each kernel with a bit for each waiting one that it needs, directly or not."""
    bits = {kernel: 1 << bit for bit, kernel in enumerate(waiting)}
    needs: list[int] = []
    for kernel, operands in enumerate(flow.operands):
        mask = 0
        for value in operands:
            source = flow.maker[value]
            mask |= needs[source] | bits.get(source, 0)
        needs.append(mask)
        yield kernel, mask


def with_tuples(flow: Flow, groups: Members) -> Flow:
    """The flow in which nothing lies where a group's result did: its readers take that out of a tuple."""
    results = {value for group in groups for kernel in group for value in flow.made[kernel]}
    if not results:
        return flow
    kept = tuple(tuple(pair for pair in pairs if pair[1] not in results) for pairs in flow.places)
    return replace(flow, places=kept)


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
