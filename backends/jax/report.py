"""A verification as tables of plain values, as text, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...dsl.errors import listing
from ...planner.explain.rows import Rows, binary, columns
from ...planner.memory.kinds import ALIASED
from .comparison import comparison_table, predicted_json
from .compiled import Compiled
from .program.collectives import Collective, total_bytes_by_kind

if TYPE_CHECKING:
    from .verify import Verification

SCHEMA_VERSION = 1


def tables(verification: Verification) -> list[Rows]:
    """Memory, time and collectives as the compiler has them, and how near the prediction came; no empty table."""
    compiled = verification.compiled
    made = [_memory(compiled), _time(compiled), _collectives(compiled.collectives)]
    if verification.predicted is not None:
        made.append(comparison_table(compiled, verification.predicted))
    return [table for table in made if table.rows]


def headline(verification: Verification) -> str:
    """One sentence: whether it fits, with the numbers."""
    compiled = verification.compiled
    name = verification.plan.name or verification.plan.model or "the plan"
    verdict = "fits" if compiled.fits else "does not fit"
    needs = f"needs {binary(compiled.peak_bytes)}" if compiled.peak_bytes is not None else "needs more than there is"
    given = f" of {binary(compiled.limit_bytes)} ({compiled.limit_of})" if compiled.limit_bytes is not None else ""
    sentence = (
        f"{name} {verdict} {verification.where}: a device {needs}{given}. Compiled in {compiled.compile_s:.1f} s."
    )
    strays = f" Laid out otherwise than planned: {listing(compiled.strays)}." if compiled.strays else ""
    return sentence + strays


def text(verification: Verification) -> str:
    """The headline and the tables in columns."""
    said = [line for line in (verification.compiled.reason, verification.compiled.note) if line]
    blocks = [headline(verification), *said, *(columns(table) for table in tables(verification))]
    return "\n\n".join(blocks)


def as_json(verification: Verification) -> dict[str, Any]:
    """Plain JSON values; bytes are of one device, times in seconds, None where the compiler says nothing."""
    compiled = verification.compiled
    names = ("peak", "limit", "argument", "output", "alias", "temp", "code")
    figures = {f"{name}_bytes": getattr(compiled, f"{name}_bytes") for name in names}
    return {
        "schema_version": SCHEMA_VERSION,
        "plan": verification.plan.name,
        "topology": verification.where,
        "fits": compiled.fits,
        "compiled": figures
        | {
            "limit_of": compiled.limit_of,
            "bytes_by_kind": dict(compiled.bytes_by_kind),
            "bytes_by_argument": dict(compiled.bytes_by_argument),
            "cycles": compiled.cycles,
            "compute_s": compiled.compute_s,
            "matrix_flops": compiled.matrix_flops,
            "compile_s": compiled.compile_s,
            "collective_bytes": total_bytes_by_kind(compiled.collectives),
            "collectives": [collective.as_json() for collective in compiled.collectives],
            "shardings_kept": compiled.shardings_kept,
            "strays": list(compiled.strays),
            "reason": compiled.reason,
            "note": compiled.note,
        },
        "predicted": predicted_json(compiled, verification.predicted),
    }


def _memory(compiled: Compiled) -> Rows:
    kinds = [(kind, binary(size)) for kind, size in compiled.bytes_by_kind.items() if size and kind != ALIASED]
    total = [("in all", binary(compiled.peak_bytes))] if compiled.peak_bytes is not None else []
    aliased = compiled.bytes_by_kind.get(ALIASED)
    note = [("(aliased: results in their arguments' place)", binary(aliased))] if aliased else []
    by_argument = [(f"argument {name}", binary(size)) for name, size in compiled.bytes_by_argument.items()]
    rows = (*kinds, *total, *note, *by_argument)
    return Rows(title="Memory of a device, compiled", headers=("what", "bytes"), rows=rows)


def _time(compiled: Compiled) -> Rows:
    rows: list[tuple[str, str]] = []
    if compiled.compute_s is not None:
        rows.append(("compute, the compiler's cycles over the clock", f"{compiled.compute_s * 1e3:.3f} ms"))
    elif compiled.cycles is not None:
        rows.append(("compute (no clock known for this chip, so no seconds)", f"{compiled.cycles} cycles"))
    if compiled.predicted_communication_s is not None:
        took = f"{compiled.predicted_communication_s * 1e3:.3f} ms"
        rows.append(("communication, predicted from the network model, nothing overlapped", took))
    if compiled.matrix_flops:
        rows.append(("matrix products, a device", f"{compiled.matrix_flops / 1e9:.3f} GFLOP"))
    return Rows(title="Work of a step, loops by their turns", headers=("what", "amount"), rows=tuple(rows))


def _collectives(listed: Iterable[Collective]) -> Rows:
    """Those alike in kind, axes and source line in one row, the heaviest first."""
    alike: dict[tuple[str, str, str], list[Collective]] = {}
    for collective in listed:
        axes = "+".join(map(str, collective.axes)) or f"{collective.group_size} devices"
        axes += ", across slices" if collective.across_slices else ""
        alike.setdefault((collective.kind, axes, str(collective.source or collective.op_name or "")), []).append(
            collective
        )
    heavy = sorted(alike.items(), key=lambda item: -_total(item[1]))
    rows = tuple(
        (kind, axes, str(sum(c.times for c in same)), binary(_total(same)), _predicted(same), source)
        for (kind, axes, source), same in heavy
    )
    headers = ("collective", "axes", "times", "bytes a device", "predicted", "asked for by")
    return Rows(title="Collectives of a step, compiled", headers=headers, rows=rows)


def _total(same: Iterable[Collective]) -> int:
    return sum(collective.total_bytes for collective in same)


def _predicted(same: Iterable[Collective]) -> str:
    known = [collective.predicted_s * collective.times for collective in same if collective.predicted_s is not None]
    return f"{sum(known) * 1e3:.3f} ms" if known else "-"
