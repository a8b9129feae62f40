"""Axes that propagation splits, as their parts throughout a graph."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ....planner.graph import Axes, Graph, Op, Sharding

PART = re.compile(r"(.+):\((\d+)\)(\d+)$")
SHARDED = ("in_shardings", "out_shardings")
NAMED = ("axes", "manual_axes")
_SAYING = frozenset({*SHARDED, *NAMED})


def in_parts(graph: Graph, mesh: Mapping[str, int]) -> Graph:
    """The graph with ``mesh``; its parts (``x:(1)2``) stand for every axis of which some sharding names one."""
    lies = {id(value): value for each in _graphs(graph) for value in each.values}  # many are one and the same
    said = {axis for value in lies.values() for axes in value.sharding or () for axis in axes}
    parts = {axis: _parts(axis, size, said) for axis, size in mesh.items()}
    sizes = {name: size for axis in mesh for name, size in parts[axis].items()}
    if sizes.keys() == mesh.keys():
        return replace(graph, mesh=dict(mesh))
    spread = {name: _between(name, parts) for name in {*said, *mesh}}
    return replace(_refined(graph, spread), mesh=sizes)


def _graphs(graph: Graph) -> Iterator[Graph]:
    yield graph
    for op in graph.ops:
        for body in op.bodies:
            yield from _graphs(body)


def _parts(axis: str, size: int, said: Iterable[str]) -> dict[str, int]:
    """The parts of an axis, major first, by name, with their sizes."""
    spans = [_span(name) for name in said if name.startswith(f"{axis}:(")]
    cuts = sorted({1, size, *(cut for pre, count in spans for cut in (pre, pre * count))})
    if len(cuts) <= 2:
        return {axis: size}
    return {f"{axis}:({low}){high // low}": high // low for low, high in itertools.pairwise(cuts)}


def _span(name: str) -> tuple[int, int]:
    found = PART.match(name)
    return (int(found[2]), int(found[3])) if found else (1, 1)


def _between(name: str, parts: Mapping[str, Mapping[str, int]]) -> Axes:
    """The parts that an axis, or a part of one, consists of."""
    if name in parts:
        return tuple(parts[name])
    pre, count = _span(name)
    axis = name[: name.rindex(":(")]
    return tuple(p for p in parts[axis] if pre <= _span(p)[0] < pre * count) if len(parts[axis]) > 1 else (axis,)


def _refined(graph: Graph, spread: Mapping[str, Axes]) -> Graph:
    distinct = {id(value): value for value in graph.values}  # many are one and the same
    lies = {key: replace(v, sharding=_sharding(v.sharding, spread)) for key, v in distinct.items() if v.sharding}
    values = tuple([lies.get(id(value), value) for value in graph.values])
    return replace(graph, values=values, ops=tuple([_op(op, spread) for op in graph.ops]))


def _op(op: Op, spread: Mapping[str, Axes]) -> Op:
    if not op.bodies and _SAYING.isdisjoint(op.attributes):
        return op
    attributes: dict[str, Any] = dict(op.attributes)
    attributes |= {k: tuple(_sharding(s, spread) for s in attributes[k]) for k in SHARDED if k in attributes}
    attributes |= {k: _axes(attributes[k], spread) for k in NAMED if k in attributes}
    return replace(op, attributes=attributes, bodies=tuple(_refined(body, spread) for body in op.bodies))


def _sharding(sharding: Sharding, spread: Mapping[str, Axes]) -> Sharding:
    return tuple(_axes(axes, spread) for axes in sharding)


def _axes(axes: Axes, spread: Mapping[str, Axes]) -> Axes:
    return tuple(part for axis in axes for part in spread.get(axis, (axis,)))
