"""The text of a compiled program, also where jaxlib cannot read the compiler's own."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from ....planner.topology import Machine

_ON_TENSOR_CORES = dict.fromkeys(
    (
        "xla_tpu_enable_sparse_core_collective_offload_all_gather",
        "xla_tpu_enable_sparse_core_collective_offload_all_reduce",
        "xla_tpu_enable_sparse_core_collective_offload_reduce_scatter",
        "xla_tpu_enable_sparse_core_collective_offload_ragged_all_to_all",
        "xla_tpu_enable_sparse_core_async_all_to_all",
        "xla_tpu_enable_offloading_gather_to_sparsecore",
        "xla_tpu_enable_offloading_scatter_to_sparsecore",
    ),
    "false",
)
"""Compiler options of libtpu 0.0.51. jaxlib 0.10.2 fails on the asynchronous calls that offloading leaves."""

_AGAIN = (
    "Cycles and collectives are those of the step compiled without offloading, all on the "
    "TensorCores: the text of the program that offloads to SparseCores, whose memory this is, cannot be read here."
)
_IN_PART = (
    "Cycles and collectives are those of the step compiled without offloading collectives; what runs on the "
    "SparseCores all the same (gathers of tables) counts no cycles."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramText:
    """A program's text, None where it cannot be had, and what a reader must know of it."""

    text: str | None
    note: str | None = None


def program_text(compiled: Any, lowered: Any, machine: Machine | None) -> ProgramText:
    """The text of ``compiled`` (``jax.stages.Compiled``), which was made from ``lowered``.

    Where the compiler offloads collectives, gathers or scatters, jaxlib cannot read the program; then the text is that
    of the same step compiled once more without offloading, and the note says so. What is offloaded all the same, as
    gathers of some scanned steps are for v5p and v6e, leaves the text that the compiler wrote beside that program.
    """
    if machine is None or not machine.offloads_collectives:
        with suppress(jax.errors.JaxRuntimeError):
            return ProgramText(text=compiled.as_text())
    with tempfile.TemporaryDirectory(prefix="meshwright-") as folder:
        try:
            again = lowered.compile(compiler_options={**_ON_TENSOR_CORES, "xla_dump_to": folder})
        except jax.errors.JaxRuntimeError as error:
            return ProgramText(text=None, note=_unreadable(error))
        try:
            return ProgramText(text=again.as_text(), note=_AGAIN)
        except jax.errors.JaxRuntimeError as error:
            text = _written(Path(folder))
            return ProgramText(text=text, note=_IN_PART if text else _unreadable(error))


def _written(folder: Path) -> str | None:
    """The text of the compiled program among what the compiler wrote into ``folder``; None if it wrote none.

    What runs on the SparseCores is written as programs of its own besides, each a part of the one that holds it.
    """
    found = sorted(folder.glob("*.after_codegen.txt"), key=lambda path: path.stat().st_size)
    return found[-1].read_text() if found else None


def _unreadable(error: Exception) -> str:
    reason = str(error).partition("\n")[0][:200]
    return f"The program's text cannot be read, so no cycles, no collectives: {reason}"
