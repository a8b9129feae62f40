"""Bytes over every link of a torus, one message and one hop at a time: the oracle of the network model's formulas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from meshwright.planner.topology import Machine

Message = tuple[int, int, float]
Link = tuple[tuple[int, ...], int, int]


def busiest(machine: Machine, wraps: dict[str, bool], messages: Iterable[Message], *, halve: bool) -> dict[str, float]:
    """The most bytes over one directed link of each dim.

    Every message goes the shortest way, dim after dim; half way round a ring it goes upwards, or (``halve``) one half
    each way. ``wraps`` says which dims are links of the torus, and whether they join their ends.
    """
    loads: dict[Link, float] = defaultdict(float)
    for source, target, num_bytes in messages:
        at, end = list(machine.coordinates(source).values()), list(machine.coordinates(target).values())
        for dim, (name, size) in enumerate(machine.dims):
            if name not in wraps:
                continue
            for way, share in _ways(at[dim], end[dim], size, wraps[name], halve):
                _walk(loads, machine, list(at), dim, end[dim], way, share * num_bytes)
            at[dim] = end[dim]
    most: dict[str, float] = {}
    for (_, dim, _), load in loads.items():
        name = machine.dims[dim][0]
        most[name] = max(most.get(name, 0.0), load)
    return most


def _ways(start: int, end: int, size: int, ring: bool, halve: bool) -> list[tuple[int, float]]:
    if start == end:
        return []
    if not ring:
        return [(1 if end > start else -1, 1.0)]
    up, down = (end - start) % size, (start - end) % size
    if up == down and halve:
        return [(1, 0.5), (-1, 0.5)]
    return [(1 if up <= down else -1, 1.0)]


def _walk(
    loads: dict[Link, float], machine: Machine, at: list[int], dim: int, end: int, way: int, num_bytes: float
) -> None:
    """Steps to ``end``; the cores of a chip share its links."""
    size = machine.dims[dim][1]
    while at[dim] != end:
        chip = tuple(-1 if name == "core" else place for (name, _), place in zip(machine.dims, at, strict=True))
        loads[(chip, dim, way)] += num_bytes
        at[dim] = (at[dim] + way) % size
