"""What a run says of itself: records (one JSON object a line in a metrics file) and the summary at its end.

Kinds of records: ``run`` (first: plan, seed, devices, versions), ``held-out``, ``step``, ``kept`` (the state, on disk),
``scores`` (of translations), ``summary`` (last).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ....dsl.errors import PlanError, problem

SCHEMA_VERSION = 1
Record = Mapping[str, Any]
Sink = Callable[[Record], None]
Status = Literal["finished", "interrupted", "diverged"]
EXIT_CODES: Mapping[Status, int] = {"finished": 0, "interrupted": 130, "diverged": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """How a run went. Losses are those that the step reports; ``held_out_*`` are means over the held-out batches.

    ``diverged`` is a loss that is not finite, at step ``steps``. ``tokens_per_s`` and ``step_time_s`` leave the first
    step out where there are others. ``inputs`` is what the batches report: pairs, packing, vocabularies.
    ``bleu`` and ``chrf`` are of all held-out pairs that were translated, as one corpus.
    """

    plan: str | None
    status: Status
    steps: int
    steps_before: int = 0
    seed: int
    num_devices: int
    first_loss: float | None = None
    last_loss: float | None = None
    held_out_loss_before: float | None = None
    held_out_loss_after: float | None = None
    tokens_per_s: float | None = None
    step_time_s: float | None = None
    compile_time_s: float
    wall_time_s: float
    inputs: Mapping[str, Any] = field(default_factory=dict)
    metrics_file: str | None = None
    kept_in: str | None = None
    bleu: float | None = None
    chrf: float | None = None

    @property
    def exit_code(self) -> int:
        """0 where every step was done, 1 where the loss diverged, 130 where the run was interrupted."""
        return EXIT_CODES[self.status]

    def as_json(self) -> dict[str, Any]:
        """The summary as plain JSON values."""
        values: dict[str, Any] = plain(asdict(self))
        return values


@contextmanager
def metrics_sink(path: str | Path | None, *others: Sink) -> Iterator[Sink]:
    """A sink that writes each record to the file at once, as a line, and hands it to the others.

    Raises ``PlanError`` (MW511) where the file cannot be written.
    """
    with ExitStack() as stack:
        with _named(path):
            file = stack.enter_context(Path(path).open("wb", buffering=0)) if path else None

        def sink(record: Record) -> None:
            record = plain(record)
            if file:
                with _named(path):
                    file.write(json.dumps(record, allow_nan=False).encode() + b"\n")
            for other in others:
                other(record)

        yield sink


@contextmanager
def _named(path: str | Path | None) -> Iterator[None]:
    """What goes wrong inside is a problem with this file."""
    try:
        yield
    except OSError as error:
        raise PlanError([problem("MW511", path=path, reason=error.strerror)]) from error


def plain(value: Any) -> Any:
    """``value`` as JSON has it: arrays as lists, and ``"nan"``, ``"inf"`` for the numbers that JSON does not have."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic) or hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def versions() -> dict[str, str]:
    """The versions of what a run's numbers hang on."""
    return {name: metadata.version(name) for name in ("meshwright", "jax", "jaxlib", "numpy")}
