"""Steps that were read and laid out already, kept as long as they live."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ...planner.compute import Calibration
from ...planner.compute.counted import Counted
from ...planner.estimate.device_program import DeviceProgram, device_program
from ...planner.estimate.device_work import DeviceWork, device_work
from ...planner.estimate.traffic import Tariffs
from ...planner.graph import Graph
from ...planner.partition import Found
from ...planner.partition.target import Target, target
from ...planner.topology import Machine

T = TypeVar("T")

MAX_GRAPHS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A step's graph, what a device runs of it by the target that it was partitioned for, and what that takes by chip.

    ``kinds`` says what each argument is for, by its path; ``returned`` which argument a result is the next
    value of; ``notes`` what was done to the step beyond what the plan
    says. ``order`` is the device order that explicit assignments were read for, None where no layout names devices:
    then the same graph serves whatever the order. ``found`` is what partitioning found of the step before,
    ``tariffs`` what its collectives were priced by, ``counted`` has the work of its kernels.
    """

    graph: Graph
    kinds: Mapping[str, str]
    returned: Mapping[str, str]
    notes: tuple[str, ...]
    order: bytes | None
    found: Found = field(default_factory=Found)
    tariffs: Tariffs = field(default_factory=Tariffs)
    counted: Counted = field(default_factory=Counted)
    programs: dict[Target, DeviceProgram] = field(default_factory=dict)
    works: dict[tuple[Target, str, Calibration | None], DeviceWork] = field(default_factory=dict)

    def work(self, machine: Machine, calibration: Calibration | None = None) -> DeviceWork:
        """What a device of this machine does; worked out once for a kind of chip."""
        aim = target(machine.platform, machine, machine.num_devices)
        key = (aim, machine.topology.kind, calibration)
        if key not in self.works or self.works[key].chip != machine.chip:
            if aim not in self.programs:
                self.programs[aim] = device_program(self.graph, machine, self.found, self.counted.forms)
            self.works[key] = device_work(
                self.programs[aim],
                machine,
                kinds=self.kinds,
                returned=self.returned,
                calibration=calibration,
                counted=self.counted,
            )
        return self.works[key]


@dataclass(frozen=True, slots=True)
class StepCache(Generic[T]):
    """For each step (held weakly) the last things that were made of it, by what they depend on; no more than ``most``.

    A step that cannot be held weakly, or compared by its identity or value, is not kept.
    """

    most: int = MAX_GRAPHS
    by_step: weakref.WeakKeyDictionary[object, OrderedDict[Hashable, T]] = field(
        default_factory=weakref.WeakKeyDictionary
    )

    def find(self, step: object, key: Hashable) -> T | None:
        """What was kept."""
        try:
            return self.by_step[step].get(key)
        except (KeyError, TypeError):
            return None

    def put(self, step: object, key: Hashable, known: T) -> None:
        """Keeps something, in place of the oldest where there is much."""
        try:
            kept = self.by_step.setdefault(step, OrderedDict())
        except TypeError:
            return
        kept.pop(key, None)
        kept[key] = known
        while len(kept) > self.most:
            kept.popitem(last=False)


class GraphCache(StepCache[Known]):
    """The last graphs of steps, by what they depend on: arguments and layouts, not the machine."""

    __slots__ = ()

    def get(self, step: object, key: Hashable, order: bytes) -> Known | None:
        """The graph that was kept, if it holds for this device order."""
        known = self.find(step, key)
        return known if known is not None and known.order in (None, order) else None
