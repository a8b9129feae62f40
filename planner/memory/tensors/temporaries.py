"""What temporaries take in memory."""

from __future__ import annotations

from collections.abc import Iterator

from ...chip import Chip
from ...fusion.beside import beside
from ...graph import Graph, Op
from ...kernels import Program
from .convolved import convolved_bytes, smallest_batch
from .looked_up import looked_up_shapes, row_bytes
from .tiles import Sizes, batched_bytes, on_tpu, padded_bytes, stored_bytes

Batches = dict[int, frozenset[int]]


def temporary_bytes(program: Program, chip: Chip | None = None) -> Sizes:
    """The bytes of a program's temporaries, as the operations want them that read and make them.

    A batch of products wants its batch outside: what it reads and makes has other dims on the lanes and on the rows.
    On CPUs and GPUs nothing wants anything.
    """
    if not on_tpu(chip):
        unpadded = stored_bytes(is_tpu=False)
        return lambda graph, number: unpadded(graph.values[number])
    tables, images = looked_up_shapes(program.graph), convolved_bytes(program, smallest_batch(chip))
    known: dict[int, tuple[Graph, Batches]] = {}

    def num_bytes(graph: Graph, number: int) -> int:
        value = graph.values[number]
        if value.shape in tables:
            return row_bytes(value)
        usual = images(graph, number)
        if id(graph) not in known:
            known[id(graph)] = graph, batches(graph)
        batch = known[id(graph)][1].get(number)
        return batched_bytes(value, batch) if batch and usual == padded_bytes(value) else usual

    return num_bytes


def batches(graph: Graph) -> Batches:
    """The dims over which values are batches in all products that read or make them.

    What operations compute number by number of such values, or they of it, lies as they do.
    """
    found: Batches = {}
    for op in graph.of_kind("dot_general"):
        if op.attributes.get("lhs_batching_dimensions"):
            for number, batch in _batched(graph, op):
                found[number] = found.get(number, batch) & batch
    return _followed(graph, found) if found else found


def _batched(graph: Graph, product: Op) -> Iterator[tuple[int, frozenset[int]]]:
    said = product.attributes
    for side, number in zip(("lhs", "rhs"), product.operands, strict=False):
        yield number, frozenset(said.get(f"{side}_batching_dimensions", ()))
    yield product.results[0], frozenset(range(len(said["lhs_batching_dimensions"])))


def _followed(graph: Graph, found: Batches) -> Batches:
    """The same with all that operations number by number connect with these, what is nearest first."""
    near = beside(graph, found)
    followed = dict(found)
    waiting = list(found)
    for number in waiting:
        for other in near.get(number, ()):
            if other not in followed:
                followed[other] = followed[number]
                waiting.append(other)
    return followed
