"""What is one number everywhere and scattered into, as XLA's schedulers see it: a buffer from where it is filled on.

The scatter's result lies in its place, so that orders let rows be scattered early which would else wait. What fills it
is moved to the scatter afterwards: no memory is taken before (seen on v3 and v4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from ...kernels import Program
from ..flow.flow import Flow
from ..flow.places import written_into
from ..tensors.looked_up import scatters_begin_with


def with_filled(program: Program, flow: Flow) -> Flow:
    """The flow in which what rows are scattered into is a buffer, as large as the scatter's result."""
    filled = scatters_begin_with(program.graph).intersection(flow.maker)
    if not filled:
        return flow
    pairs = [
        tuple(pair for pair in written_into(program.graph, kernel, flow.buffer) if pair[1] in filled)
        if filled.intersection(kernel.reads)
        else ()
        for kernel in program.kernels
    ]
    sizes = {old: flow.num_bytes.get(new, 0) for new, old in chain.from_iterable(pairs)}
    return replace(
        flow,
        num_bytes={**flow.num_bytes, **sizes},
        reads=_more(flow.reads, [sizes.keys() & kernel.reads for kernel in program.kernels]),
        writes=_more(flow.writes, [sizes.keys() & kernel.writes for kernel in program.kernels]),
        places=tuple([(*own, *more) for own, more in zip(flow.places, pairs, strict=True)]),
    )


def _more(of_kernels: Sequence[tuple[int, ...]], more: Sequence[set[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple([(*own, *sorted(each)) if each else own for own, each in zip(of_kernels, more, strict=True)])
