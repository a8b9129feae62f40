"""How the arguments and the results of a step lie over its mesh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..graph import Graph
from ..partition.layout import local_shape
from .figures import TensorLayout


def layouts(graph: Graph) -> Iterator[TensorLayout]:
    """How the arguments and the results of a step lie over its mesh."""
    for path, value in zip(graph.names, graph.arguments, strict=False):
        yield _layout(graph, path, "argument", value)
    for path, value in zip(graph.result_names, graph.results, strict=False):
        yield _layout(graph, path, "result", value)


def _layout(graph: Graph, path: str, role: str, number: int) -> TensorLayout:
    value = graph.values[number]
    axes = value.sharding or ((),) * len(value.shape)
    held = replace(value, shape=local_shape(value.shape, axes, graph.mesh), sharding=None)
    return TensorLayout(
        path=path, role=role, shape=value.shape, dtype=value.dtype, axes=axes, device_bytes=held.num_bytes
    )
