"""What the compiler does for lookups, scatters and what ranks: rows and indices that it copies, parts that it joins."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ...kernels import Kernel, Program
from ...lookups import GATHER, LOOK_UP, filled
from ...ranked import RANKS
from ..apart import Apart
from ..speed import Speed
from .joined import Joined
from .ranked import Ranked
from .rowwise import Rowwise, window_cycles
from .turned import WIDE_EDGE


class Looked(NamedTuple):
    """What copies take for a kernel's lookup, in ``cycles``, and the lookup itself where it is of large ``windows``;
    whether it is nothing but what a scatter fills (``is_filled``).
    """

    cycles: float = 0.0
    windows: float = 0.0
    is_filled: bool = False


class Lookups:
    """The lookups of a program, or of kernels ``apart`` from it, on a chip of this speed."""

    def __init__(
        self, program: Program, speed: Speed, step: Apart, kinds: Collection[str], *, apart: Apart | None
    ) -> None:
        graph, of = program.graph, speed.coefficients
        is_tiled, looks_up = speed.edge > 1, not LOOK_UP.isdisjoint(kinds)
        tables = None if apart is None else apart.tables
        self._graph, self._speed, self._is_tiled = graph, speed, is_tiled
        self._rowwise = Rowwise(graph, of, tables, step.edge) if looks_up or step.tables else None
        ranks = is_tiled and not RANKS.isdisjoint(kinds)
        self._ranked = Ranked(graph, of, step.given, step.left) if ranks else None
        self._joined = Joined(program, of) if is_tiled and looks_up else None
        inside = filled(graph, is_wide=speed.edge >= WIDE_EDGE) if is_tiled and looks_up else frozenset[int]()
        self._inside = inside.union(step.filled)

    def sent(self, kernel: Kernel) -> None:
        """Notes a collective, which lookups may read."""
        if self._rowwise:
            self._rowwise.extra_cycles(kernel)

    def of(self, kernel: Kernel) -> Looked:
        """What a kernel takes for its own, which comes last in it; kernels come in their order."""
        op = self._graph.ops[kernel.ops[-1]]
        cycles = self._rowwise.extra_cycles(kernel) if self._rowwise else 0.0
        is_filled = bool(self._inside and kernel.writes) and self._inside.issuperset(kernel.writes)
        cycles = 0.0 if is_filled else cycles
        cycles += self._joined.copies_cycles(op) if self._joined and op.kind in LOOK_UP else 0.0
        cycles += self._ranked.copies_cycles(op) if self._ranked and op.kind in RANKS else 0.0
        windows = 0.0
        if op.kind == GATHER and self._is_tiled:
            is_wide = self._speed.edge >= WIDE_EDGE
            windows = window_cycles(self._graph, op, self._speed.coefficients, is_wide=is_wide)
        return Looked(cycles, windows, is_filled)

    def is_last(self, kernel: Kernel) -> bool:
        """Whether a kernel ends with a lookup or with what ranks, of whose own work the compiler gives no cycles."""
        kind = self._graph.ops[kernel.ops[-1]].kind
        return kind in LOOK_UP or kind in RANKS
