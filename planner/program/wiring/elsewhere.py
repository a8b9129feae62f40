"""What products read as it lies, from the large memory or wide, and otherwise where it is brought elsewhere; on GPUs
what is copied for them where they read it as it was made.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np

from ...graph import Sharding
from ...partition.layout import local_shape
from .wires import Level, Port, Wiring, by_pairs

More = dict[Sharding, float]


def read_far(wiring: Wiring, value: int, ports: Iterable[Port]) -> More:
    """Seconds more that those at these ports take at most to read a value that lies far as they do, by how that is."""
    found: More = defaultdict(float)
    for port in ports:
        lying = wiring.nodes[port.node].far.get(value)
        if lying is not None:
            for layout in dict.fromkeys(port.layouts):
                found[layout] += max(s for s, own in zip(lying.tolist(), port.layouts, strict=True) if own == layout)
    return dict(found)


def read_parts(wiring: Wiring, value: int, source: Port, ports: Iterable[Port]) -> None:
    """Adds what reading a part takes more of what a device holds so much of that it has no place near."""
    for port in ports:
        more = wiring.nodes[port.node].parts.get(value)
        if more is None:
            continue
        level = wiring.levels[wiring.nodes[port.node].level]
        known, room = level.graph.values[value], wiring.strategies.prices.pricing.machine.chip.buffer_vmem_bytes
        shapes = (local_shape(known.shape, layout, wiring.reshards.mesh) for layout in source.layouts)
        is_large = [replace(known, shape=shape).num_bytes > room for shape in shapes]
        pairs = zip(source.layouts, is_large, strict=True)
        is_cut = [[large and b != a and wiring.reshards.extends(b, a) for b in port.layouts] for a, large in pairs]
        if np.any(is_cut):
            wiring.hand_on(source, port, np.where(is_cut, more[None, :], 0.0))


def read_gathered(wiring: Wiring, value: int, source: Port, ports: Iterable[Port]) -> None:
    """Adds what convolutions take more or less that gather a kernel of pieces that lie across."""
    for port in ports:
        more = wiring.nodes[port.node].across.get(value)
        if more is None:
            continue
        shape = wiring.levels[wiring.nodes[port.node].level].graph.shape(value)
        across = by_pairs(partial(wiring.reshards.is_gathered_across, shape), source.layouts, port.layouts)
        if across.any():
            wiring.join_up(source, port, np.where(across, more[None, :], 0.0))


def read_rounded(wiring: Wiring, value: int, source: Port, ports: Iterable[Port]) -> None:
    """Adds what products take less that read what was rounded before it was sent."""
    for port in ports:
        less = wiring.nodes[port.node].rounded.get(value)
        if less is None:
            continue
        sent = by_pairs(wiring.reshards.is_sent, source.layouts, port.layouts)
        if sent.any():
            wiring.join_up(source, port, np.where(sent, -less[None, :], 0.0))


def read_as_made(wiring: Wiring, value: int, shared: Port, ports: Iterable[Port], own: int) -> None:
    """Adds what those take more that read what several share as it is made, which the first ``own`` choices of it say:
    what is brought there otherwise, nobody made so.
    """
    for port in ports:
        more = wiring.nodes[port.node].far.get(value)
        if more is not None:
            same = by_pairs(operator.eq, shared.layouts, port.layouts) & (np.arange(len(shared.layouts)) < own)[:, None]
            wiring.hand_on(shared, port, np.where(same, more[None, :], 0.0))


def spare_shared(wiring: Wiring, source: Port, shared: Port, more: More) -> None:
    """What is brought into a layout for several lies there as nobody made it: reading that takes no more."""
    took = np.array([[more.get(there, 0.0) * (there != own) for there in shared.layouts] for own in source.layouts])
    if took.any():
        wiring.join_up(source, shared, -took)


def spare_ends(wiring: Wiring, top: Level) -> None:
    """What a step leaves otherwise than it is made is none of its results: reading that takes no more."""
    for value, end in wiring.ends.items():
        made = top.source.get(value)
        more = wiring.far.get(value, {})
        if made is None or made.node == end.node or not more:
            continue
        took = np.array([[more.get(own, 0.0) * (there != own) for there in end.layouts] for own in made.layouts])
        if took.any():
            wiring.join_up(made, end, -took)
