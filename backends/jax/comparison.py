"""What was predicted beside what the compiler says, with the error of each figure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...planner.estimate.as_json import as_json
from ...planner.estimate.figures import Estimate
from ...planner.explain.rows import Rows, binary, duration
from .compiled import Compiled
from .program.collectives import total_bytes_by_kind

DETAILS = ("kernels", "memory", "tensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One figure, predicted and compiled, in seconds (``_s``) or bytes, by its name."""

    name: str
    said: str
    predicted: float
    compiled: float

    @property
    def error(self) -> float | None:
        """How much of the compiled figure the prediction is above it; None above nothing."""
        if self.compiled:
            return self.predicted / self.compiled - 1
        return None if self.predicted else 0.0


def pairs(compiled: Compiled, predicted: Estimate) -> Iterator[Pair]:
    """The figures that both have. Communication has no compiled seconds: both are the network model's word."""
    if compiled.peak_bytes is not None:
        yield _pair("peak_bytes", "peak memory of a device", predicted.peak_bytes, compiled.peak_bytes)
    if compiled.compute_s is not None and predicted.compute_s is not None:
        yield _pair("compute_s", "compute", predicted.compute_s, compiled.compute_s)
    if compiled.predicted_communication_s is not None:
        said = "communication (of the compiled program: the network model's price)"
        yield _pair("comm_s", said, predicted.comm_s, compiled.predicted_communication_s)
    if not compiled.program_read:
        return
    planned, made = predicted.collective_bytes, total_bytes_by_kind(compiled.collectives)
    for kind in dict.fromkeys([*made, *planned]):
        yield _pair(f"collective_bytes.{kind}", f"{kind}, bytes a device", planned.get(kind, 0), made.get(kind, 0))


def comparison_table(compiled: Compiled, predicted: Estimate) -> Rows:
    """Each figure predicted, compiled, and the error."""
    rows = tuple(
        (pair.said, _shown(pair, pair.predicted), _shown(pair, pair.compiled), _percent(pair))
        for pair in pairs(compiled, predicted)
    )
    return Rows(title="Predicted beside compiled", headers=("what", "predicted", "compiled", "error"), rows=rows)


def predicted_json(compiled: Compiled, predicted: Estimate | None) -> dict[str, Any]:
    """The estimate's figures, and ``errors``, the share by which each is above the compiled one.

    ``communication_s`` is the network model's price of the compiled program's collectives.
    """
    said: dict[str, Any] = {"communication_s": compiled.predicted_communication_s}
    if predicted is None:
        return said
    figures = {key: value for key, value in as_json(predicted).items() if key not in DETAILS}
    return said | figures | {"errors": {pair.name: pair.error for pair in pairs(compiled, predicted)}}


def _pair(name: str, said: str, predicted: float, compiled: float) -> Pair:
    return Pair(name=name, said=said, predicted=predicted, compiled=compiled)


def _shown(pair: Pair, figure: float) -> str:
    return duration(figure) if pair.name.endswith("_s") else binary(int(figure))


def _percent(pair: Pair) -> str:
    return "-" if pair.error is None else f"{pair.error:+.1%}"
