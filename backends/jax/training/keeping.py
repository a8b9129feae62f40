"""What a run keeps of itself on disk, and what it goes on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from ....dsl.plan import Plan
from ....dsl.writer import dumps
from ..decoding.translation import Translation
from ..paths import argument_names
from ..workload import PyTree, Workload
from .checkpoint import Kept, keep, kept_in, require_free, require_same_model, require_same_vocabularies, restore
from .metrics import versions
from .options import RunOptions


class Keeping:
    """The folders that a run keeps its state in and goes on from; both may be the same, or none.

    ``seed`` and ``steps_before`` are those of the run that is gone on with, else the seed asked for and 0.
    Raises ``PlanError``, before anything is compiled: MW516 to MW519, and MW521 for other vocabularies.
    """

    def __init__(self, plan: Plan, workload: Workload, options: RunOptions):
        self._plan, self._workload, self._every = plan, workload, options.save_every
        self.folder = Path(options.save) if options.save else None
        self._from = kept_in(options.resume) if options.resume else None
        self._vocabularies = vocabularies(workload) if self.folder or self._from else {}
        if self._from:
            require_usable(plan, workload, self._from, self._names, self._vocabularies)
        if self.folder and not (self._from and self._from.folder.resolve() == self.folder.resolve()):
            require_free(self.folder)
        began = self._from.about["seed"] if self._from else 0
        self.seed: int = began if options.seed is None else options.seed
        self.steps_before = self._from.step if self._from else 0
        self.has_kept = False

    @property
    def resumes(self) -> bool:
        """Whether the run goes on with another."""
        return self._from is not None

    def restored(self, shardings: Sequence[PyTree]) -> tuple[PyTree, ...]:
        """The state to go on with, placed. Raises ``PlanError`` (MW517) where it cannot be read."""
        if self._from is None:
            raise ValueError("there is no run to go on with")
        return restored(self._workload, self._from, self._names, shardings)

    def is_due(self, step: int) -> bool:
        """Whether the state after this step is to be kept though it is not the last."""
        return self._every is not None and step % self._every == 0

    def keep(self, step: int, state: Sequence[PyTree]) -> bool:
        """Writes the state, if there is a folder for it. Raises ``PlanError`` (MW520) where it cannot be written."""
        if self.folder is None:
            return False
        keep(self.folder, step, dict(zip(self._names, state, strict=True)), self._about())
        self.has_kept = True
        return True

    @property
    def _names(self) -> list[str]:
        return argument_names(self._workload.step, len(self._workload.args))[:-1]

    def _about(self) -> dict[str, Any]:
        return {
            "plan": dumps(self._plan),
            "file": self._plan.file,
            "model": self._plan.model,
            "seed": self.seed,
            "versions": {**versions(), **_data_versions()},
            "vocabularies": self._vocabularies,
        }


def require_usable(
    plan: Plan, workload: Workload, kept: Kept, names: Sequence[str], vocabularies: Mapping[str, str]
) -> None:
    """Raises ``PlanError`` where these parts of what is kept are not the plan's model's (MW518), or were learnt with
    other vocabularies than those here (MW521).
    """
    abstract = dict(zip(argument_names(workload.step, len(workload.args)), workload.args, strict=True))
    require_same_model(plan, kept, {name: abstract[name] for name in names})
    require_same_vocabularies(kept, vocabularies)


def restored(workload: Workload, kept: Kept, names: Sequence[str], shardings: Sequence[PyTree]) -> tuple[PyTree, ...]:
    """These parts of what is kept, by the names of the step's arguments, placed."""
    abstract = dict(zip(argument_names(workload.step, len(workload.args)), workload.args, strict=True))
    expected = {name: abstract[name] for name in names}
    found = restore(kept, expected, dict(zip(names, shardings, strict=True)))
    return tuple(found[name] for name in names)


def vocabularies(workload: Workload) -> dict[str, str]:
    """The fingerprints of the workload's vocabularies, by side; none where it does not translate."""
    return fingerprints(workload.translation()) if workload.translation else {}


def fingerprints(translation: Translation) -> dict[str, str]:
    """The fingerprints of its vocabularies, by side."""
    return {"source": translation.source.fingerprint, "target": translation.target.fingerprint}


def _data_versions() -> dict[str, str]:
    found = {}
    for name in ("pycountry", "sentencepiece"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
