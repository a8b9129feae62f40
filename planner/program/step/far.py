"""What products read from the large memory, where what they read is fetched while others run.

Nothing is fetched of a stack of which a turn of a loop reads its part as it lies, nor where a step's result is read: it
is made in the large memory, as it has to lie there in the end (but for parts that are put in the place of others).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...compute.speed import Speed
from ...graph import Graph
from ...kernels import Kernel
from ...memory.flow.places import IN_PLACE
from ...topology import Machine
from .around import Around
from .turns import CUT

LARGE_BYTES = 32 << 20
"""How large an argument is of which parts may be read far: of a smaller one that takes little."""


class Far(NamedTuple):
    """What turns of a loop ``cut`` out of stacks, the results of a step that are ``kept`` where they are made, and its
    ``large`` arguments.
    """

    cut: frozenset[int] = frozenset()
    kept: frozenset[int] = frozenset()
    large: frozenset[int] = frozenset()


def far_of(graph: Graph, free: Iterable[Kernel]) -> Far:
    """Those of a step's graph, or of a loop's body; ``free`` are the kernels that only cut and put parts of stacks."""
    cutting = (kernel for kernel in free if any(graph.ops[number].kind == CUT for number in kernel.ops))
    cut = frozenset(value for kernel in cutting for value in kernel.writes)
    if not graph.names:
        return Far(cut)
    in_place = {value for op in graph.ops if op.kind in IN_PLACE for value in op.results}
    large = frozenset(value for value in graph.arguments if graph.values[value].num_bytes > LARGE_BYTES)
    return Far(cut, frozenset(graph.results) - in_place, large)


def far_reads(around: Around, machine: Machine, speed: Speed) -> frozenset[int]:
    """What products of a kernel read from the large memory of this machine where it is there as they read it.

    Chips that fill their fast memory by what is known of a whole step have no results there; those on which reading
    what is near takes something fetch no parts beside others.
    """
    if speed.is_gpu:
        return frozenset()
    kept = around.kept if machine.chip.buffer_vmem_bytes else frozenset[int]()
    return kept | around.cut if speed.coefficients.near_read_share else kept


def large_reads(around: Around, machine: Machine, speed: Speed) -> frozenset[int]:
    """Arguments of which products of a kernel read parts from the large memory, of a device that holds more of one than
    its fast memory has room for.
    """
    return frozenset() if speed.is_gpu or not machine.chip.buffer_vmem_bytes else around.large
