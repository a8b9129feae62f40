"""An estimate in a sentence, in a few lines, and as all its tables."""

from __future__ import annotations

from ..estimate.figures import Estimate
from .communication import axis_table, by_axis, by_gradient, by_source
from .memory import kind_table, tensor_table
from .rows import Rows, binary, columns, duration
from .time import layer_table, operation_table, time_table, unit_table


def headline(estimate: Estimate, name: str = "the plan") -> str:
    """One sentence: whether it fits and what a step takes, with the numbers."""
    verdict = "fits" if estimate.fits else "does not fit"
    limit = f" of {binary(estimate.limit_bytes)} ({estimate.limit_of})" if estimate.limit_bytes is not None else ""
    memory = f"{name} {verdict} {estimate.topology}: a device needs {binary(estimate.peak_bytes)}{limit}"
    parts = f"compute {duration(estimate.compute_s)}, communication {duration(estimate.comm_s)}"
    return f"{memory}. A step takes {duration(estimate.step_time_s)} ({parts}). Predicted."


def notes(estimate: Estimate) -> list[str]:
    """What a reader must know besides: what was done to the step, where seconds of compute come from."""
    source = [f"Seconds of compute: {estimate.compute_source}."] if estimate.compute_source else []
    return [*estimate.notes, *source]


def short_tables(estimate: Estimate) -> list[Rows]:
    """What ``estimate`` shows: time, memory by kind, communication by axis."""
    return [table for table in (time_table(estimate), kind_table(estimate), by_axis(estimate)) if table.rows]


def tables(estimate: Estimate) -> list[Rows]:
    """What ``explain`` shows; a table with nothing to say is left out."""
    made = (
        time_table(estimate),
        unit_table(estimate),
        layer_table(estimate),
        operation_table(estimate),
        kind_table(estimate),
        tensor_table(estimate),
        axis_table(estimate),
        by_axis(estimate),
        by_source(estimate),
        by_gradient(estimate),
    )
    return [table for table in made if table.rows]


def text(estimate: Estimate) -> str:
    """The headline and the short tables in columns."""
    return "\n\n".join([headline(estimate), *notes(estimate), *(columns(table) for table in short_tables(estimate))])
