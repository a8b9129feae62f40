"""What updates take that lie transposed as another one does, whose gradient comes so: if their parts have one shape.

XLA spreads a number over arrays of that shape once for all that read it, which gives all of them one layout
(``compute/copies/turned``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from ...compute.copies.turned import WIDE_EDGE
from ...compute.copies.turned_copies import Copies, copies_seconds
from ...graph import Sharding, Value
from ...partition.layout import local_shape
from .wires import Level, Port, Wiring

Shape = tuple[int, ...]


def join_turned(wiring: Wiring, level: Level) -> None:
    """Adds what such updates copy together with the first one of their shape."""
    pricing = wiring.strategies.prices.pricing
    if pricing.speed.edge < WIDE_EDGE:
        return
    known, kernels, shape_of = wiring.strategies.known, level.program.kernels, level.graph.shape
    first: dict[Shape, tuple[int, int]] = {}
    for position, number in level.kernels.items():
        for value in known.turned.get(id(kernels[position]), ()):
            first.setdefault(shape_of(value), (number, value))
    for position, number in level.kernels.items():
        kernel, node = kernels[position], wiring.nodes[number]
        copied = [value for value in known.alike.get(id(kernel), ()) if value in node.layouts]
        if not copied or shape_of(copied[0]) not in first or any(value not in node.layouts for value in kernel.writes):
            continue
        source, turned = first[shape_of(copied[0])]
        lies, theirs = wiring.nodes[source].layouts[turned], node.layouts[copied[0]]

        def part(layouts: Mapping[int, Sharding], value: int) -> Value:
            own = level.graph.values[value]
            return Value(local_shape(own.shape, layouts[value], pricing.mesh), own.dtype)

        around = [value for value in (*kernel.reads, *kernel.writes) if value in node.layouts]
        took = []
        for choice in range(len(theirs)):
            laid = {value: layouts[choice] for value, layouts in node.layouts.items()}
            copies = Copies.of(copied, kernel.writes, around, partial(part, laid))
            took.append(copies_seconds(copies, pricing.speed))
        ours, others = (
            [part({value: own}, value).shape for own in of] for value, of in ((turned, lies), (copied[0], theirs))
        )
        same = np.array([[one == other for other in others] for one in ours])
        more = node.times * np.where(same, np.array(took)[None, :], 0.0)
        wiring.join_up(Port(source, tuple(lies)), Port(number, tuple(theirs)), more)
