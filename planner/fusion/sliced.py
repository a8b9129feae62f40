"""A slice of what is computed number by number is computed of a slice: XLA's ``pad-slice-mover``.

So products take slices of other products' results in passing, and a device's part is cut out before it is worked on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ..graph import Graph, Op
from .nature import BROADCAST, CONVERT, ELEMENTWISE
from .nature import SLICE as PART

SLICE, BITS = "slice", "pred"


def with_slices_first(graph: Graph) -> Graph:
    """The same graph with the conversions that a slice alone reads behind it, and what else a device's part alone is
    cut out of that is computed of one array; masks that several read, part and whole, are cut out as such.
    """
    while behind := _behind(graph) if not graph.kinds.isdisjoint((SLICE, PART)) else {}:
        graph = _moved(graph, behind)
    return graph


def _behind(graph: Graph) -> dict[int, Op]:
    """What is computed behind slices, by what these make."""
    readers = graph.reads()
    readers.update(graph.results)
    made = {op.results[0]: op for op in graph.ops if len(op.results) == 1}
    cuts = [op for op in graph.of_kind(SLICE, PART) if op.operands[0] in made]
    found = {op.results[0]: made[op.operands[0]] for op in cuts if _is_behind(graph, op, made, readers)}
    whole = _read_whole(graph, found) if any(_rounds(graph, op) for op in found.values()) else frozenset[int]()
    return {part: op for part, op in found.items() if not (_rounds(graph, op) and op.operands[0] in whole)}


def _is_behind(graph: Graph, cut: Op, made: Mapping[int, Op], readers: Counter[int]) -> bool:
    op = made[cut.operands[0]]
    if readers[cut.operands[0]] > 1 and not (
        cut.kind == PART and op.kind == CONVERT and graph.values[op.operands[0]].dtype == BITS
    ):
        return False
    return is_computed_of_part(graph, op, made) and (cut.kind == PART or op.kind == CONVERT)


def is_computed_of_part(graph: Graph, op: Op, made: Mapping[int, Op]) -> bool:
    """Whether a device's part of what an operation makes is computed of a part: it is made of one array, and of what is
    one number everywhere, of those ``made``.
    """
    if op.kind == CONVERT:
        return not op.attributes
    arrays = [value for value in op.operands if not is_uniform(graph, made.get(value))]
    return op.kind in ELEMENTWISE and len(arrays) == 1


def is_uniform(graph: Graph, op: Op | None) -> bool:
    """Whether an operand is one number everywhere."""
    return op is not None and op.kind == BROADCAST and graph.values[op.operands[0]].num_elements == 1


def _rounds(graph: Graph, op: Op) -> bool:
    before, after = graph.values[op.operands[0]], graph.values[op.results[0]]
    return op.kind == CONVERT and after.bits < before.bits


def _read_whole(graph: Graph, behind: Mapping[int, Op]) -> frozenset[int]:
    """What others than slices read when they stand first: parts of it are rounded as it is, and not after."""
    moved = {op.results[0] for op in behind.values()}
    reading = (op for op in graph.ops if op.kind != PART and op.results and op.results[0] not in moved)
    return frozenset(value for op in reading for value in op.operands)


def _moved(graph: Graph, behind: Mapping[int, Op]) -> Graph:
    """The graph with these operations behind the slices that make such values."""
    values, ops = list(graph.values), list[Op]()
    made = {op.results[0]: op for op in graph.ops if len(op.results) == 1}
    left = graph.reads()
    left.update(graph.results)
    left.subtract(op.results[0] for op in behind.values())
    gone = {op.results[0] for op in behind.values() if not left[op.results[0]]}
    for op in graph.ops:
        after = behind.get(op.results[0]) if op.results else None
        if after is None:
            ops += [op] if not op.results or op.results[0] not in gone else []
            continue
        shape, operands = graph.shape(op.results[0]), list[int]()
        for value in after.operands:
            values.append(replace(values[value], shape=shape))
            spread = made.get(value)
            uniform = spread is not None and is_uniform(graph, spread)
            first = spread if spread is not None and uniform else op.moved((value, *op.operands[1:]))
            ops.append(replace(first, results=(len(values) - 1,)))
            operands.append(len(values) - 1)
        ops.append(replace(after, operands=tuple(operands), results=op.results))
    return replace(graph, values=tuple(values), ops=tuple(ops))
