"""The work of kernels and its cycles, counted once for all that are alike (``Forms``)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ..forms import MOST, Forms
from ..graph import Graph
from ..kernels import Kernel
from .coefficients import Coefficients
from .cycles import Cycles, cycles_of
from .work import Work, work_of

WORK = "work"


class Counted:
    """Counts as ``work_of`` does, by the ``forms`` of kernels."""

    def __init__(self) -> None:
        self.forms = Forms()
        self._cycles: dict[Hashable, tuple[Work, Coefficients, Cycles]] = {}

    def __call__(self, graph: Graph, kernel: Kernel) -> Work:
        """The work of a kernel of this graph."""
        form = kernel.form
        if form is None:
            form = self.forms.of(graph, kernel.ops, kernel.reads, kernel.writes)
        found: Work | None = form.get(WORK)
        if found is None:
            found = form[WORK] = work_of(graph, kernel)
        return found

    def cycles(
        self, work: Work, near: Sequence[bool], near_writes: Sequence[bool], edge: int, of: Coefficients
    ) -> Cycles:
        """What ``cycles_of`` says of work that was counted here, known by its ``id`` as long as it is kept."""
        key = id(work), *near, *near_writes, edge, id(of)
        found = self._cycles.get(key)
        if found is None:
            if len(self._cycles) >= MOST:
                self._cycles.clear()
            found = self._cycles[key] = work, of, cycles_of(work, near, near_writes, edge, of)
        return found[2]
