"""How many bytes the compiled program itself takes in a device's memory."""

from __future__ import annotations

from ..kernels import Program
from ..kinds import KINDS

MATRIX = frozenset({"dot_general", "convolution"})
INDEXED = frozenset({"gather", "scatter", "sort"})
BASE_BYTES = 900 << 10
MATRIX_KERNEL_BYTES = 350 << 10
COLLECTIVE_BYTES = 20 << 10
INDEXED_KERNEL_BYTES = 300 << 10
LOOP_BYTES = 900 << 10
OTHER_KERNEL_BYTES = 15 << 10


def code_bytes(program: Program) -> int:
    """A rough figure: so many bytes a kernel, more where it multiplies, looks up, communicates or turns."""
    total = BASE_BYTES
    for inner, kernel, _ in program.walk():
        kinds = {inner.graph.ops[op].kind for op in kernel.ops}
        if kinds & MATRIX:
            total += MATRIX_KERNEL_BYTES
        elif kernel.bodies:
            total += LOOP_BYTES
        elif kinds & INDEXED:
            total += INDEXED_KERNEL_BYTES
        elif kinds.intersection(KINDS):
            total += COLLECTIVE_BYTES
        else:
            total += OTHER_KERNEL_BYTES
    return total


def least_code_bytes(products: int, loops: int) -> int:
    """What a program takes at least that has so many kernels that multiply, and so many loops."""
    return BASE_BYTES + MATRIX_KERNEL_BYTES * products + LOOP_BYTES * loops
