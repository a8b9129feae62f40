"""Which results of a kernel may lie where an operand of it did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...fusion.nature import ELEMENTWISE
from ...graph import Graph, Value
from ...kernels import Kernel
from ...kinds import ALL_REDUCE

SCATTER = "scatter"
IN_PLACE = frozenset({"dynamic_update_slice", SCATTER, "while"})
IN_STEP = "in step"
NUMBER_BY_NUMBER = ELEMENTWISE | {ALL_REDUCE}

Pairs = tuple[tuple[int, int], ...]


def places(
    graph: Graph, kernels: Sequence[Kernel], buffer: Mapping[int, int], *, offloads: bool = False
) -> tuple[Pairs, ...]:
    """Of each kernel the pairs (new, old) that the TPU compiler lets share memory once the old is not needed any more.

    Updates of slices, scatters and loops write into their operand. What comes from an operand number by number, the sum
    over devices of it too, may lie where that did (``HloDataflowAnalysis::CanShareOperandBufferWithUser``), and may
    have several to choose from. It does not where either is a buffer that is written into (``HeapSimulator`` shares
    none of several values), nor where the operand is read under another shape or is one of several results of a kernel,
    which its readers take out of a tuple, nor where a chip ``offloads`` the sum.
    """
    updating = {number for number, op in enumerate(graph.ops) if op.kind in IN_PLACE}
    tied = [() if updating.isdisjoint(k.ops) else tuple(written_into(graph, k, buffer)) for k in kernels]
    written = {held for pairs in tied for pair in pairs for held in pair} | _scattered(graph, kernels)
    several = {v for kernel in kernels if len(kernel.writes) > 1 for v in kernel.writes}
    near = {v: v for v, held in buffer.items() if v == held and v not in written}
    apart = {kernel.writes[0] for kernel in kernels if offloads and graph.ops[kernel.ops[-1]].kind == ALL_REDUCE}
    shared = (number_by_number(graph, kernel, near) for kernel in kernels)
    return tuple(
        [
            (*into, *[pair for pair in pairs if pair[1] not in several and pair[0] not in apart])
            for into, pairs in zip(tied, shared, strict=True)
        ]
    )


def _scattered(graph: Graph, kernels: Sequence[Kernel]) -> set[int]:
    """What kernels scatter into what they fill: that it is filled before makes it a buffer that is written into."""
    results = {value for op in graph.of_kind(SCATTER) for value in op.results}
    return {value for kernel in kernels for value in kernel.writes if value in results} if results else results


def written_into(graph: Graph, kernel: Kernel, buffer: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """The pairs (new, old) of which the new is the old with parts of it changed."""
    for number in kernel.ops:
        op = graph.ops[number]
        if op.kind in IN_PLACE:
            for new, old in zip(op.results, op.operands, strict=False):
                fits = graph.values[old].num_bytes == graph.values[new].num_bytes
                if new in kernel.writes and buffer.get(new) == new and old in buffer and old in kernel.reads and fits:
                    yield new, buffer[old]


def number_by_number(graph: Graph, kernel: Kernel, buffer: Mapping[int, int]) -> Pairs:
    """The pairs (new, old) of results and what becomes them number by number, of the same shape and dtype."""
    made = [v for v in kernel.writes if buffer.get(v) == v]
    read = [v for v in kernel.reads if v in buffer] if made else ()
    if not read:
        return ()
    form = kernel.form
    if form is None:
        return tuple([(made[new], buffer[read[old]]) for new, old in _in_step(graph, kernel, made, read)])
    key = IN_STEP, *map(kernel.writes.index, made), -1, *map(kernel.reads.index, read)
    pairs = form.get(key)
    if pairs is None:
        pairs = form[key] = tuple(_in_step(graph, kernel, made, read))
    return tuple([(made[new], buffer[read[old]]) for new, old in pairs])


def _in_step(graph: Graph, kernel: Kernel, made: Sequence[int], read: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The same by the places of results among those ``made``, and of what becomes them among those ``read``."""
    values = graph.values
    wanted = {(values[v].shape, values[v].dtype) for v in made}
    sources = [v for v in read if (values[v].shape, values[v].dtype) in wanted]
    reached = _reached(graph, kernel, sources) if sources else {}
    for new, value in enumerate(made) if sources else ():
        for position, old in enumerate(sources):
            if reached.get(value, 0) >> position & 1 and _are_alike(values[value], values[old]):
                yield new, read.index(old)


def _are_alike(one: Value, other: Value) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def _reached(graph: Graph, kernel: Kernel, sources: Sequence[int]) -> dict[int, int]:
    """Of each value, a bit for each source that becomes it, on every way number by number."""
    reached = {v: 1 << position for position, v in enumerate(sources)}
    moved = dict.fromkeys(sources, 0)
    ops, values = graph.ops, graph.values
    for number in kernel.ops:
        op = ops[number]
        near = [v for v in op.operands if v in reached]
        if not near:
            continue
        shape = values[op.results[0]].shape if op.kind in NUMBER_BY_NUMBER else None
        all_of, some_of = 0, 0
        for v in near:
            all_of |= reached[v]
            some_of |= moved[v] if values[v].shape == shape else reached[v]
        for result in op.results:
            reached[result], moved[result] = all_of, some_of
    return {v: mask & ~moved[v] for v, mask in reached.items()}


def takes_over(graph: Graph, kernel: Kernel, old: int, new: int, buffer: Mapping[int, int]) -> bool:
    """Whether a kernel can write a result where the argument ``old`` lies, which it reads."""
    near = {v: v for v in kernel.reads if buffer.get(v) == old} | {new: new}
    return any(pair[0] == new for pair in (*written_into(graph, kernel, near), *number_by_number(graph, kernel, near)))
