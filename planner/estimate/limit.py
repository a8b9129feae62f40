"""What a device may use of its memory, and what is so near that the compiler should be asked."""

from __future__ import annotations

from ...dsl.plan import Limits
from ..topology import Machine
from .figures import Estimate

OF_PLAN = "the plan"
"""Whose limit it is, where that is not the chip's."""
NEAR, ASKED = 0.8, 0.6
"""Of the chip's limit, and of one that is asked for: plans that are predicted to take less are not doubted."""
DOUBTFUL, HELD = frozenset({"sort", "top_k", "fft", "cholesky", "triangular_solve", "custom_call"}), 4
"""Kernels that the compiler writes as programs of their own, and how many times their own bytes these may hold besides:
a plan is doubted as if the largest of them did.
"""


def memory_limit(machine: Machine | None, limit_bytes: int | None) -> tuple[int | None, str]:
    """The tighter of the plan's limit and what the chip gives a program, and which of them it is."""
    chip_bytes = machine.hbm_bytes if machine else None
    if limit_bytes is not None and (chip_bytes is None or limit_bytes <= chip_bytes):
        return limit_bytes, OF_PLAN
    return chip_bytes, f"the chip ({machine.topology.kind})" if machine and chip_bytes else "none"


def whose(limits: Limits, limit_of: str) -> str:
    """Whose limit it is, as it is said: an option's, where one stands in the place of what the plan says."""
    return str(limits.place) if limit_of == OF_PLAN and not limits.place.line else limit_of


def is_near(estimate: Estimate, limit_bytes: int, limit_of: str = OF_PLAN) -> bool:
    """Whether a plan is predicted to take nearly what it may."""
    more = max((kernel.num_bytes for kernel in estimate.kernels if kernel.label in DOUBTFUL), default=0.0)
    return estimate.peak_bytes + HELD * more >= (ASKED if limit_of == OF_PLAN else NEAR) * limit_bytes
