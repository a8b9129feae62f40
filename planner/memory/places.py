"""Which results of a kernel may lie where an operand of it did."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from ..graph import Graph, Op
from ..kernels import Kernel
from ..kinds import ALL_REDUCE

ACCUMULATIONS = frozenset({"add", "multiply"})
ARITHMETIC = ACCUMULATIONS | {"subtract"}
IN_PLACE = frozenset({ALL_REDUCE, "dynamic_update_slice", "scatter", "while"})
MOVES = frozenset(
    {"dot_general", "convolution", "transpose", "reverse", "gather", "sort", "reduce", "reduce_window", "slice", "pad"}
)


Pairs = tuple[tuple[int, int], ...]


def places(graph: Graph, kernel: Kernel, buffer: Mapping[int, int], overlaid: Pairs) -> Pairs:
    """The pairs (new, old) that the TPU compiler lets share memory once the old is not needed any more.

    All-reduces, updates of slices, scatters and loops write into their operand; sums, differences and products into one
    of which they come number by number, sums and products also into one that they add or multiply directly. What ends
    in another operation (a selection, a conversion, an exponential) does not, nor do other collectives. A new one may
    have several old ones to choose from. ``overlaid`` are the kernel's ``overlays``.
    """
    written = set(kernel.writes)
    makers = {v: op for op in (graph.ops[number] for number in kernel.ops) for v in op.results if v in written}
    first = {new: old for new, old in overlaid if makers[new].kind in ARITHMETIC}
    taken = set(first.values())
    pairs = list(first.items())
    for new in kernel.writes:
        if buffer.get(new) == new and new in makers:
            near = _places(graph, kernel, makers[new], new, buffer)
            pairs += [(new, held) for held in dict.fromkeys(buffer[old] for old in near) if held not in taken]
    return tuple(pairs)


def _places(graph: Graph, kernel: Kernel, maker: Op, new: int, buffer: Container[int]) -> Iterator[int]:
    values = graph.values
    for old in _candidates(maker, new):
        if old in buffer and old in kernel.reads and values[old].num_bytes == values[new].num_bytes:
            yield old


def _candidates(maker: Op, value: int) -> tuple[int, ...]:
    if maker.kind in IN_PLACE:
        position = maker.results.index(value)
        return maker.operands[position : position + 1]
    return maker.operands if maker.kind in ACCUMULATIONS else ()


def overlays(graph: Graph, kernel: Kernel, buffer: Mapping[int, int]) -> Pairs:
    """The pairs (new, old) that XLA's schedulers let share memory: results that an operand becomes number by number."""
    sizes = {graph.values[v].num_bytes for v in kernel.writes}
    sources = [v for v in kernel.reads if v in buffer and graph.values[v].num_bytes in sizes]
    reached = _reached(graph, kernel, sources) if sources else {}
    pairs, taken = [], set[int]()
    for new in kernel.writes:
        for position, old in enumerate(sources):
            fits = graph.values[old].num_bytes == graph.values[new].num_bytes
            if reached.get(new, 0) >> position & 1 and fits and buffer[old] not in taken and buffer.get(new) == new:
                taken.add(buffer[old])
                pairs.append((new, buffer[old]))
                break
    return tuple(pairs)


def _reached(graph: Graph, kernel: Kernel, sources: list[int]) -> dict[int, int]:
    """Of each value, a bit for each source that becomes it elementwise, and is used in no other way."""
    reached = {v: 1 << position for position, v in enumerate(sources)}
    spoilt = 0
    for op in (graph.ops[number] for number in kernel.ops):
        near = [v for v in op.operands if v in reached]
        if not near:
            continue
        mask = 0
        for v in near:
            mask |= reached[v]
        shape = graph.values[op.results[0]].shape
        if op.kind in MOVES or all(graph.values[v].shape != shape for v in near):
            spoilt |= mask
        for result in op.results:
            reached[result] = mask
    return {v: mask & ~spoilt for v, mask in reached.items()}


def takes_over(graph: Graph, kernel: Kernel, old: int, new: int, buffer: Mapping[int, int]) -> bool:
    """Whether a kernel can write a result where the argument ``old`` lies, which it reads."""
    near = {v: v for v in kernel.reads if buffer.get(v) == old} | {new: new}
    overlaid = overlays(graph, kernel, near)
    return any(pair[0] == new for pair in (*places(graph, kernel, near, overlaid), *overlaid))
