"""Images whose features are parted into groups and reduced so, as by group normalisation: a copy is written for it."""

from __future__ import annotations

from collections.abc import Mapping

from ..graph import Graph, Op
from ..images import Image, images
from .nature import ELEMENTWISE, LANES, REDUCE
from .uses import Uses

Shape = tuple[int, ...]


def grouped(graph: Graph, uses: Uses) -> set[int]:
    """The reshapes that part an image's features into groups, no whole register's lanes each, which are reduced so.

    No layout has both forms: the image is copied into one in which it can be reduced.
    """
    lie = images(graph)
    return {
        number
        for number, op in enumerate(graph.ops if lie else ())
        if op.kind == "reshape"
        if parts_lanes(graph.shape(op.operands[0]), graph.shape(op.results[0]), lie) and _is_reduced(graph, uses, op)
    }


def parts_lanes(whole: Shape, parted: Shape, lie: Mapping[Shape, Image]) -> bool:
    """Whether one shape is that of an image of these whose features the other parts, no whole register's lanes each."""
    if whole not in lie or len(parted) <= len(whole):
        return False
    features = lie[whole].features
    last = len(parted) - (len(whole) - features)
    kept = parted[:features] == whole[:features] and parted[last + 1 :] == whole[features + 1 :]
    return kept and last == features + 1 and parted[last] > 1 and parted[last] % LANES > 0


def _is_reduced(graph: Graph, uses: Uses, op: Op) -> bool:
    """Whether what is computed of a result number by number is reduced."""
    size = graph.values[op.results[0]].num_elements
    waiting, seen = [op.results[0]], set[int]()
    while waiting:
        for reader in uses.next_ops(waiting.pop()):
            after = graph.ops[reader]
            if after.kind == REDUCE:
                return True
            made = after.results[0]
            if after.kind in ELEMENTWISE and made not in seen and graph.values[made].num_elements == size:
                seen.add(made)
                waiting.append(made)
    return False
