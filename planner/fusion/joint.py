"""Sums over devices that the compiler makes one before it fuses anything: which of a program's are.

It goes through them from the end, each once all that reads it has been, and takes to the first whatever does not depend
on those it has, nor they on it, and does not make too much of it: of 40, 90, 40, 10, 40 and 30 MiB those of 40, 40, 10
and 30 are one, and what nothing waits for is one with the last of a chain (small programs for v5e). What was too much
for one is no part of another with those that were left because they depend on it, or it on them (v5e: of 40 MiB four
times, three of which need one of 4, those three are one, and the others apart). What depends on one of them then
depends on all that this needs. They sum one dtype, however that is rounded later, over the same devices,
whatever made what they add up: products, reductions or rows that are looked up (programs for v3 to v6e: the labels'
scores are one with a product's sum if that comes first, or else with the vocabulary's). Of tpu7x, whose other
cores sum, devices are written down in one way for products and in another for reductions, which keeps these apart, but
over all devices.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from math import prod
from types import MappingProxyType

from ..graph import Graph, Op
from ..kinds import ALL_REDUCE, GATHERED
from ..lookups import GATHER
from ..partition.layout import ways
from .nature import AFTER, IN_PASSING, PRODUCTS, REDUCE

LIMIT_BYTES = 120 << 20
PRODUCT, REDUCTION, ALIKE, BEYOND = "product", "reduce", "alike", "beyond"
NO_MESH = MappingProxyType[str, int]({})
MOST_BEFORE = 16
"""Through how many operations it is looked what a sum adds up."""

Joint = tuple[tuple[int, ...], ...]


def joint_sums(
    graph: Graph, makers: Mapping[int, int], mesh: Mapping[str, int] = NO_MESH, *, offloads: bool = False
) -> Joint:
    """The values that sums make which are one, by groups. ``makers`` has the operation that makes each value, ``mesh``
    the sizes of the axes, ``offloads`` says that the chip's other cores make sums.
    """
    keys = _keys(graph)
    if len({*keys.values()}) == len(keys):
        return ()
    bits = {number: 1 << place for place, number in enumerate(keys)}
    needs = _needs(graph, makers, bits)
    awaited, waiting = 0, list[int]()
    for number in keys:
        awaited |= needs[number]
    for number in _from_end(graph, makers, needs, bits):
        op = graph.ops[number]
        is_whole = bool(mesh) and ways(op.attributes.get("axes", ()), mesh) == prod(mesh.values())
        is_last = not awaited & bits[number]
        way = ALIKE if is_whole or not offloads else _written(graph, makers, op) or (REDUCTION if is_last else "")
        if way:
            keys[number] = keys[number], way, graph.values[op.operands[0]].dtype
            waiting.append(number)
    return tuple(_groups(graph, waiting, keys, {number: needs[number] for number in keys}, bits))


def _keys(graph: Graph) -> dict[int, Hashable]:
    """What sums that may be one have alike, by their operations."""
    if ALL_REDUCE not in graph.kinds:
        return {}
    return {
        number: (tuple(op.attributes.get("axes", ())), op.attributes.get("reducer"))
        for number, op in enumerate(graph.ops)
        if op.kind == ALL_REDUCE and len(op.results) == 1
    }


def _needs(graph: Graph, makers: Mapping[int, int], bits: Mapping[int, int]) -> list[int]:
    """Of each operation a bit for each of these sums that it needs, directly or not."""
    needs, reach = [0] * len(graph.ops), [0] * len(graph.ops)
    for number, op in enumerate(graph.ops):
        mask = 0
        for value in op.operands:
            if value in makers:
                mask |= reach[makers[value]]
        if AFTER in op.attributes:
            for value in op.attributes[AFTER]:
                if value in makers:
                    mask |= reach[makers[value]]
        needs[number] = mask
        reach[number] = mask | bits[number] if number in bits else mask
    return needs


def _from_end(graph: Graph, makers: Mapping[int, int], needs: Sequence[int], bits: Mapping[int, int]) -> Iterator[int]:
    """These sums from the results back: each once all that reads it has been, what is read first before the rest."""
    seen, order, ops = bytearray(len(graph.ops)), list[int](), graph.ops
    stack = [makers[value] for value in graph.results if value in makers]
    while stack:
        number = stack.pop()
        if number < 0:  # all that it needs has been
            order.append(~number)
        elif not seen[number]:
            seen[number] = True
            is_sum = number in bits
            if is_sum:
                stack.append(~number)
            if needs[number]:
                for value in ops[number].operands:
                    if value in makers and not seen[makers[value]]:
                        stack += (makers[value],)
    return reversed(order)


def _written(graph: Graph, makers: Mapping[int, int], summed: Op) -> str:
    """In which way the devices of a sum over part of them are written down where other cores sum, nothing where that is
    not known: by what is added up, as it goes through other operations. Rows that are looked up are as reductions
    (programs for tpu7x).
    """
    if summed.attributes.get(GATHERED):
        return PRODUCT
    waiting = [value for value in summed.operands if value in makers]
    for _ in range(MOST_BEFORE):
        if not waiting:
            break
        op = graph.ops[makers[waiting.pop()]]
        if op.kind in PRODUCTS:
            return PRODUCT
        if op.kind == REDUCE:
            return REDUCTION
        if op.kind == GATHER:
            return REDUCTION
        if op.kind in IN_PASSING:
            waiting += [value for value in op.operands if value in makers]
    return ""


def _groups(
    graph: Graph,
    waiting: Sequence[int],
    keys: dict[int, Hashable],
    needs: dict[int, int],
    bits: Mapping[int, int],
) -> Iterator[tuple[int, ...]]:
    """The values of those that are one, of at least two each."""
    while waiting:
        group, beyond = _first_group(graph, waiting, keys, needs, bits)
        keys.update((number, (keys[number], BEYOND)) for number in beyond)
        taken = set(group)
        waiting = [number for number in waiting if number not in taken]
        if len(group) > 1:
            yield tuple(graph.ops[number].results[0] for number in group)
            _join(group, needs, bits)


def _join(group: Sequence[int], needs: dict[int, int], bits: Mapping[int, int]) -> None:
    """Whatever needs one of a group needs all of it, and all that these need."""
    members = needed = 0
    for number in group:
        members |= bits[number]
        needed |= needs[number]
    for number, mask in needs.items():
        if mask & members or bits[number] & members:
            needs[number] = mask | needed | (members & ~bits[number])


def _first_group(
    graph: Graph,
    waiting: Sequence[int],
    keys: Mapping[int, Hashable],
    needs: Mapping[int, int],
    bits: Mapping[int, int],
) -> tuple[list[int], list[int]]:
    """Those that are one with the first, and what would be too much with them; what is too much alone parts none."""
    group, beyond, total, members, needed = list[int](), list[int](), 0, 0, 0
    for number in waiting:
        if keys[number] != keys[waiting[0]] or needs[number] & members or needed & bits[number]:
            continue
        num_bytes = graph.values[graph.ops[number].results[0]].num_bytes
        if not group or total + num_bytes <= LIMIT_BYTES:
            group.append(number)
            total += num_bytes
            members |= bits[number]
            needed |= needs[number]
        else:
            beyond.append(number)
    return group, beyond if total <= LIMIT_BYTES else []


def wait_for_all(joint: Joint, maker: Mapping[int, int], needs: Mapping[int, set[int]]) -> list[int]:
    """Has whatever needs one of these values need all of its group; ``maker`` says what makes each. All, each behind
    what it needs then.
    """
    made = [{maker[value] for value in values} for values in joint]
    of = {member: members for members in made for member in members}
    sums, is_behind = of.keys(), True
    for number, makers in needs.items():
        awaited = sums & makers
        if awaited and number not in of:
            for member in awaited:
                makers |= of[member]
        if awaited and is_behind:
            is_behind = max(makers) < number
    return list(needs) if is_behind else _ordered(needs)


def _ordered(needs: Mapping[int, set[int]]) -> list[int]:
    missing = {number: len(makers) for number, makers in needs.items()}
    readers: dict[int, list[int]] = {number: [] for number in needs}
    for number, makers in needs.items():
        for each in makers:
            readers[each] += (number,)
    order = [number for number, count in missing.items() if not count]
    for number in order:
        for reader in readers[number]:
            missing[reader] -= 1
            if not missing[reader]:
                order += (reader,)
    return order
