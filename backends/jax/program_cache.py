"""Steps that were read and laid out already, kept as long as they live."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from ...planner.estimate.device_program import DeviceProgram

MAX_PROGRAMS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a device runs of a step.

    ``kinds`` says what each argument is for, by its path; ``notes`` what was done to the step beyond what the plan
    says. ``order`` is the device order that explicit assignments were read for, None where no layout names devices:
    then the same program serves whatever the order.
    """

    program: DeviceProgram
    kinds: Mapping[str, str]
    notes: tuple[str, ...]
    order: bytes | None


@dataclass(frozen=True, slots=True)
class ProgramCache:
    """For each step (held weakly) its last programs, by what they depend on: arguments and layouts, not the machine.

    A step that cannot be held weakly, or compared by its identity or value, is not kept.
    """

    by_step: weakref.WeakKeyDictionary[object, OrderedDict[Hashable, Known]] = field(
        default_factory=weakref.WeakKeyDictionary
    )

    def get(self, step: object, key: Hashable, order: bytes) -> Known | None:
        """The program that was kept, if it holds for this device order."""
        try:
            kept = self.by_step[step]
        except (KeyError, TypeError):
            return None
        known = kept.get(key)
        return known if known is not None and known.order in (None, order) else None

    def put(self, step: object, key: Hashable, known: Known) -> None:
        """Keeps a program, in place of the oldest where there are many."""
        try:
            kept = self.by_step.setdefault(step, OrderedDict())
        except TypeError:
            return
        kept.pop(key, None)
        kept[key] = known
        while len(kept) > MAX_PROGRAMS:
            kept.popitem(last=False)
