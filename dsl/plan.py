"""What a plan says, as plain immutable values. Reading, checking and writing live beside this file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where something was written: a file (None for text without one), a line and a column, both from 1; of an option
    of the command line, which stands for the file, both are 0.
    """

    file: str | None = None
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        file = self.file or "<plan>"
        return f"{file}:{self.line}:{self.column}" if self.line else file


@dataclass(frozen=True, slots=True, kw_only=True)
class Dim:
    """One dim of a tensor in the notation: ``E@expert+data!pad``."""

    name: str
    axes: tuple[str, ...] = ()
    pad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """The notation's ``...``: any number of dims, left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicate:
    """GShard's ``replicate``: every device holds the whole tensor (section 3.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto:
    """A hole: the planner decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Infer:
    """The compiler's propagation decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dims:
    """The notation: one entry a dim, at most one ``Rest``."""

    dims: tuple[Dim | Rest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitDim:
    """One dim of a ``split``: its position (negative from the end), the axes it is split over, major first."""

    dim: int
    axes: tuple[str, ...]
    pad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """GShard's ``split``: dims named by position (section 3.2)."""

    splits: tuple[SplitDim, ...]


DeviceAssignment = tuple[Any, ...]  # nested tuples of device numbers, as deep as the tensor has dims


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """GShard's ``shard``: an array of device numbers, one a partition (appendix A.3)."""

    device_assignment: DeviceAssignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Like:
    """The assignment of the corresponding tensor under ``target`` (``opt/**: like params``)."""

    target: str


Assignment = Replicate | Auto | Infer | Dims | Split | Shard | Like


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line under ``tensors:``: a pattern of paths and the assignment of what it matches."""

    pattern: str
    assignment: Assignment
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverDim:
    """A physical dim of the topology that an axis lies on, or ``size`` of it where axes share the dim (``x:4``)."""

    name: str
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis of the mesh. ``size`` None is ``auto``; ``over`` None leaves its place to the default device order."""

    name: str
    size: int | None
    over: tuple[OverDim, ...] | None = None
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """The logical axes, in order, major first. ``axes`` None is ``mesh: auto``."""

    axes: tuple[Axis, ...] | None
    place: Place = field(default=Place(), compare=False)

    @property
    def sizes(self) -> dict[str, int | None]:
        """Size by axis name, in order; empty for ``auto``."""
        return {axis.name: axis.size for axis in self.axes or ()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A machine as the plan names it: ``v3:32x32``, ``h100:8x2``, ``cpu:8``, ``4*v5e:16x16`` for four slices."""

    kind: str
    dims: tuple[int, ...]
    num_slices: int = 1
    place: Place = field(default=Place(), compare=False)

    def __str__(self) -> str:
        slices = f"{self.num_slices}*" if self.num_slices > 1 else ""
        return f"{slices}{self.kind}:{'x'.join(map(str, self.dims))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remat:
    """Rematerialisation of the blocks that the step marks with ``meshwright.remat``.

    ``none`` keeps every value for the backward pass, ``full`` keeps each block's inputs only, ``dots`` keeps the
    results of matrix products, ``save`` keeps the tagged values in ``names``, ``auto`` leaves it to the planner.
    """

    policy: Literal["none", "full", "dots", "save", "auto"]
    names: tuple[str, ...] = ()
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a device may use. ``hbm_bytes`` None is the chip's own."""

    hbm_bytes: int | None = None
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentPrint:
    """What a plan remembers of one argument of the step that it was made for."""

    tensors: int
    elements: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The workload that a plan was made for: one print an argument, and the sizes of the dims that the plan names."""

    arguments: Mapping[str, ArgumentPrint]
    dims: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AtRunTime:
    """The best of the settings that may change between steps, while another one has the value in ``when``.

    ``settings`` are those (a file's ``with:``); the tensors lie as the plan says, apart from the computed values of the
    patterns in ``without``, which the step then does not have.
    """

    when: Mapping[str, Any]
    settings: Mapping[str, Any]
    step_time_s: float
    peak_bytes: int
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a search writes into the plan that it returns."""

    status: str
    step_time_s: float | None = None
    bound_s: float | None = None
    gap: float | None = None
    peak_bytes: Mapping[str, int] = field(default_factory=dict)
    seed: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    pins: tuple[str, ...] = ()
    fingerprint: Fingerprint | None = None
    at_run_time: tuple[AtRunTime, ...] = ()
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole plan. ``settings`` is the file's ``with:``, the keyword arguments of ``model``."""

    version: int = 1
    name: str | None = None
    model: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    topology: Topology | None = None
    mesh: Mesh
    rules: tuple[Rule, ...] = ()
    remat: Remat | None = None
    limits: Limits = field(default_factory=Limits)
    result: Result | None = None
    file: str | None = field(default=None, compare=False)
    comments: Mapping[str, Any] = field(default_factory=dict, compare=False)
    places: Mapping[str, Place] = field(default_factory=dict, compare=False)  # by key: "topology", "with.layers"
