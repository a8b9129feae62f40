"""Seconds of bringing a value from one layout into another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..estimate.traffic import Tariff
from ..graph import Op, Sharding, Value
from ..kinds import COLLECTIVE_PERMUTE, KINDS
from ..partition.layout import local_shape
from ..partition.reshard import Step, reshard_steps

Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshards:
    """What resharding takes on a network; ``steps`` and ``tables`` are those worked out before."""

    mesh: Mapping[str, int]
    tariff: Tariff
    steps: dict[tuple[Sharding, Sharding], tuple[Step, ...]] = field(default_factory=dict)
    tables: dict[object, Table] = field(default_factory=dict)

    def table(self, value: Value, sources: Sequence[Sharding], targets: Sequence[Sharding]) -> Table:
        """Seconds from each source to each target, (sources, targets)."""
        key = (value.shape, value.bits, tuple(sources), tuple(targets))
        if key not in self.tables:
            rows = [[self.seconds(value, source, target) for target in targets] for source in sources]
            self.tables[key] = np.array(rows, np.float64).reshape(len(sources), len(targets))
        return self.tables[key]

    def seconds(self, value: Value, source: Sharding, target: Sharding) -> float:
        """Seconds from one layout to another; nothing where they agree."""
        if source == target:
            return 0.0
        if (source, target) not in self.steps:
            self.steps[source, target] = reshard_steps(source, target, self.mesh)
        took, now = 0.0, source
        for step in self.steps[source, target]:
            took += self._step(value, now, step, source)
            now = step.layout
        return took

    def _step(self, value: Value, now: Sharding, step: Step, source: Sharding) -> float:
        if step.kind not in KINDS:
            return 0.0
        held = max(math.prod(local_shape(value.shape, layout, self.mesh)) for layout in (now, step.layout))
        attributes: dict[str, object] = {"axes": step.axes, "dimensions": step.dims}
        if step.kind == COLLECTIVE_PERMUTE:
            attributes |= {"source": source, "target": step.layout}
        op = Op(kind=step.kind, attributes=attributes)
        return self.tariff.price(op, step.kind, (held * value.bits + 7) // 8).total_s
