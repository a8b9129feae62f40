"""A product or convolution as the matrix unit sees it: rows streamed through weights, both in squares."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..fusion.narrow import is_default_precision
from ..graph import Graph, Op

PRECISE_PASSES, HIGH_PASSES = 6, 3
SQUARE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """``batch`` products of [rows, depth] with [depth, columns], ``passes`` times; ``dtype`` is that multiplied.

    ``windows`` are of a convolution: the places that are gone through, and at each the depth with what pads its parts.
    """

    batch: int
    rows: int
    columns: int
    depth: int
    passes: int
    dtype: str
    windows: tuple[int, int] | None = None

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds asked for."""
        return self.batch * self.rows * self.columns * self.depth

    def padded(self, edge: int) -> float:
        """Multiply-adds that squares of this edge do for it: depth and columns (or rows, whichever fits better) in
        whole squares, and no fewer rows streamed than half an edge. A convolution always streams its places.
        """
        if self.windows is not None:
            places, deep = (max(1, size) for size in self.windows)
            squares = -(-deep // edge) * -(-self.columns // edge) * edge**2
            return float(self.batch * self.passes * max(places, edge // 2) * squares)
        depth = -(-self.depth // edge) * edge
        one, other = (
            max(streamed, edge // 2) * -(-held // edge) * edge
            for streamed, held in ((self.rows, self.columns), (self.columns, self.rows))
        )
        return float(self.batch * self.passes * depth * min(one, other))


def product_of(graph: Graph, op: Op) -> Product:
    """The product that a ``dot_general`` or a ``convolution`` is."""
    return _dot(graph, op) if op.kind == "dot_general" else _convolution(graph, op)


def _dot(graph: Graph, op: Op) -> Product:
    left, right = (graph.values[value] for value in op.operands[:2])
    said = op.attributes
    batch = math.prod(left.shape[d] for d in said.get("lhs_batching_dimensions", ()))
    depth = math.prod(left.shape[d] for d in said.get("lhs_contracting_dimensions", ()))
    shared = max(batch * depth, 1)
    return Product(
        batch=batch,
        rows=left.num_elements // shared,
        columns=right.num_elements // shared,
        depth=depth,
        passes=_passes(graph, op),
        dtype=left.dtype,
    )


def _convolution(graph: Graph, op: Op) -> Product:
    """A convolution as the products of its window's positions: the features that enter are the depth, those of each
    position padded to a square of their own, or half of one; where windows do not overlap all are one depth. Of the
    gradient of its kernel, whose window is as large as the images, the positions are those of the result, and what
    enters is what else that has.
    """
    left, right, made = (graph.values[value] for value in (*op.operands[:2], op.results[0]))
    said = op.attributes
    features = max(right.shape[int(said.get("kernel_output_feature_dimension", len(right.shape) - 1))], 1)
    groups = int(said.get("feature_group_count", 1)) * int(said.get("batch_group_count", 1))
    rows, depth = max(made.num_elements // features, 1), max(right.num_elements // features, 1)
    taps, entering, places = depth, _entering(right.shape, said), rows
    result_taps = math.prod(made.shape[int(d)] for d in said.get("output_spatial_dimensions", ()))
    if depth // entering > result_taps:
        taps, entering, places = rows, max(rows // max(result_taps, 1), 1), depth
    return Product(
        batch=groups,
        rows=rows,
        columns=max(features // groups, 1),
        depth=depth,
        windows=(places, taps if _is_cut(right.shape, said) else _held_depth(taps, entering)),
        passes=_passes(graph, op),
        dtype=left.dtype,
    )


def _entering(shape: tuple[int, ...], said: Mapping[str, Any]) -> int:
    """The features that enter each position of a window."""
    return max(shape[int(said.get("kernel_input_feature_dimension", len(shape) - 2))], 1)


def _is_cut(shape: tuple[int, ...], said: Mapping[str, Any]) -> bool:
    """Whether images are cut into patches: whether windows lie side by side."""
    sizes = [shape[int(dim)] for dim in said.get("kernel_spatial_dimensions", ())]
    return bool(sizes) and sizes == [int(stride) for stride in said.get("window_strides", ())]


def _held_depth(depth: int, entering: int) -> int:
    """A depth whose parts, the features that enter at a position, are padded."""
    square = SQUARE if entering >= SQUARE // 2 else SQUARE // 2
    return depth // entering * -(-entering // square) * square


def _passes(graph: Graph, op: Op) -> int:
    if is_default_precision(op) or graph.values[op.operands[0]].dtype != "f32":
        return 1
    words = str(op.attributes.get("precision_config") or op.attributes.get("precision")).upper()
    return PRECISE_PASSES if "HIGHEST" in words else HIGH_PASSES
