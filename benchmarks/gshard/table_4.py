"""Table 4: how the compute and the communication of a partition grow with the number of partitions, by operator."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import meshwright as mw
import numpy as np

from .operators import MACHINES, OPERATORS, Operator
from .record import Answer, Record
from .shown import Figure, table

COMPILED_AT = (32, 512)
GROWTH = {0.0: "O(1)", 0.5: "O(√D)", 1.0: "O(D)"}
NEAR = 0.2
"""How far a fitted power of D may be from the paper's to be called the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """An operator at one number of partitions: seconds and bytes of a partition."""

    compute_s: float
    comm_s: float
    bytes_by_kind: dict[str, int]


def table_4(record: Record) -> Figure:
    grown = {op.name: {d: predicted(op, d) for d in MACHINES} for op in OPERATORS}
    answers = {op.name: answer for op in OPERATORS if (answer := compiled(op, record)) is not None}
    return Figure(
        name="table-4",
        tables=(seconds_table(grown, answers), growth_table(grown, answers)),
        words=tuple(words(grown, answers)),
        draw=lambda canvas: draw(canvas, grown),
    )


def predicted(op: Operator, partitions: int) -> Grown:
    estimate = mw.estimate(op.plan(partitions), op.step(), op.args(partitions))
    return Grown(
        compute_s=estimate.compute_s or 0.0, comm_s=estimate.comm_s, bytes_by_kind=dict(estimate.collective_bytes)
    )


def compiled(op: Operator, record: Record) -> Answer | None:
    """The compiler's seconds and bytes at two numbers of partitions."""

    def answer() -> Answer:
        return {str(d): one(d) for d in COMPILED_AT}

    def one(partitions: int) -> dict[str, Any]:
        made = mw.verify(op.plan(partitions), op.step(), op.args(partitions)).compiled
        moved: dict[str, int] = {}
        for each in made.collectives:
            moved[each.kind] = moved.get(each.kind, 0) + each.total_bytes
        return {"compute_s": made.compute_s, "bytes_by_kind": moved, "reason": made.reason}

    return record.get(f"table 4, {op.name}", answer)


def power(values: Sequence[float], sizes: Sequence[int]) -> float | None:
    """The power of D that fits best; None where there is nothing."""
    if min(values) <= 0:
        return None
    return round(float(np.polyfit(np.log(sizes), np.log(values), 1)[0]), 2) + 0.0


def seconds_table(grown: dict[str, dict[int, Grown]], answers: dict[str, Answer]) -> Any:
    heads = ("operator", *numbered("compute ms, predicted", MACHINES), *numbered("compute ms, compiled", COMPILED_AT))
    heads += numbered("moved ms, predicted", MACHINES)
    rows = (
        (
            name,
            *(f"{at[d].compute_s * 1e3:.3f}" for d in MACHINES),
            *(f"{answers[name][str(d)]['compute_s'] * 1e3:.3f}" if name in answers else "-" for d in COMPILED_AT),
            *(f"{at[d].comm_s * 1e3:.3f}" if at[d].comm_s else "0" for d in MACHINES),
        )
        for name, at in grown.items()
    )
    return table("Table 4: a partition's time on TPU v3", heads, rows)


def numbered(what: str, sizes: Iterable[int]) -> tuple[str, ...]:
    """Heads of columns, the first of which says what they are."""
    return tuple(f"{what}: D={size}" if number == 0 else str(size) for number, size in enumerate(sizes))


def growth_table(grown: dict[str, dict[int, Grown]], answers: dict[str, Answer]) -> Any:
    heads = ("operator", "compute: paper", "s, predicted", f"s, compiled, {COMPILED_AT[0]} to {COMPILED_AT[1]}")
    heads += ("moved: paper", "s, predicted", "bytes, predicted", "bytes, compiled", "by, predicted", "by, compiled")
    return table("Table 4: powers of D", heads, (growth_row(op, grown[op.name], answers) for op in OPERATORS))


def growth_row(op: Operator, at: dict[int, Grown], answers: dict[str, Answer]) -> tuple[str, ...]:
    sizes = list(MACHINES)
    ends = [answers[op.name][str(d)] for d in COMPILED_AT] if op.name in answers else None
    moved = [sum(end["bytes_by_kind"].values()) for end in ends] if ends else None
    return (
        op.name,
        GROWTH[op.grows],
        as_power(power([at[d].compute_s for d in sizes], sizes)),
        as_power(power([end["compute_s"] for end in ends], COMPILED_AT)) if ends else "not asked",
        "0" if op.moves is None else f"{GROWTH[op.moves]} {op.by}",
        as_power(power([at[d].comm_s for d in sizes], sizes)),
        as_power(power([sum(at[d].bytes_by_kind.values()) for d in sizes], sizes)),
        as_power(power(moved, COMPILED_AT)) if moved else "not asked",
        ", ".join(at[max(MACHINES)].bytes_by_kind) or "-",
        (", ".join(ends[-1]["bytes_by_kind"]) or "-") if ends else "not asked",
    )


def as_power(fitted: float | None) -> str:
    return "0" if fitted is None else f"D^{fitted:.2f}"


def words(grown: dict[str, dict[int, Grown]], answers: dict[str, Answer]) -> Iterator[str]:
    parted = [line for op in OPERATORS for line in differences(op, grown[op.name])]
    yield f"{len(OPERATORS)} operators; growth within D^±{NEAR:g} of the paper's but for {len(parted)}."
    yield from parted
    beyond = {op.name: op.beyond for op in OPERATORS}
    for name, answer in answers.items():
        for d in COMPILED_AT:
            yield from beside_compiler(f"{name}, D={d}", grown[name][d], answer[str(d)], beyond[name])


def beside_compiler(where: str, at: Grown, made: Answer, beyond: str) -> Iterator[str]:
    """A line where the estimate is not the compiler's: other collectives, bytes a tenth off, compute a quarter off, and
    what the compiler writes ``beyond``.
    """
    kinds = {*at.bytes_by_kind, *made["bytes_by_kind"]}
    pairs = [(at.bytes_by_kind.get(kind, 0), made["bytes_by_kind"].get(kind, 0)) for kind in kinds]
    if any(abs(ours - theirs) > 0.1 * theirs for ours, theirs in pairs):
        yield f"{where}: predicted {told(at.bytes_by_kind)}; compiled {told(made['bytes_by_kind'])}."
    if abs(at.compute_s / made["compute_s"] - 1) > 0.25:
        yield (
            f"{where}: compute {at.compute_s * 1e3:.3f} ms predicted, {made['compute_s'] * 1e3:.3f} compiled "
            f"({at.compute_s / made['compute_s'] - 1:+.0%})" + (f": {beyond}." if beyond else ".")
        )


def told(bytes_by_kind: dict[str, int]) -> str:
    return ", ".join(f"{kind} {moved / 2**20:.2f} MiB" for kind, moved in bytes_by_kind.items()) or "nothing"


def differences(op: Operator, at: dict[int, Grown]) -> Iterator[str]:
    """A line for each growth that is not the paper's, with the numbers that it comes from."""
    sizes = list(MACHINES)
    for what, said, values in (
        ("compute", op.grows, [at[d].compute_s for d in sizes]),
        ("communication", op.moves, [at[d].comm_s for d in sizes]),
    ):
        fitted = power(values, sizes)
        if (fitted is None) != (said is None) or (fitted is not None and abs(fitted - (said or 0)) > NEAR):
            by = GROWTH[said] if said is not None else "0"
            listed = ", ".join(f"{value * 1e3:.3f}" for value in values)
            yield f"{op.name}: {what} {as_power(fitted)} predicted ({listed} ms), the paper has {by}."


def draw(canvas: Any, grown: dict[str, dict[int, Grown]]) -> None:
    axes = canvas.subplots(1, 2)
    for ax, what in zip(axes, ("compute_s", "comm_s"), strict=True):
        for name, at in grown.items():
            values = [getattr(at[d], what) * 1e3 for d in MACHINES]
            if min(values) > 0:
                ax.loglog(list(MACHINES), [value / values[0] for value in values], "o-", label=name)
        for growth in (0.0, 0.5, 1.0):
            ends = [1.0, math.pow(max(MACHINES) / min(MACHINES), growth)]
            ax.loglog([min(MACHINES), max(MACHINES)], ends, "k:", linewidth=0.8)
        title = "compute" if what == "compute_s" else "communication"
        ax.set(title=f"{title}, predicted", xlabel="partitions", ylabel=f"times that of {min(MACHINES)}")
        ax.legend(fontsize=7)
    canvas.suptitle("Table 4: a partition's time; dotted: O(1), O(√D), O(D)")
