"""A product or convolution as the matrix unit sees it: rows streamed through weights, both in squares."""

from __future__ import annotations

import math

from ...dsl.records import record
from ..fusion.narrow import is_default_precision
from ..fusion.nature import is_of_vector
from ..graph import Graph, Op
from .coefficients import Coefficients
from .windows import Windows, windows_of

PRECISE_PASSES, HIGH_PASSES = 6, 3
COMPLEX, COMPLEX_PASSES = ("c64", "c128"), 3
"""Complex numbers are multiplied as sums of their parts, three products (v5e: 1024 x 2048 x 1024 33024 cycles each)."""

REGISTER_ELEMENTS, WORD_BITS = 1024, 32
WIDE, NARROW, NARROW_LATER = 2.0, 26.0, 55.0
"""Vector operations for 1024 numbers that a vector multiplies: of float32; of what is narrower, unpacked and rounded
again, on v3, and as v5e and v6e count them, which do several at once.
"""

LOAD_CYCLES = 1.1
"""What bringing a register of an image to the squares takes, seen on v5p and v6e: on v3 the squares take longer."""


@record(frozen=True, slots=True, kw_only=True)
class Product:
    """``batch`` products of [rows, depth] with [depth, columns], ``passes`` times; ``dtype`` is that multiplied.

    ``windows`` are of a convolution: what the squares really stream for it. ``vectors`` are the numbers that a vector
    multiplies, for which no square is used, if it is one; ``narrow`` says that they have less than 32 bits. ``turned``
    says that both operands lie with what they share outside of what they do not.
    """

    batch: int
    rows: int
    columns: int
    depth: int
    passes: float
    dtype: str
    windows: Windows | None = None
    vectors: int = 0
    narrow: bool = False
    turned: bool = False

    def vector_operations(self, of: Coefficients) -> float:
        """The vector operations that take the place of squares, 1024 numbers each."""
        if self.windows is not None:
            return self.windows.registers
        each = (NARROW_LATER if of.near_total_bytes else NARROW) if self.narrow else WIDE
        return each * self.vectors / REGISTER_ELEMENTS

    @property
    def load_cycles(self) -> float:
        """Cycles of bringing images to the squares, at each position of a window."""
        return LOAD_CYCLES * self.windows.loads if self.windows is not None else 0.0

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds asked for."""
        return self.batch * self.rows * self.columns * self.depth

    def padded(self, edge: int) -> float:
        """Multiply-adds that squares of this edge do for it: depth and columns (or rows, whichever fits better) in
        whole squares, and no fewer rows streamed than half an edge.
        """
        if self.windows is not None:
            return self.passes * self.windows.rows(edge) * edge**2
        if self.vectors:
            return 0.0
        depth = -(-self.depth // edge) * edge
        one, other = (
            max(streamed, edge // 2) * -(-held // edge) * edge
            for streamed, held in ((self.rows, self.columns), (self.columns, self.rows))
        )
        return float(self.batch * self.passes * depth * min(one, other))


def product_of(graph: Graph, op: Op) -> Product:
    """The product that a ``dot_general`` or a ``convolution`` is, or all of a ``ragged_dot`` are together."""
    return _convolution(graph, op) if op.kind == "convolution" else _dot(graph, op)


def _dot(graph: Graph, op: Op) -> Product:
    left, right = (graph.values[value] for value in op.operands[:2])
    said = op.attributes
    batch = math.prod(left.shape[d] for d in said.get("lhs_batching_dimensions", ()))
    depth = math.prod(left.shape[d] for d in said.get("lhs_contracting_dimensions", ()))
    groups = math.prod(right.shape[d] for d in said.get("rhs_group_dimensions", ()))
    shared = max(batch * depth, 1)
    return Product(
        batch=batch,
        rows=left.num_elements // shared,
        columns=right.num_elements // (shared * max(groups, 1)),
        depth=depth,
        passes=_passes(graph, op),
        dtype=left.dtype,
        vectors=max(left.num_elements, right.num_elements) if is_of_vector(graph, op) else 0,
        narrow=max(left.bits, right.bits) < WORD_BITS,
        turned=all(_is_turned(graph, op, side) for side in (0, 1)),
    )


def _is_turned(graph: Graph, op: Op, side: int) -> bool:
    """Whether what an operand shares with the other is not all inside of what it does not."""
    name, shape = ("lhs", "rhs")[side], graph.shape(op.operands[side])
    shared = [d for d in op.attributes.get(f"{name}_contracting_dimensions", ()) if shape[d] > 1]
    batch = op.attributes.get(f"{name}_batching_dimensions", ())
    own = [d for d, size in enumerate(shape) if size > 1 and d not in shared and d not in batch]
    return bool(shared and own) and max(own) > min(shared)


def _convolution(graph: Graph, op: Op) -> Product:
    """A convolution: the depth are the features that enter at all positions of its window."""
    left, right, made = (graph.values[value] for value in (*op.operands[:2], op.results[0]))
    said = op.attributes
    features = max(right.shape[int(said.get("kernel_output_feature_dimension", len(right.shape) - 1))], 1)
    groups = int(said.get("feature_group_count", 1)) * int(said.get("batch_group_count", 1))
    return Product(
        batch=groups,
        rows=max(made.num_elements // features, 1),
        columns=max(features // groups, 1),
        depth=max(right.num_elements // features, 1),
        windows=windows_of(graph, op),
        passes=_passes(graph, op),
        dtype=left.dtype,
    )


def _passes(graph: Graph, op: Op) -> int:
    if graph.values[op.operands[0]].dtype in COMPLEX:
        return COMPLEX_PASSES
    if is_default_precision(op) or graph.values[op.operands[0]].dtype != "f32":
        return 1
    words = str(op.attributes.get("precision_config") or op.attributes.get("precision")).upper()
    return PRECISE_PASSES if "HIGHEST" in words else HIGH_PASSES
