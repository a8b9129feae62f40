"""What a device holds of the layers that a shorter step leaves out: as much as of those which stand for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..kernels import Program, repeats_of, repeats_of_arguments
from ..memory import Memory


def left_out_bytes(held: Memory) -> int:
    """Bytes that the peak is higher by, about, where kernels stand for others; 0 where none does.

    Arguments and results count as often as what first reads them, or makes them; what such a kernel makes for
    another, with kernels between that stand for themselves, once for each all that time: a layer's saved activations,
    its gradients. What else a layer needs is there for one after the other.
    """
    program = held.program
    often = [repeats_of(program.graph, kernel) for kernel in program.kernels]
    if max(often, default=1) == 1:
        return 0
    more = [0] * len(often)
    always = sum(_at_edges(program, often))
    for value, first, last in _handed_on(program, often):
        for position in range(first, last + 1):
            more[position] += (often[first] - 1) * program.graph.values[value].num_bytes
    now = [0] * len(often)
    for point in held.points:
        now[point.path[0]] = max(now[point.path[0]], point.num_bytes)
    return always + max(a + b for a, b in zip(now, more, strict=True)) - max(now)


def _at_edges(program: Program, often: Sequence[int]) -> Iterable[int]:
    graph = program.graph
    made = {value: times for kernel, times in zip(program.kernels, often, strict=True) for value in kernel.writes}
    for value, times in repeats_of_arguments(graph).items():
        yield (times - 1) * graph.values[value].num_bytes
    for position, value in enumerate(graph.results):
        if position not in graph.aliases:
            yield (made.get(value, 1) - 1) * graph.values[value].num_bytes


def _handed_on(program: Program, often: Sequence[int]) -> Iterable[tuple[int, int, int]]:
    """What is kept from one kernel that stands for others to another, past those that do not: value, first, last."""
    maker: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, kernel in enumerate(program.kernels):
        for value in kernel.reads:
            if value in maker and often[position] == often[maker[value]] > 1:
                last[value] = position
        maker.update(dict.fromkeys(kernel.writes, position))
    alone = [0]
    for times in often:
        alone.append(alone[-1] + (times == 1))
    for value, end in last.items():
        if alone[end] > alone[maker[value] + 1]:
            yield value, maker[value], end
