"""What a search gives: the plan with its price, what is proven, what else was looked at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...dsl.plan import Plan
from ...dsl.writer import dumps
from ..estimate.figures import Estimate
from .progress import gap_of
from .settings_rows import SettingsTried
from .task import Status

OPTIMAL_GAP = 1e-3
"""A plan this close to the bound is called optimal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedPlan:
    """A plan and what it takes."""

    plan: Plan
    estimate: Estimate = field(repr=False)

    @property
    def step_time_s(self) -> float:
        """Predicted seconds of a step."""
        return self.estimate.step_time_s

    @property
    def peak_bytes(self) -> int:
        """Predicted bytes of a device at the peak."""
        return self.estimate.peak_bytes

    def as_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {"step_time_s": self.step_time_s, "peak_bytes": self.peak_bytes, "plan": dumps(self.plan)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A candidate of the search: a mesh with a remat policy, in the order in which they were tried.

    ``objective_s`` is what its best layouts cost in the program, ``step_time_s`` the price of the plan that they
    became; ``why`` says why there is none.
    """

    mesh: Mapping[str, int]
    device_order: Mapping[str, str]
    remat: str
    bound_s: float | None
    objective_s: float | None
    step_time_s: float | None
    peak_bytes: int | None
    why: str

    def as_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {name: _plain(getattr(self, name)) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshCount:
    """How many meshes there are: told apart, covered by finer ones, ruled out by a pin, tried, not tried."""

    distinct: int
    covered: int
    impossible: int
    tried: int
    left_out: int

    def as_json(self) -> dict[str, int]:
        """As plain JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change that makes a step fit: what to change, the plan that was found so, what a step then takes and needs.

    ``compiled_bytes`` are the compiler's where it was asked. ``is_memory``: the change is more memory for a device.
    """

    change: str
    plan: Plan = field(repr=False)
    step_time_s: float
    peak_bytes: int
    compiled_bytes: int | None = None
    is_memory: bool = False

    def as_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        sizes = {"peak_bytes": self.peak_bytes, "compiled_bytes": self.compiled_bytes}
        figures = {"step_time_s": self.step_time_s, **sizes}
        return {"change": self.change, **figures, "plan": dumps(self.plan)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Why no plan fits. ``least_bytes`` is the least peak of a plan that was found, over whatever limit: predicted, or
    what the compiler says where it was asked and says more (``by_compiler``).

    ``bytes_by_kind`` is what it is made of, ``tensors`` are the largest at that peak, with a device's bytes;
    ``remedies`` the changes that were found to help, the smallest first. ``marks_blocks`` says whether the step marks
    blocks that may be computed again; ``least`` is the plan of ``least_bytes``. No plan is predicted to take less than
    ``proven_bytes``, as far as that is known.
    """

    limit_bytes: int
    limit_of: str
    least_bytes: int | None
    bytes_by_kind: Mapping[str, int] = field(default_factory=dict)
    tensors: tuple[tuple[str, int], ...] = ()
    remedies: tuple[Remedy, ...] = ()
    marks_blocks: bool = True
    by_compiler: bool = False
    proven_bytes: int = 0
    least: PricedPlan | None = field(default=None, repr=False)

    @property
    def missing_bytes(self) -> int | None:
        """How many bytes the plan of the least peak takes above the limit."""
        return None if self.least_bytes is None else self.least_bytes - self.limit_bytes

    def as_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "limit_bytes": self.limit_bytes,
            "limit_of": self.limit_of,
            "least_bytes": self.least_bytes,
            "missing_bytes": self.missing_bytes,
            "by_compiler": self.by_compiler,
            "proven_bytes": self.proven_bytes,
            "bytes_by_kind": dict(self.bytes_by_kind),
            "marks_blocks": self.marks_blocks,
            "tensors": [{"path": path, "bytes": num_bytes} for path, num_bytes in self.tensors],
            "remedies": [remedy.as_json() for remedy in self.remedies],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPeak:
    """What the compiler says of a plan near the limit: bytes of a device at the peak, None where it gives none.

    ``fits`` is whether they are within the limit, None where it was not asked, or gave no answer: ``why``.
    """

    predicted_bytes: int
    compiled_bytes: int | None
    fits: bool | None
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The answer of a search.

    ``plan`` (None where none was found) is complete and carries a ``result:`` block. ``step_time_s`` and
    ``peak_bytes`` are those of its ``estimate``. No plan that completes the one given takes less than ``bound_s``, on
    whatever mesh; ``tried_bound_s`` holds for the meshes that were tried. ``alternatives`` are the next best plans
    (``top_k``), ``frontier`` those of less memory and more time (``pareto``), ``candidates`` all that was looked at.
    ``settings`` are the combinations of settings that were looked at, where the plan left some open.
    ``optimum`` answers the same question without pins, where the plan given was complete; ``misfit`` says why
    nothing fits, or was found to. ``compiled`` is what the compiler said of the plans near the limit that it was asked
    about, in turn; ``spares`` are slower plans that were priced too, for when it says that the best takes too much.
    """

    plan: Plan | None
    status: Status
    estimate: Estimate | None = field(repr=False)
    bound_s: float | None
    tried_bound_s: float | None
    alternatives: tuple[PricedPlan, ...] = field(default=(), repr=False)
    frontier: tuple[PricedPlan, ...] = field(default=(), repr=False)
    candidates: tuple[Row, ...] = field(default=(), repr=False)
    meshes: MeshCount
    settings: SettingsTried | None = None
    optimum: SearchResult | None = field(default=None, repr=False)
    misfit: Misfit | None = None
    compiled: tuple[CompiledPeak, ...] = ()
    spares: tuple[PricedPlan, ...] = field(default=(), repr=False)
    interrupted: bool = False
    search_s: float

    @property
    def step_time_s(self) -> float | None:
        """Predicted seconds of a step under the plan."""
        return self.estimate.step_time_s if self.estimate else None

    @property
    def peak_bytes(self) -> int | None:
        """Predicted bytes of a device at the peak."""
        return self.estimate.peak_bytes if self.estimate else None

    @property
    def gap(self) -> float | None:
        """The part of the step time that is above the bound: how much faster a plan may be at most."""
        return gap(self.step_time_s, self.bound_s)

    def as_json(self) -> dict[str, Any]:
        """The result as plain JSON values; bytes are of one device, times in seconds."""
        return {
            "status": self.status,
            "step_time_s": self.step_time_s,
            "bound_s": _plain(self.bound_s),
            "gap": _plain(self.gap),
            "tried_bound_s": _plain(self.tried_bound_s),
            "tried_gap": _plain(gap(self.step_time_s, self.tried_bound_s)),
            "peak_bytes": self.peak_bytes,
            "bytes_by_kind": dict(self.estimate.bytes_by_kind) if self.estimate else {},
            "compute_s": self.estimate.compute_s if self.estimate else None,
            "comm_s": self.estimate.comm_s if self.estimate else None,
            "plan": dumps(self.plan) if self.plan else None,
            "alternatives": [other.as_json() for other in self.alternatives],
            "frontier": [point.as_json() for point in self.frontier],
            "meshes": self.meshes.as_json(),
            "candidates": [row.as_json() for row in self.candidates],
            "settings": self.settings.as_json() if self.settings else None,
            "optimum": self.optimum.as_json() if self.optimum else None,
            "misfit": self.misfit.as_json() if self.misfit else None,
            "compiled": [said.as_json() for said in self.compiled],
            "interrupted": self.interrupted,
            "search_s": self.search_s,
        }


def gap(step_time_s: float | None, bound_s: float | None) -> float | None:
    """The part of a step time that is above a bound; None where either is missing."""
    return None if step_time_s is None or bound_s is None else gap_of(step_time_s, bound_s)


def status_of(step_time_s: float, bound_s: float) -> Status:
    """Whether a plan with this price is proven to be the best."""
    return "optimal" if gap_of(step_time_s, bound_s) <= OPTIMAL_GAP else "feasible"


def _plain(value: Any) -> Any:
    """A value as JSON has it: null where infinite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return dict(value) if isinstance(value, Mapping) else value
