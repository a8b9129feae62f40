"""What is live when in a program whose buffers are placed: worked out when it is first asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ..graph import Graph
from .kinds import BATCH, WEIGHTS
from .level import Level
from .points import LiveTensor, Point, live_tensors, points


class Details:
    """Of a step on a device; ``kinds`` are those of its arguments in order."""

    def __init__(self, placed: Level, kinds: Sequence[str]) -> None:
        graph = placed.program.graph
        self._placed = placed
        self._kinds = kinds
        kinds_of = zip(graph.arguments, kinds, strict=False)
        self._weights = frozenset(graph.shape(value) for value, kind in kinds_of if kind == WEIGHTS)

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """All points of the program in its order."""
        return tuple(points(self._placed, self._weights))

    @cached_property
    def peak(self) -> Point | None:
        """The point at which most temporaries are live."""
        return max(self.points, key=lambda point: point.num_bytes, default=None)

    @cached_property
    def held(self) -> tuple[LiveTensor, ...]:
        """The arguments."""
        return tuple(_argument_tensors(self._placed.program.graph, self._kinds))

    @cached_property
    def tensors(self) -> tuple[LiveTensor, ...]:
        """What is live at the peak, the largest first, arguments too."""
        live = live_tensors(self._placed, self.peak.path, self._weights) if self.peak else []
        return tuple(sorted([*self.held, *live], key=lambda tensor: -tensor.num_bytes))

    @cached_property
    def bytes_by_kind(self) -> dict[str, int]:
        """Of arguments and temporaries at the peak, without gaps between them."""
        by_kind = dict(self.peak.bytes_by_kind) if self.peak else {}
        for tensor in self.held:
            by_kind[tensor.kind] = by_kind.get(tensor.kind, 0) + tensor.num_bytes
        return by_kind


def _argument_tensors(graph: Graph, kinds: Sequence[str]) -> list[LiveTensor]:
    found = []
    for position, value in enumerate(graph.arguments):
        held = graph.values[value]
        found.append(
            LiveTensor(
                name=graph.names[position] if position < len(graph.names) else f"argument {position}",
                kind=kinds[position] if position < len(kinds) else BATCH,
                num_bytes=held.num_bytes,
                padding_bytes=0,
                shape=held.shape,
                dtype=held.dtype,
            )
        )
    return found
