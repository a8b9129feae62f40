"""All-reduces that the compiler makes one: what they sum lives until the last of them has it."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain
from operator import or_
from typing import TypeVar

from ...kernels import Program
from ...kinds import ALL_REDUCE, GATHERED
from ..flow.flow import Flow
from .deferred import PRODUCTS
from .orders import from_end

LIMIT_BYTES = 120 << 20
PRODUCT, REDUCTION = "product", "reduce"

Members = tuple[tuple[int, ...], ...]
T = TypeVar("T")


def combined(program: Program, flow: Flow) -> Members:
    """Groups of kernels, by their positions, that become one: all-reduces over the same axes, of one kind.

    XLA's combiner (``collective_combiner_utils.h``) goes through them in post-order and takes to the first whatever
    does not depend on those it has and does not make too much of it: of 40, 90, 40, 10, 40 and 30 MiB those of 40, 40,
    10 and 30 are one. What depends on one of a group then depends on all that this needs. Followed here are those that
    no other waits for, as the gradients of weights, and of others, of one dtype, the sums of products, as queries, keys
    and values, those of reductions, and gathers of whole slices: the partitioner writes the groups of devices down in
    one way for products and in another for reductions, for what else stands between others in ways that are not known.
    """
    keys = dict(_keys(program))
    if len(keys) < 2:
        return ()
    waiting = [kernel for kernel in from_end(flow) if kernel in keys]
    needs = _needs(flow, waiting)
    bits = {kernel: 1 << bit for bit, kernel in enumerate(waiting)}
    awaited = reduce(or_, needs.values())
    written = {kernel: _written(program, flow, kernel) for kernel in waiting if awaited & bits[kernel]}
    waiting = [kernel for kernel in waiting if written.get(kernel, PRODUCT)]
    for kernel, way in written.items():
        (summed,) = program.graph.ops[program.kernels[kernel].ops[0]].operands
        keys[kernel] = keys[kernel], way, program.graph.values[summed].dtype
    groups: list[tuple[int, ...]] = []
    while waiting:
        group = _first_group(program, waiting, keys, needs, bits)
        taken = set(group)
        waiting = [kernel for kernel in waiting if kernel not in taken]
        if len(group) > 1:
            groups.append(group)
            _join(group, needs, bits)
    return tuple(groups)


def _written(program: Program, flow: Flow, kernel: int) -> str:
    """What decides how the groups of devices of a sum are written down, nothing where that is not known."""
    graph, kernels = program.graph, program.kernels
    if graph.ops[kernels[kernel].ops[0]].attributes.get(GATHERED):
        return PRODUCT
    summed = flow.operands[kernel]
    inside = [graph.ops[op] for value in summed if value in flow.maker for op in kernels[flow.maker[value]].ops]
    if any(op.kind == REDUCTION and op.results[0] in summed for op in inside):
        return REDUCTION
    return PRODUCT if any(op.kind in PRODUCTS for op in inside) else ""


def _join(group: Sequence[int], needs: dict[int, int], bits: Mapping[int, int]) -> None:
    """Whatever needs one of a group needs all of it, and all that these need."""
    members = needed = 0
    for kernel in group:
        members |= bits[kernel]
        needed |= needs[kernel]
    for kernel, mask in needs.items():
        if mask & members or bits[kernel] & members:
            needs[kernel] = mask | needed | (members & ~bits[kernel])


def _keys(program: Program) -> Iterator[tuple[int, Hashable]]:
    graph = program.graph
    for position, kernel in enumerate(program.kernels):
        if len(kernel.ops) == 1 and (op := graph.ops[kernel.ops[0]]).kind == ALL_REDUCE and len(op.results) == 1:
            yield position, (tuple(op.attributes.get("axes", ())), op.attributes.get("reducer"))


def _first_group(
    program: Program,
    waiting: Sequence[int],
    keys: Mapping[int, Hashable],
    needs: Mapping[int, int],
    bits: Mapping[int, int],
) -> tuple[int, ...]:
    group, total, members, needed = list[int](), 0, 0, 0
    for kernel in waiting:
        if keys[kernel] != keys[waiting[0]] or needs[kernel] & members or needed & bits[kernel]:
            continue
        num_bytes = sum(program.graph.values[v].num_bytes for v in program.kernels[kernel].writes)
        if not group or total + num_bytes <= LIMIT_BYTES:
            group.append(kernel)
            total += num_bytes
            members |= bits[kernel]
            needed |= needs[kernel]
    return tuple(group)


def _needs(flow: Flow, waiting: Sequence[int]) -> dict[int, int]:
    """Of each waiting kernel a bit for each other that it needs, directly or not."""
    bits = {kernel: 1 << bit for bit, kernel in enumerate(waiting)}
    needs: list[int] = []
    for operands in flow.operands:
        mask = 0
        for value in operands:
            source = flow.maker[value]
            mask |= needs[source] | bits.get(source, 0)
        needs.append(mask)
    return {kernel: needs[kernel] for kernel in waiting}


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
