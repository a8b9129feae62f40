"""What temporaries take in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..chip import Chip
from ..graph import Graph, Op, Value
from ..kernels import Program
from .convolved import convolved_bytes, smallest_batch
from .looked_up import looked_up_shapes, row_bytes
from .tiles import batched_bytes, memoised, padded_bytes

Shape = tuple[int, ...]


def temporary_bytes(program: Program, chip: Chip | None = None) -> Callable[[Value], int]:
    """The bytes of a program's temporaries, as the operations want them that read and make them.

    A batch of products wants its batch outside: what it reads and makes has other dims on the lanes and on the rows.
    """
    tables, images = looked_up_shapes(program.graph), convolved_bytes(program, smallest_batch(chip))
    batches = _batches(program.graph)

    def num_bytes(value: Value) -> int:
        if value.shape in tables:
            return row_bytes(value)
        usual = images(value)
        batch = batches.get(value.shape)
        return batched_bytes(value, batch) if batch and usual == padded_bytes(value) else usual

    return memoised(num_bytes)


def _batches(graph: Graph) -> dict[Shape, frozenset[int]]:
    """The dims over which tensors of a shape are batches in all products that read or make them."""
    found: dict[Shape, frozenset[int]] = {}
    for inner, op, _ in graph.walk():
        if op.kind == "dot_general" and op.attributes.get("lhs_batching_dimensions"):
            for shape, batch in _batched(inner, op):
                found[shape] = found.get(shape, batch) & batch
    return found


def _batched(graph: Graph, product: Op) -> Iterator[tuple[Shape, frozenset[int]]]:
    said = product.attributes
    for side, value in zip(("lhs", "rhs"), product.operands, strict=False):
        yield graph.shape(value), frozenset(said.get(f"{side}_batching_dimensions", ()))
    yield graph.shape(product.results[0]), frozenset(range(len(said["lhs_batching_dimensions"])))
