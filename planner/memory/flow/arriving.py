"""Which kernels XLA's list scheduler has ready first: those that arguments alone let run, in the order of these.

Arguments stand in a program as its partitioner met them, in post-order from the results. They free and define nothing,
so they come before all kernels that make anything: that with most users first, of equals the last (``orders``). A
kernel is ready once its last argument has come.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...graph import Graph
from ...kernels import Kernel, Program


def arriving(program: Program) -> tuple[int, ...]:
    """The kernels that read arguments, by their positions, in the order in which the arguments let them run."""
    readers: dict[int, list[int]] = {value: [] for value in program.graph.arguments}
    for position, kernel in enumerate(program.kernels):
        for value in kernel.reads:
            if value in readers:
                readers[value].append(position)
    met = {value: place for place, value in enumerate(_met(program.graph))}
    used = [value for value, found in readers.items() if found and value in met]
    counts = {value: _users(program.kernels, readers[value]) for value in used}
    last: dict[int, int] = {}
    for value in sorted(used, key=lambda value: (-counts[value], -met[value])):
        for position in readers[value]:
            last.pop(position, None)
            last[position] = value
    return tuple(last)


def _users(kernels: Sequence[Kernel], readers: Sequence[int]) -> int:
    """What reads an argument: kernels, and barriers, each of which stands for all that read behind it."""
    return len({kernels[position].waits or (-1 - position,) for position in readers})


def _met(graph: Graph) -> list[int]:
    """The arguments in post-order from the results."""
    makers = {value: number for number, op in enumerate(graph.ops) for value in op.results}
    waiting, seen, found = list(reversed(graph.results)), set[int](), list[int]()
    arguments = set(graph.arguments)
    while waiting and arguments:
        value = waiting.pop()
        if value in arguments:
            arguments.remove(value)
            found.append(value)
        number = makers.get(value, -1)
        if number >= 0 and number not in seen:
            seen.add(number)
            waiting += reversed(graph.ops[number].operands)
    return found
