"""Gathers that v5e makes beside products: begun once what they send is there, awaited where the whole is first read.

The compiler fuses the steps of such a gather into the products that stand between (async collective fusion), of one
gather at a time. The latency-hiding scheduler goes through the program from its end: a gather that is awaited begins
before the first product after what makes its operand, unless another one waits for its turn; then it lasts for one
product. The whole has memory from the begin, what is sent until the end; and each such product is one of several
results of its kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ..chip import Chip
from ..kernels import Program
from ..kinds import ALL_GATHER, ALL_REDUCE
from .deferred import PRODUCTS
from .flow import Flow
from .places import Pairs

Span = tuple[int, int]


class _Gather(NamedTuple):
    """A gather by its kernel: the kernel that makes what it sends, -1 if none, and the first that reads the whole."""

    kernel: int
    made: int
    read: int


def gathers_beside(chip: Chip | None) -> bool:
    """Whether a chip makes gathers beside products."""
    return chip is not None and chip.gathers_beside_products


def begun_early(program: Program, flow: Flow) -> list[int]:
    """The order in which each gather stands where it begins; those with no product to run beside stay."""
    begins = _begins(_gathers(program, flow), [_is_product(program, k) for k in range(len(program.kernels))])
    at: dict[int, list[int]] = {}
    for kernel, begin in begins.items():
        at.setdefault(begin, []).append(kernel)
    order = list[int]()
    for kernel in range(len(program.kernels)):
        order += at.get(kernel, [])
        if kernel not in begins:
            order.append(kernel)
    return order


def _begins(gathers: Sequence[_Gather], is_product: Sequence[bool]) -> dict[int, int]:
    """Before which kernel each gather begins that runs beside products."""
    read: dict[int, list[_Gather]] = {}
    for each in gathers:
        read.setdefault(each.read, []).append(each)
    begins: dict[int, int] = {}
    waiting, current = list[_Gather](), None
    for kernel in range(len(is_product) - 1, -1, -1):
        if current is not None and current.made == kernel:
            current = None
        waiting = [each for each in waiting if each.made != kernel]
        if current is not None and is_product[kernel]:
            begins[current.kernel] = kernel
        waiting += read.get(kernel, [])
        if waiting and (current is None or current.kernel in begins):
            current = max(waiting, key=lambda each: (each.made, each.kernel))
            waiting.remove(current)
    return begins


def under_way(program: Program, flow: Flow) -> list[tuple[int, Span]]:
    """The gathers, by their kernels, that products stand beside, from when to when each is under way."""
    spans = ((each.kernel, (each.kernel, each.read - 1)) for each in _gathers(program, flow))
    return [(k, span) for k, span in spans if any(_is_product(program, n) for n in range(k + 1, span[1] + 1))]


def awaited(lives: dict[int, Span], flow: Flow, gathers: Sequence[tuple[int, Span]]) -> dict[int, Span]:
    """The lives of buffers in which what is sent lives as long as its gather is under way."""
    longer = dict(lives)
    for kernel, (_, last) in gathers:
        longer |= {b: (longer[b][0], max(longer[b][1], last)) for b in flow.reads[kernel] if b in longer}
    return longer


def with_tuples(program: Program, flow: Flow, gathers: Sequence[tuple[int, Span]]) -> Flow:
    """The flow in which no sum over devices lies where a product did that a gather ran beside."""
    beside = {k for _, (first, last) in gathers for k in range(first + 1, last + 1) if _is_product(program, k)}
    results = {value for kernel in beside for value in flow.made[kernel]}

    def kept(kernel: int, pairs: Pairs) -> Pairs:
        is_sum = program.graph.ops[program.kernels[kernel].ops[-1]].kind == ALL_REDUCE
        return tuple(pair for pair in pairs if not is_sum or pair[1] not in results)

    return replace(flow, places=tuple(kept(kernel, pairs) for kernel, pairs in enumerate(flow.places)))


def _gathers(program: Program, flow: Flow) -> list[_Gather]:
    graph, end = program.graph, len(program.kernels)
    found = [k for k, each in enumerate(program.kernels) if [graph.ops[n].kind for n in each.ops] == [ALL_GATHER]]
    read: dict[int, int] = {}
    for kernel, values in enumerate(flow.operands if found else ()):
        for value in values:
            read.setdefault(flow.maker[value], kernel)
    made = {k: max((flow.maker[value] for value in flow.operands[k]), default=-1) for k in found}
    return [_Gather(k, made[k], read.get(k, end)) for k in found]


def _is_product(program: Program, kernel: int) -> bool:
    return any(program.graph.ops[op].kind in PRODUCTS for op in program.kernels[kernel].ops)
