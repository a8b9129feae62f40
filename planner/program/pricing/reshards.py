"""Seconds of bringing a value from one layout into another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compute.images.convolved import lies_across
from ...compute.single_ops import convert_seconds, copy_seconds, gather_seconds, rows_seconds, turn_seconds
from ...compute.speed import Speed
from ...estimate.traffic import Tariff
from ...graph import Axes, Op, Sharding, Value
from ...images import Image
from ...kinds import ALL_GATHER, ALL_REDUCE, COLLECTIVE_PERMUTE, KINDS, REDUCE_SCATTER
from ...partition.layout import extends, local_shape
from ...partition.passes.turned import COPIED, arrives_in_rows, pieces, tells_groups_apart, turns
from ...partition.reshard import SLICE, Step, reshard_steps
from ...partition.target import Target
from .costs import Sum

Table = NDArray[np.float64]
SMALL = 8
"""How many such values the memory near has room for, where one is gathered into it as a step ends."""


class Way(NamedTuple):
    """How a value lies at the ``start``, and the steps from there."""

    start: Sharding
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshards:
    """What resharding takes on a network, and on chips of this speed the copies around it. ``images`` are known by
    their shape; ``steps``, ``tables``, what each step of a value ``took``, ``copies`` of it, ``moved`` as it
    is, in rows and in other dtypes, what is ``sent`` and the ``parts`` that devices hold are those worked out before.
    """

    mesh: Mapping[str, int]
    tariff: Tariff
    speed: Speed
    target: Target
    images: Mapping[tuple[int, ...], Image] = field(default_factory=dict)
    steps: dict[tuple[Sharding, Sharding], Way] = field(default_factory=dict)
    tables: dict[object, Table] = field(default_factory=dict)
    took: dict[tuple[object, ...], float] = field(default_factory=dict)
    copies: dict[tuple[Value, tuple[int, ...]], float] = field(default_factory=dict)
    moved: dict[Value, float] = field(default_factory=dict)
    rows: dict[tuple[Value, tuple[int, ...]], float] = field(default_factory=dict)
    converted: dict[tuple[Value, str], float] = field(default_factory=dict)
    sent: dict[tuple[object, ...], float] = field(default_factory=dict)
    parts: dict[tuple[tuple[int, ...], Sharding], tuple[int, ...]] = field(default_factory=dict)

    def table(
        self,
        value: Value,
        sources: Sequence[Sharding],
        targets: Sequence[Sharding],
        *,
        in_order: bool = True,
        result: int = 0,
    ) -> Table:
        """Seconds from each source to each target, (sources, targets). ``in_order`` says that what reads the value
        takes no pieces of it as they come, ``result`` that nothing does, and how many copies that takes where it is
        gathered: it is a result of the step, and the argument in whose place it is written may be copied too.
        """
        ours, theirs = ({layout: i for i, layout in enumerate(dict.fromkeys(each))} for each in (sources, targets))
        key = (value.shape, value.bits, tuple(ours), tuple(theirs), in_order, result)
        if key not in self.tables:
            rows = [[self.seconds(value, s, t, in_order=in_order, result=result) for t in theirs] for s in ours]
            self.tables[key] = np.array(rows, np.float64).reshape(len(ours), len(theirs))
        return self.tables[key][np.ix_([ours[s] for s in sources], [theirs[t] for t in targets])]

    def seconds(
        self, value: Value, source: Sharding, target: Sharding, *, in_order: bool = True, result: int = 0
    ) -> float:
        """Seconds from one layout to another; nothing where they agree."""
        if source == target:
            return 0.0
        return self._took_on(value, self._way(source, target), in_order=in_order, result=result)

    def _took_on(self, value: Value, way: Way, *, in_order: bool, result: int) -> float:
        """The same on one way."""
        took, (now, steps) = 0.0, way
        for step in steps:
            last = step is steps[-1]
            copies = result if last else 0
            key = (value.shape, value.dtype, now, step, in_order or not last, copies)
            found = self.took.get(key)
            if found is None:
                found = self._took(value, now, step, in_order=in_order or not last, result=copies)
                self.took[key] = found
            took += found
            now = step.layout
        return took

    def _took(self, value: Value, now: Sharding, step: Step, *, in_order: bool, result: int) -> float:
        """One step, with the copies around it."""
        copied = step.kind in COPIED
        copies_s = self._copies(value, now, step, in_order=in_order, result=result) if copied else 0.0
        return self._step(value, now, step) + copies_s

    def _way(self, source: Sharding, target: Sharding) -> Way:
        found = self.steps.get((source, target))
        if found is None:
            found = self.steps[source, target] = self._found(source, target)
        return found

    def _found(self, source: Sharding, target: Sharding) -> Way:
        return Way(source, reshard_steps(source, target, self.mesh))

    def _copies(self, value: Value, now: Sharding, step: Step, *, in_order: bool, result: int) -> float:
        """The copies before and after an exchange."""
        before, after = self._part(value, now), self._part(value, step.layout)
        image = self.images.get(value.shape)
        first, last = turns(step.kind, step.dims, before, after, in_order=in_order, image=image)
        cut, joined = pieces(step.kind, step.dims, before, after)
        took = first * self._copy(before, value, cut) if first else 0.0
        if image and step.kind == ALL_GATHER and image.features in step.dims:
            took += gather_seconds(Value(before, value.dtype), Value(after, value.dtype), image, self.speed)
        in_place = joined if last else ()
        if arrives_in_rows(step.kind, step.dims, before, after):
            took += self._rows(Value(after, value.dtype), in_place)
        is_apart = tells_groups_apart(step.kind, step.dims, before, image)
        took += self._moved(after, value) if is_apart else 0.0
        if result and step.kind == ALL_GATHER:
            took += (result - bool(last or is_apart)) * self._moved(after, value)
        elif result:
            last = max(last, 1)
        return took + last * self._copy(after, value, joined) if last else took

    def spared(self, sums: Sequence[Sum | None], sources: Sequence[Sharding], targets: Sequence[Sharding]) -> Table:
        """Seconds that sums take less where they are scattered, (sources, targets): where the first that is done to
        one on its way is to cut one dim of which a ring leaves parts along all axes that are added up
        (``partition/passes/scatters``).
        """
        found, theirs = (
            np.zeros((len(sources), len(targets))),
            {layout: i for i, layout in enumerate(dict.fromkeys(targets))},
        )
        columns = [theirs[target] for target in targets]
        known: dict[tuple[Sum, Sharding], Table] = {}
        for i, (each, source) in enumerate(zip(sums, sources, strict=True)):
            if each is None:
                continue
            if (each, source) not in known:
                known[each, source] = np.array([self._spared(each, source, target) for target in theirs])[columns]
            found[i] = known[each, source]
        return found

    def _spared(self, each: Sum, source: Sharding, target: Sharding) -> float:
        first = next(iter(self._way(source, target).steps), None)
        if first is None or first.kind != SLICE or len(first.dims) != 1:
            return 0.0
        (dim,) = first.dims
        further = first.layout[dim][len(source[dim]) :]
        if dim not in each.dims or not self._is_summed(further, each.axes):
            return 0.0
        if not self.target.may_scatter(each.axes, self.mesh):
            return 0.0
        took = self._summing(REDUCE_SCATTER, each.axes, each.whole_bytes)
        return max(0.0, self._summing(ALL_REDUCE, each.axes, each.num_bytes) - took)

    def extends(self, layout: Sharding, other: Sharding) -> bool:
        """Whether a layout splits further what another splits."""
        return extends(layout, other)

    def _is_summed(self, further: Axes, axes: Axes) -> bool:
        """Whether what is split further is split along all axes that are added up."""
        return set(further) == set(axes)

    def _summing(self, kind: str, axes: tuple[str, ...], num_bytes: int) -> float:
        key = (kind, axes, num_bytes)
        if key not in self.sent:
            op = Op(kind=kind, attributes={"axes": axes, "dimensions": (0,), "reducer": "add"})
            self.sent[key] = self.tariff.price(op, kind, num_bytes).total_s
        return self.sent[key]

    def is_gathered_across(self, shape: tuple[int, ...], source: Sharding, target: Sharding) -> bool:
        """Whether the last that brings a kernel of convolutions from one layout to another gathers pieces of it that
        lie across.
        """
        now, steps = self._way(source, target)
        if not steps or steps[-1].kind != ALL_GATHER:
            return False
        for step in steps[:-1]:
            now = step.layout
        return lies_across(local_shape(shape, now, self.mesh))

    def is_sent(self, source: Sharding, target: Sharding) -> bool:
        """Whether devices send each other what is brought from one layout into another."""
        return any(step.kind != SLICE for step in self._way(source, target).steps)

    def cutting(self, value: Value, layout: Sharding) -> float:
        """Seconds of writing what one device keeps of a value that it holds more of."""
        return self._convert(Value(self._part(value, layout), value.dtype), value.dtype)

    def copying(self, value: Value, layout: Sharding) -> float:
        """Seconds of copying what one device holds of a value, as it lies: TPUs alone do, and none are counted of what
        may be near.
        """
        held = Value(self._part(value, layout), value.dtype)
        is_near = held.num_bytes <= self.speed.coefficients.held_near_bytes
        return copy_seconds(held, self.speed) if self.target.is_tpu and not is_near else 0.0

    def rounding(self, value: Value, layout: Sharding) -> float:
        """Seconds of writing what one device holds of a value as bfloat16, before it is sent; TPUs alone do."""
        if not self.target.is_tpu:
            return 0.0
        return self._convert(Value(self._part(value, layout), "f32"), "bf16")

    def rounding_sent(self, value: Value, source: Sharding, target: Sharding) -> float:
        """The same of what it is brought into another layout from: what is cut first is cut before."""
        now, steps = self._way(source, target)
        for step in steps:
            if step.kind != SLICE:
                return self.rounding(value, now)
            now = step.layout
        return 0.0

    def _copy(self, shape: tuple[int, ...], value: Value, cut: tuple[int, ...]) -> float:
        key = (Value(shape, value.dtype), cut)
        if key not in self.copies:
            self.copies[key] = turn_seconds(*key, self.speed)
        return self.copies[key]

    def _moved(self, shape: tuple[int, ...], value: Value) -> float:
        """A copy with the numbers in their order; of what is small beside the memory near it is from there, which is
        not counted.
        """
        made = Value(shape, value.dtype)
        if made not in self.moved:
            is_near = made.num_bytes * SMALL <= self.speed.coefficients.near_total_bytes
            self.moved[made] = 0.0 if is_near else copy_seconds(made, self.speed)
        return self.moved[made]

    def _rows(self, value: Value, pieces: tuple[int, ...]) -> float:
        key = (value, pieces)
        if key not in self.rows:
            self.rows[key] = rows_seconds(value, pieces, self.speed)
        return self.rows[key]

    def _convert(self, value: Value, dtype: str) -> float:
        key = (value, dtype)
        if key not in self.converted:
            self.converted[key] = convert_seconds(value, dtype, self.speed)
        return self.converted[key]

    def _part(self, value: Value, layout: Sharding) -> tuple[int, ...]:
        """The shape of what one device holds."""
        key = (value.shape, layout)
        if key not in self.parts:
            self.parts[key] = local_shape(value.shape, layout, self.mesh)
        return self.parts[key]

    def _step(self, value: Value, now: Sharding, step: Step) -> float:
        if step.kind not in KINDS:
            return 0.0
        held = max(math.prod(self._part(value, now)), math.prod(self._part(value, step.layout)))
        way = {"source": now, "target": step.layout} if step.kind == COLLECTIVE_PERMUTE else {}
        num_bytes = (held * value.bits + 7) // 8
        if step.kind == ALL_GATHER and self.target.sums_gather(step.axes, self.mesh, num_bytes):
            return self._summing(ALL_REDUCE, step.axes, num_bytes)  # zeros may be near, where writing them is nothing
        key = (step.kind, step.axes, num_bytes, *way.values())
        if key not in self.sent:
            op = Op(kind=step.kind, attributes={"axes": step.axes, "dimensions": step.dims, **way})
            self.sent[key] = self.tariff.price(op, step.kind, num_bytes).total_s
        return self.sent[key]
