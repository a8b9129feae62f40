"""Barriers, as XLA's schedulers see them: instructions that take values and give them again.

They leave nothing in memory, but orders go through them: what reads one of their results waits for all that they took,
and counts the fan of it all once for each of these that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ...kernels import Kernel
from ..flow.flow import Flow

T = TypeVar("T")
Taken = tuple[int, ...]


@dataclass(slots=True)
class _Grown:
    """A flow's kernels with barriers between them, as they are put down; ``own`` are the kernels' numbers, -1 of these,
    ``given`` what a barrier gives of each value.
    """

    operands: list[tuple[int, ...]] = field(default_factory=list)
    made: list[tuple[int, ...]] = field(default_factory=list)
    own: list[int] = field(default_factory=list)
    given: dict[tuple[int, Taken], int] = field(default_factory=dict)


def with_barriers(flow: Flow, kernels: Sequence[Sequence[Kernel]]) -> tuple[Flow, list[int]]:
    """The flow with a kernel for each barrier before what first reads behind it, and which kernel each then was."""
    behind = [{value: taken for kernel in group for value, taken in kernel.behind} for group in kernels]
    if not any(behind):
        return flow, list(range(len(kernels)))
    results: dict[Taken, list[int]] = {}
    for pairs in behind:
        for value, taken in pairs.items():
            results.setdefault(taken, []).append(value)
    grown = _Grown()
    for number, pairs in enumerate(behind):
        for taken in dict.fromkeys(pairs.values()):
            if (results[taken][0], taken) not in grown.given:
                _put_barrier(grown, flow, taken, results[taken])
        grown.operands.append(_reading(grown, flow, number, pairs))
        grown.made.append(flow.made[number])
        grown.own.append(number)
    return _regrown(flow, grown), grown.own


def _put_barrier(grown: _Grown, flow: Flow, taken: Taken, values: Sequence[int]) -> None:
    for value in values:
        grown.given.setdefault((value, taken), -1 - len(grown.given))
    grown.operands.append(tuple(value for value in taken if value in flow.maker))
    grown.made.append(tuple(dict.fromkeys(grown.given[value, taken] for value in values)))
    grown.own.append(-1)


def _reading(grown: _Grown, flow: Flow, number: int, pairs: Mapping[int, Taken]) -> tuple[int, ...]:
    """What a kernel reads, behind barriers what they give, and what else it waits for."""
    through = {value for taken in pairs.values() for value in taken}
    known = flow.operands[number]
    read = [grown.given[v, pairs[v]] if v in pairs else v for v in flow.fused[number] if v in pairs or v in known]
    return tuple(dict.fromkeys((*read, *(v for v in known if v not in through))))


def _kept(of_kernels: Sequence[T], none: T, grown: _Grown) -> tuple[T, ...]:
    return tuple(none if own < 0 else of_kernels[own] for own in grown.own)


def _regrown(flow: Flow, grown: _Grown) -> Flow:
    at = {own: place for place, own in enumerate(grown.own) if own >= 0}

    return replace(
        flow,
        operands=tuple(grown.operands),
        made=tuple(grown.made),
        maker={value: place for place, made in enumerate(grown.made) for value in made},
        reads=_kept(flow.reads, (), grown),
        writes=_kept(flow.writes, (), grown),
        places=_kept(flow.places, (), grown),
        inside=_kept(flow.inside, 0, grown),
        scalar=_kept(flow.scalar, False, grown),
        after=_kept(flow.after, (), grown) if flow.after else (),
        arriving=tuple(at[kernel] for kernel in flow.arriving),
    )
