"""The copies in bfloat16 that are read in the place of images that a step is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...images import convolves
from ...kernels import Program
from ...whole_images import taken_whole
from ..flow.flow import Flow
from ..tensors.convolved import copied_images, laid_bytes
from ..tensors.taken_in_pieces import NARROW
from ..tensors.taken_whole import whole_bytes
from .hoisted import hoisted_copies

Span = tuple[int, int]
Copied = Mapping[int, tuple[Span, int]]
"""By the value that is copied from when to when the copy is there, and its bytes."""


def copied_arguments(program: Program, flow: Flow, smallest: int) -> Copied:
    """The copies for convolutions that read such images, and for loops that do."""
    graph = program.graph
    if not convolves(graph):
        return {}
    laid, whole = laid_bytes(program, smallest), taken_whole(graph)
    found = dict(copied_images(program, flow.touches, smallest))
    for value, span in hoisted_copies(program, flow.buffer).items():
        if value in graph.arguments and value not in found:
            narrow = laid(replace(graph.values[value], dtype=NARROW))
            is_whole = value in whole
            found[value] = span, whole_bytes(graph, value, whole[value], narrow=True) if is_whole else narrow
    return found


def near_throughout(spans: dict[int, Span], copied: Copied, begins: Mapping[int, int], flow: Flow) -> frozenset[int]:
    """The copies, by their buffers, that lie near wherever they are read; of others that ``begins`` has, by value, the
    spans end where they are fetched for the last time.
    """
    near = set[int]()
    for value in copied.keys() & begins.keys():
        first, last = copied[value][0]
        spans[-1 - value] = first, max(min(last, begins[value]), first)
        if begins[value] <= min(flow.touches[value], default=first):
            near.add(-1 - value)
    return frozenset(near)
