"""Where a fit begins: coefficients from what is published of a chip."""

from __future__ import annotations

from ..chip import MIB, Chip
from .calibration import shipped
from .coefficients import Coefficients

CLOCK_HZ = 1e9
"""Of a chip whose clock is not published: only where the fit begins hangs on it."""

HBM_BYTES_PER_S, FLOPS_PER_S = 5e11, 1e14
SMALL_VMEM_BYTES = 32 * MIB
SEEN = (
    "near_read_share",
    "whole_bytes",
    "batch_fills",
    "start_bytes",
    "fill_share",
    "carried_bytes",
    "shared_bytes",
    "common_bytes",
    "common_write_cycles",
    "common_cycles",
    "scoped_bytes",
    "wait_cycles",
    "product_start_cycles",
    "product_read_cycles",
    "product_write_cycles",
    "product_round_cycles",
    "whole_start_cycles",
    "copied_window_bytes",
    "row_cycles",
    "few_rows_cycles",
    "join_cycles",
)
"""What no fit of small programs moves."""

FLEETING_SHARE = 0.25
"""Of a large vector memory in which the compiler keeps no buffers: what it fetches there just before it is used."""


def first_guess(chip: Chip) -> Coefficients:
    """Coefficients at the chip's published peaks; windows and waits are round figures."""
    clock_hz = chip.clock_hz or CLOCK_HZ
    near_bytes = _near_bytes(chip)
    return Coefficients(
        byte_cycles=clock_hz / (chip.hbm_bytes_per_s or HBM_BYTES_PER_S),
        step_cycles=1000.0,
        near_step_cycles=200.0,
        start_cycles=100.0,
        register_cycles=0.5,
        multiply_add_cycles=2 * clock_hz / (chip.peak_flops_per_s("bfloat16") or FLOPS_PER_S),
        loop_window_bytes=8.0 * MIB,
        single_window_bytes=0.5 * MIB,
        product_window_bytes=3.0 * MIB,
        fill_bytes=4.0 * MIB,
        tile_bytes=2.5 * MIB,
        held_bytes=4.0 * MIB,
        near_bytes=near_bytes / 2,
        near_total_bytes=near_bytes,
        **_seen(chip),
    )


def _seen(chip: Chip) -> dict[str, float]:
    """What no small program teaches, but whole ones have shown of this kind of chip: it stays as the table has it."""
    table = shipped(chip.jax_kind)
    return {name: getattr(table.coefficients, name) for name in SEEN} if table else {}


def _near_bytes(chip: Chip) -> float:
    """Bytes of fast memory in which values may stand when a kernel reads them.

    None where the compiler keeps buffers in a memory of its own that is larger (v4's): it counts that as any other.
    """
    vmem_bytes = chip.vmem_bytes or 0
    if chip.buffer_vmem_bytes > vmem_bytes:
        return 0.0
    fleeting = FLEETING_SHARE * vmem_bytes if vmem_bytes > SMALL_VMEM_BYTES else 0.0
    return float(chip.buffer_vmem_bytes) or fleeting
