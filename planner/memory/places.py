"""Which results of a kernel may lie where an operand of it did."""

from __future__ import annotations

from collections.abc import Container, Mapping

from ..graph import Graph, Op
from ..kernels import Kernel
from ..kinds import ALL_REDUCE

ACCUMULATIONS = frozenset({"add", "multiply"})
ARITHMETIC = ACCUMULATIONS | {"subtract"}
IN_PLACE = frozenset({ALL_REDUCE, "dynamic_update_slice", "scatter", "while"})
MOVES = frozenset(
    {"dot_general", "convolution", "transpose", "reverse", "gather", "sort", "reduce", "reduce_window", "slice", "pad"}
)


def places(graph: Graph, kernel: Kernel, buffer: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """The pairs (new, old) that the TPU compiler lets share memory once the old is not needed any more.

    All-reduces, updates of slices, scatters and loops write into their operand; sums, differences and products into one
    of which they come number by number, sums and products also into one that they add or multiply directly. What ends
    in another operation (a selection, a conversion, an exponential) does not, nor do other collectives.
    """
    makers = {v: graph.ops[op] for op in kernel.ops for v in graph.ops[op].results}
    number_by_number = [(new, old) for new, old in overlays(graph, kernel, buffer) if makers[new].kind in ARITHMETIC]
    pairs = dict(number_by_number)
    for new in kernel.writes:
        if buffer.get(new) == new and new in makers and new not in pairs:
            old = _place(graph, kernel, makers[new], new, buffer)
            if old is not None and buffer[old] not in pairs.values():
                pairs[new] = buffer[old]
    return tuple(pairs.items())


def _place(graph: Graph, kernel: Kernel, maker: Op, new: int, buffer: Container[int]) -> int | None:
    values = graph.values
    for old in _candidates(maker, new):
        if old in buffer and old in kernel.reads and values[old].num_bytes == values[new].num_bytes:
            return old
    return None


def _candidates(maker: Op, value: int) -> tuple[int, ...]:
    if maker.kind in IN_PLACE:
        position = maker.results.index(value)
        return maker.operands[position : position + 1]
    return maker.operands if maker.kind in ACCUMULATIONS else ()


def overlays(graph: Graph, kernel: Kernel, buffer: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """The pairs (new, old) that XLA's schedulers let share memory: results that an operand becomes number by number."""
    sources = [v for v in kernel.reads if v in buffer]
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
        mask = 0
        for v in op.operands:
            mask |= reached.get(v, 0)
        for result in op.results:
            reached[result] = mask
        if op.kind in MOVES or _reshapes(graph, op, reached):
            spoilt |= mask
    return {v: mask & ~spoilt for v, mask in reached.items()}


def _reshapes(graph: Graph, op: Op, reached: Mapping[int, int]) -> bool:
    shapes = {graph.shape(v) for v in op.operands if reached.get(v)}
    return any(graph.shape(result) not in shapes for result in op.results) if shapes else False


def takes_over(graph: Graph, kernel: Kernel, old: int, new: int, buffer: Mapping[int, int]) -> bool:
    """Whether a kernel can write a result where the argument ``old`` lies, which it reads."""
    near = {v: v for v in kernel.reads if buffer.get(v) == old} | {new: new}
    return any(pair[0] == new for pair in (*places(graph, kernel, near), *overlays(graph, kernel, near)))
