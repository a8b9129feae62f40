"""Seconds of bringing a value from one layout into another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..compute.price import turn_seconds
from ..compute.speed import Speed
from ..estimate.traffic import Tariff
from ..graph import Op, Sharding, Value
from ..kinds import ALL_TO_ALL, COLLECTIVE_PERMUTE, KINDS
from ..partition.layout import local_shape
from ..partition.passes.turned import is_copied
from ..partition.reshard import Step, reshard_steps

Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshards:
    """What resharding takes on a network, and on chips of this speed the copies around it; ``steps``, ``tables``
    and ``copies`` are those worked out before.
    """

    mesh: Mapping[str, int]
    tariff: Tariff
    speed: Speed
    steps: dict[tuple[Sharding, Sharding], tuple[Step, ...]] = field(default_factory=dict)
    tables: dict[object, Table] = field(default_factory=dict)
    copies: dict[Value, float] = field(default_factory=dict)

    def table(
        self, value: Value, sources: Sequence[Sharding], targets: Sequence[Sharding], *, in_order: bool = True
    ) -> Table:
        """Seconds from each source to each target, (sources, targets). ``in_order`` says that what reads the value
        takes no pieces of it as they come.
        """
        key = (value.shape, value.bits, tuple(sources), tuple(targets), in_order)
        if key not in self.tables:
            rows = [[self.seconds(value, s, target, in_order=in_order) for target in targets] for s in sources]
            self.tables[key] = np.array(rows, np.float64).reshape(len(sources), len(targets))
        return self.tables[key]

    def seconds(self, value: Value, source: Sharding, target: Sharding, *, in_order: bool = True) -> float:
        """Seconds from one layout to another; nothing where they agree."""
        if source == target:
            return 0.0
        if (source, target) not in self.steps:
            self.steps[source, target] = reshard_steps(source, target, self.mesh)
        took, now = 0.0, source
        for step in self.steps[source, target]:
            took += self._step(value, now, step, source)
            if step.kind == ALL_TO_ALL:
                took += self._turns(value, now, step, in_order=in_order or step.layout != target)
            now = step.layout
        return took

    def _turns(self, value: Value, now: Sharding, step: Step, *, in_order: bool) -> float:
        """The copies before and after an exchange."""
        joined, split = step.dims
        before, after = (local_shape(value.shape, layout, self.mesh) for layout in (now, step.layout))
        copied = is_copied(before, split) + (in_order and is_copied(after, joined))
        if not copied:
            return 0.0
        part = Value(before, value.dtype)
        if part not in self.copies:
            self.copies[part] = turn_seconds(part, self.speed)
        return copied * self.copies[part]

    def _step(self, value: Value, now: Sharding, step: Step, source: Sharding) -> float:
        if step.kind not in KINDS:
            return 0.0
        held = max(math.prod(local_shape(value.shape, layout, self.mesh)) for layout in (now, step.layout))
        attributes: dict[str, object] = {"axes": step.axes, "dimensions": step.dims}
        if step.kind == COLLECTIVE_PERMUTE:
            attributes |= {"source": source, "target": step.layout}
        op = Op(kind=step.kind, attributes=attributes)
        return self.tariff.price(op, step.kind, (held * value.bits + 7) // 8).total_s
