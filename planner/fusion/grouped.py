"""Images whose features are parted into groups and reduced so, as by group normalisation: a copy is written for it."""

from __future__ import annotations

from collections.abc import Mapping

from ..graph import Graph, Op
from ..images import Image, batch_on_lanes, images
from .nature import ELEMENTWISE, LANES, REDUCE
from .uses import Uses

Shape = tuple[int, ...]


def grouped(graph: Graph, uses: Uses) -> set[int]:
    """The reshapes that part an image's features into groups, no whole register's lanes each, which are reduced so.

    No layout has both forms: an image that has its batch on the lanes is copied into one in which it can be reduced. Of
    another each feature is reduced as it lies, however few images there are, and what that leaves is added up by groups
    (one to sixteen images of 64 and 128 features on v3, v4, v5e, v5p and v6e).
    """
    lie = {whole: image for whole, image in images(graph).items() if is_across(whole, image)}
    return {
        number
        for number, op in enumerate(graph.ops if lie else ())
        if op.kind == "reshape"
        if parts_lanes(graph.shape(op.operands[0]), graph.shape(op.results[0]), lie) and _is_reduced(graph, uses, op)
    }


def is_across(whole: Shape, image: Image) -> bool:
    """Whether images lie on the lanes: else they are reduced as they lie."""
    return batch_on_lanes(whole[image.features], whole[image.batch])


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
