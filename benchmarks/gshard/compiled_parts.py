"""What the TPU compiler's cycles say of the parts of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import meshwright as mw
from meshwright.backends.jax.apply import apply
from meshwright.backends.jax.program.hlo import parse
from meshwright.backends.jax.program.hlo_loops import Runs
from meshwright.backends.jax.program.hlo_origin import Origins
from meshwright.dsl.plan import Plan
from meshwright.planner.kinds import KINDS
from meshwright.planner.topology import physical

from .record import Answer


def compute_by_part(
    plan: Plan, step: Callable[..., Any], args: Sequence[Any], part_of: Callable[[str | None, str | None], str]
) -> Answer:
    """Seconds by part, from each instruction's cycles and the line that asked for it; bytes by kind of collective."""
    lowered = apply(plan, step, args, mw.topology(str(plan.topology)).devices()).lower(*args)
    runs = Runs(program=parse(lowered.compile().as_text()))
    clock_hz = physical(plan.topology).clock_hz or 1
    seconds, moved = Counter[str](), Counter[str]()
    origins = Origins(runs=runs)
    for name in runs.order:
        for instruction in runs.program.computations[name].instructions.values():
            kind = instruction.opcode.removesuffix("-start")
            if kind in KINDS:
                moved[kind] += instruction.num_bytes * runs.times[name]
            elif instruction.estimated_cycles and instruction.opcode not in ("while", "conditional"):
                origin = origins.of(name, instruction, made_for_users=True)
                line = runs.program.sources.user_line(origin.attributes) if origin else None
                part = part_of(str(line) if line else None, origin.op_name if origin else None)
                seconds[part] += instruction.estimated_cycles * runs.times[name] / clock_hz
    return {"compute_s": dict(seconds), "bytes_by_kind": dict(moved)}
