"""What lies beside images that loops take or make whole, of a shape that others take in pieces (``whole_images``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...graph import Graph
from ...images import Image, laid_elements
from ...kernels import Program
from ...whole_images import added_whole, kept_whole, read_whole, taken_whole
from .taken_in_pieces import NARROW, Beside
from .tiles import aligned


def beside_whole(program: Program) -> Iterator[Beside]:
    """What lies beside such images: of those that are kept as copies what was computed, and else the copy while loops
    read it; of what was added up the copy that is read. Of a step's arguments the copy is in another place
    (``copied_images``).
    """
    graph, whole, kept = program.graph, taken_whole(program.graph), kept_whole(program)
    added, reading = added_whole(graph), dict[int, list[int]]()
    for point, kernel in enumerate(program.kernels) if whole or added else ():
        for value in kept.keys() & set(kernel.writes):
            yield Beside(value, (point, point), whole_bytes(graph, value, kept[value], turned=True))
        for value in whole.keys() & read_whole(graph.ops[kernel.ops[-1]]).keys():
            reading.setdefault(value, []).append(point)
        for value in added.keys() & set(kernel.reads) if not kernel.bodies else ():
            yield Beside(value, (point, point), whole_bytes(graph, value, added[value], turned=True))
    for value, points in reading.items():
        if value not in kept and value not in graph.arguments:
            yield Beside(value, (points[0], points[-1]), whole_bytes(graph, value, whole[value], narrow=True))


def whole_bytes(graph: Graph, value: int, image: Image, *, turned: bool = False, narrow: bool = False) -> int:
    """Bytes of an image with its features on the lanes, or its batch; ``narrow`` if in bfloat16."""
    held = replace(graph.values[value], dtype=NARROW) if narrow else graph.values[value]
    return aligned(laid_elements(held, image, turned=turned) * held.bits // 8)
