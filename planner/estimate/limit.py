"""What a device may use of its memory."""

from __future__ import annotations

from ..topology import Machine

OF_PLAN = "the plan"
"""Whose limit it is, where that is not the chip's."""


def memory_limit(machine: Machine | None, limit_bytes: int | None) -> tuple[int | None, str]:
    """The tighter of the plan's limit and what the chip gives a program, and which of them it is."""
    chip_bytes = machine.hbm_bytes if machine else None
    if limit_bytes is not None and (chip_bytes is None or limit_bytes <= chip_bytes):
        return limit_bytes, OF_PLAN
    return chip_bytes, f"the chip ({machine.topology.kind})" if machine and chip_bytes else "none"
