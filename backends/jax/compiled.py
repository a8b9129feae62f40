"""What the compiler says of a program: bytes by kind, cycles, collectives. Its numbers, not ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...planner.estimate.limit import memory_limit
from ...planner.memory.kinds import (
    ALIASED,
    BATCH,
    CODE,
    OPTIMISER_STATE,
    PADDING,
    RESULTS,
    TEMPORARIES,
    WEIGHTS,
    argument_kind,
)
from ...planner.network import Network
from ...planner.topology import Machine
from .program.collectives import Collective, collectives
from .program.hlo import parse
from .program.hlo_flops import matrix_flops
from .program.hlo_loops import Runs
from .program.program_text import ProgramText


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """An argument tensor: its path, the bytes that one device holds of it, whether its next state is a result, its
    dtype as NumPy names it.
    """

    path: str
    num_bytes: int
    returned: bool
    dtype: str = "float32"

    @property
    def kind(self) -> str:
        """What it is for: what does not come back is batch; what does is optimiser state, by its name, or weights."""
        return argument_kind(self.path, self.returned, self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A program as the compiler made it, or its word that the program does not fit. Bytes are of one device.

    ``peak_bytes`` is arguments + results - aliased + temporaries + program code; of a program that does not fit, what
    the compiler says it needs. ``limit_bytes`` is the plan's limit, else what the chip gives; None where neither is
    known. ``bytes_by_kind`` adds up to the peak, but for ``aliased`` (results that lie in their arguments' place).
    ``compute_s`` is the compiler's cycles over the chip's clock, loops by their turns; ``matrix_flops`` those of matrix
    products and convolutions, counted likewise. None stands where the compiler says nothing, as for cycles on CPUs.
    ``reason`` is the compiler's sentence on why a program does not fit; ``note`` is what a reader must know besides.
    """

    fits: bool
    peak_bytes: int | None
    limit_bytes: int | None
    limit_of: str
    compile_s: float
    argument_bytes: int | None = None
    output_bytes: int | None = None
    alias_bytes: int | None = None
    temp_bytes: int | None = None
    code_bytes: int | None = None
    bytes_by_kind: Mapping[str, int] = field(default_factory=dict)
    bytes_by_argument: Mapping[str, int] = field(default_factory=dict)
    cycles: int | None = None
    compute_s: float | None = None
    matrix_flops: int | None = None
    collectives: tuple[Collective, ...] = ()
    strays: tuple[str, ...] = ()
    reason: str | None = None
    note: str | None = None

    @property
    def program_read(self) -> bool:
        """Whether the program's text was read: else nothing is known of its collectives, cycles and products."""
        return self.matrix_flops is not None

    @property
    def shardings_kept(self) -> bool:
        """Whether every argument and result has the layout that the plan says; ``strays`` are those that have not."""
        return not self.strays

    @property
    def predicted_communication_s(self) -> float | None:
        """What the network model says that a step's collectives take, one after another; None where it says nothing."""
        known = [c.predicted_s * c.times for c in self.collectives if c.predicted_s is not None]
        return sum(known) if known else None


def compiled_report(
    compiled: Any,
    text: ProgramText,
    *,
    mesh: Mapping[str, int],
    slices: np.ndarray | None = None,
    machine: Machine | None,
    network: Network | None = None,
    limit_bytes: int | None,
    arguments: Sequence[Argument],
    compile_s: float,
    strays: Sequence[str] = (),
) -> Compiled:
    """What a compiled program (``jax.stages.Compiled``) and its text say.

    ``mesh`` is its axes' sizes, major first; ``slices`` the positions in it of each slice's devices; ``limit_bytes``
    the plan's own limit; ``arguments`` those that the program kept; ``network`` the mesh on its machine.
    """
    memory = compiled.memory_analysis()
    runs = Runs(program=parse(text.text)) if text.text is not None else None
    cycles = runs.estimated_cycles if runs else None
    clock_hz = machine.clock_hz if machine else None
    code_bytes = memory.generated_code_size_in_bytes
    results_bytes = memory.output_size_in_bytes - memory.alias_size_in_bytes
    peak = memory.argument_size_in_bytes + results_bytes + memory.temp_size_in_bytes + code_bytes
    kinds = bytes_by_kind(arguments)
    kinds[PADDING] = memory.argument_size_in_bytes - sum(kinds.values())
    kinds |= {RESULTS: results_bytes, TEMPORARIES: memory.temp_size_in_bytes, CODE: code_bytes}
    kinds[ALIASED] = memory.alias_size_in_bytes
    limit, limit_of = memory_limit(machine, limit_bytes)
    return Compiled(
        fits=_fits(peak, machine, limit_bytes),
        peak_bytes=peak,
        limit_bytes=limit,
        limit_of=limit_of,
        compile_s=compile_s,
        argument_bytes=memory.argument_size_in_bytes,
        output_bytes=memory.output_size_in_bytes,
        alias_bytes=memory.alias_size_in_bytes,
        temp_bytes=memory.temp_size_in_bytes,
        code_bytes=code_bytes,
        bytes_by_kind=kinds,
        bytes_by_argument=_by_argument(arguments),
        cycles=cycles,
        compute_s=cycles / clock_hz if cycles is not None and clock_hz else None,
        matrix_flops=matrix_flops(runs) if runs else None,
        collectives=collectives(runs, mesh, slices, network) if runs else (),
        strays=tuple(strays),
        note=text.note,
    )


def misfit_report(
    *,
    required_bytes: int | None,
    available_bytes: int | None,
    reason: str,
    machine: Machine | None,
    limit_bytes: int | None,
    arguments: Sequence[Argument],
    compile_s: float,
) -> Compiled:
    """The report on a program that the compiler refused because it does not fit; ``reason`` is its own sentence."""
    limit, limit_of = memory_limit(machine, limit_bytes)
    if available_bytes is not None and (limit_bytes is None or available_bytes <= limit_bytes):
        limit, limit_of = available_bytes, "what the compiler gives"
    return Compiled(
        fits=False,
        peak_bytes=required_bytes,
        limit_bytes=limit,
        limit_of=limit_of,
        compile_s=compile_s,
        bytes_by_kind=bytes_by_kind(arguments),
        bytes_by_argument=_by_argument(arguments),
        reason=reason,
    )


def bytes_by_kind(arguments: Sequence[Argument]) -> dict[str, int]:
    """Bytes of a device by the arguments' kind."""
    kinds = dict.fromkeys((WEIGHTS, OPTIMISER_STATE, BATCH), 0)
    for argument in arguments:
        kinds[argument.kind] += argument.num_bytes
    return kinds


def _fits(peak_bytes: int, machine: Machine | None, limit_bytes: int | None) -> bool:
    """The TPU compiler compiles nothing that does not fit the chip; others do, and are held to the catalogue."""
    if limit_bytes is not None and peak_bytes > limit_bytes:
        return False
    if machine is None or machine.hbm_bytes is None or machine.platform == "tpu":
        return True
    return peak_bytes <= machine.hbm_bytes


def _by_argument(arguments: Sequence[Argument]) -> dict[str, int]:
    """Bytes by the step's own argument names, in order."""
    totals: dict[str, int] = {}
    for argument in arguments:
        name = argument.path.partition("/")[0]
        totals[name] = totals.get(name, 0) + argument.num_bytes
    return totals
