"""Gathers that v5e makes beside products: begun early (``hidden``), awaited where the whole is first read.

The compiler fuses the steps of such a gather into the products that stand between (async collective fusion), of one
gather at a time. The whole has memory from the begin, what is sent until the end; and each such product is one of
several results of its kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ...chip import Chip
from ...kernels import Program
from ...kinds import ALL_GATHER, ALL_REDUCE
from ..flow.flow import Flow
from ..flow.places import Pairs
from .deferred import PRODUCTS

Span = tuple[int, int]


class _Gather(NamedTuple):
    """A gather by its kernel, and the first that reads the whole."""

    kernel: int
    read: int


def gathers_beside(chip: Chip | None) -> bool:
    """Whether a chip makes gathers beside products."""
    return chip is not None and chip.gathers_beside_products


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
    return [_Gather(k, read.get(k, end)) for k in found]


def _is_product(program: Program, kernel: int) -> bool:
    return any(program.graph.ops[op].kind in PRODUCTS for op in program.kernels[kernel].ops)
