"""What is predicted of a step under a plan. Bytes and FLOPs are of one device; nothing here is compiled or measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..graph import Axes, Origin, Sharding
from ..memory import LiveTensor
from ..placement import Span
from .late import may_be_late

PREDICTED = "predicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedCollective:
    """One collective of a step.

    ``num_bytes`` is what one device holds of it each time it runs: the larger of its operands and its results.
    ``times`` is how often a step runs it, ``dims`` are those of the tensor that it gathers, scatters or exchanges,
    ``group_size`` how many devices it joins (two for a permute), ``across_slices`` whether it crosses the data-centre
    network. ``predicted_s`` is what it takes each time, by ``algorithm``, waiting for ``bottleneck``. ``gradient_of``
    are the weights whose gradients it adds up. ``position`` orders it among all that a step runs.
    """

    kind: str
    axes: Axes
    dims: tuple[int, ...]
    dtype: str
    num_bytes: int
    times: int
    group_size: int
    across_slices: bool
    predicted_s: float
    algorithm: str
    bottleneck: str
    gradient_of: tuple[str, ...] = ()
    origin: Origin
    position: int

    @property
    def total_bytes(self) -> int:
        """Bytes over a whole step, a device."""
        return self.num_bytes * self.times

    @property
    def total_s(self) -> float:
        """Seconds over a whole step."""
        return self.predicted_s * self.times


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedKernel:
    """What a device runs at once.

    ``unit`` is what bounds it (``matrix``, ``vector``, ``memory``), ``flops`` and ``num_bytes`` are those of one run,
    ``num_bytes`` what crosses to and from memory. ``predicted_s`` is what it takes each time. ``layer`` is the part of
    the model that it belongs to, ``phase`` forward, backward, recomputed or update. ``counted`` is False for what the
    TPU compiler gives no cycles for (gathers, scatters, sorts): it is no part of ``compute_s``. Where copies around it
    are counted, it takes ``uncounted_s`` itself. It takes ``shared_s`` less where it has the fast memory for itself.
    """

    label: str
    unit: str
    flops: float
    num_bytes: int
    predicted_s: float
    times: int
    counted: bool = True
    uncounted_s: float = 0.0
    shared_s: float = 0.0
    origin: Origin
    layer: str
    phase: str
    position: int

    @property
    def total_s(self) -> float:
        """Seconds over a whole step."""
        return self.predicted_s * self.times

    @property
    def step_s(self) -> float:
        """The same with what is not counted."""
        return (self.predicted_s + self.uncounted_s) * self.times


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The roofline bounds of a step: with matrix units at their peak, each argument's bytes moved once, no network.

    ``step_s`` is of the step on this machine under whatever plan: its matrix FLOPs and the bytes of its arguments (of
    those of which only parts are cut out or looked up, of these), both split evenly over all devices. ``plan_s`` is of
    what this plan has one device compute and hold. Each is the longer of FLOPs over the peak and bytes over the
    memory's bandwidth; None where the catalogue has no such figures. ``step_flops`` and ``plan_flops`` are a device's
    share of them.
    """

    step_s: float | None
    plan_s: float | None
    step_flops: float
    plan_flops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPoint:
    """What is live while one kernel runs, by kind; ``label`` is the kernel's."""

    label: str
    by_kind: Mapping[str, int]

    @property
    def num_bytes(self) -> int:
        """Bytes of a device, all kinds together."""
        return sum(self.by_kind.values())


@may_be_late("by_kind", "tensors", "timeline")
@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedMemory:
    """A device's bytes: at the peak by kind and by tensor, the largest first; over the program, point by point.

    The peak is ``argument_bytes`` + ``output_bytes`` - ``alias_bytes`` (results in donated arguments' place) +
    ``temp_bytes`` + ``code_bytes``, as the compiler counts it; ``left_out_bytes`` besides of a shorter step, for the
    layers that it leaves out.
    """

    by_kind: Mapping[str, int]
    tensors: tuple[LiveTensor, ...]
    timeline: tuple[MemoryPoint, ...] = field(default=(), repr=False)
    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    temp_bytes: int
    code_bytes: int
    left_out_bytes: int = 0

    @property
    def peak_bytes(self) -> int:
        """Bytes of a device at the peak."""
        held_bytes = self.argument_bytes + self.output_bytes - self.alias_bytes + self.temp_bytes + self.code_bytes
        return held_bytes + self.left_out_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisPlace:
    """Where an axis of the mesh lies on the machine: its size, its spans of physical dims, the axes on the same."""

    name: str
    num_devices: int
    spans: tuple[Span, ...]
    shared_with: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorLayout:
    """How an argument or a result of the step lies over the mesh: its path, its whole shape, the axes of each dim."""

    path: str
    role: str
    shape: tuple[int, ...]
    dtype: str
    axes: Sharding
    device_bytes: int


@may_be_late("collectives", "kernels", "bound", "axes", "tensors")
@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a step under a plan is predicted to take, without compiling anything.

    ``step_time_s`` is ``compute_s`` + ``uncounted_s`` + ``comm_s``, nothing overlapped and loops by their turns;
    ``overlapped_s`` is what would be left if all communication hid behind compute, or compute behind it.
    ``uncounted_s`` is of gathers, scatters and sorts, for which the TPU compiler counts no cycles: what their bytes
    take. ``compute_source`` says where seconds of compute come from. ``limit_bytes`` is the plan's limit, else what the
    chip gives; None where neither is known. ``memory`` says what is live when, ``bound`` how far the plan is from the
    machine, ``axes`` where the mesh lies on it. ``parts`` are the sizes of the axes as propagation cut them.
    """

    topology: str
    mesh: Mapping[str, int]
    compute_s: float
    comm_s: float
    peak_bytes: int
    limit_bytes: int | None
    limit_of: str
    collectives: tuple[PredictedCollective, ...] = field(repr=False)
    kernels: tuple[PredictedKernel, ...] = field(repr=False)
    memory: PredictedMemory = field(repr=False)
    bound: Bound
    uncounted_s: float = 0.0
    axes: tuple[AxisPlace, ...] = ()
    parts: Mapping[str, int] = field(default_factory=dict)
    tensors: tuple[TensorLayout, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    compute_source: str = ""
    what: str = PREDICTED

    @property
    def fits(self) -> bool:
        """Whether the peak stays within the limit; True where no limit is known."""
        return self.limit_bytes is None or self.peak_bytes <= self.limit_bytes

    @property
    def step_time_s(self) -> float:
        """Compute, counted or not, and communication one after the other."""
        return self.compute_s + self.uncounted_s + self.comm_s

    @property
    def overlapped_s(self) -> float:
        """The longer of compute and communication: what full overlap would leave."""
        return max(self.compute_s + self.uncounted_s, self.comm_s)

    @property
    def bound_s(self) -> float | None:
        """The step's roofline bound on this machine (``Bound.step_s``)."""
        return self.bound.step_s

    @property
    def of_bound(self) -> float | None:
        """The share of the step time that the bound explains: 1 for a plan that reaches it."""
        if self.bound_s is None:
            return None
        return self.bound_s / self.step_time_s if self.step_time_s else 1.0

    @property
    def bytes_by_kind(self) -> Mapping[str, int]:
        """A device's bytes at the peak, by what they are for."""
        return self.memory.by_kind

    @property
    def collective_bytes(self) -> dict[str, int]:
        """Bytes of a step, a device, by the collective's kind."""
        return collective_bytes(self.collectives)

    def __str__(self) -> str:
        from ..explain.text import text

        return text(self)

    def as_json(self) -> dict[str, Any]:
        """The estimate as plain JSON values; bytes are of one device, times in seconds."""
        from .as_json import as_json

        return as_json(self)


def collective_bytes(listed: Iterable[PredictedCollective]) -> dict[str, int]:
    """Bytes of a step, a device, by kind; the heaviest first."""
    totals: dict[str, int] = {}
    for collective in listed:
        totals[collective.kind] = totals.get(collective.kind, 0) + collective.total_bytes
    return dict(sorted(totals.items(), key=lambda item: -item[1]))
