"""The price of a kernel on a machine."""

from __future__ import annotations

from ..kernels import Kernel, Program
from ..topology import Machine
from .roofline import NUMPY_NAMES, matrix_flops
from .runs import Pricing, Work


def pricing(machine: Machine) -> Pricing | None:
    """What prices kernels on this machine; None where the catalogue has no figures for it."""
    chip = machine.chip
    rate = chip.hbm_bytes_per_s
    if rate is None:
        return None

    def price(program: Program, kernel: Kernel) -> Work:
        graph = program.graph
        flops_s, flops = 0.0, 0
        for number in kernel.ops:
            op = graph.ops[number]
            one = matrix_flops(graph, op)
            if one:
                dtype = graph.values[op.operands[0]].dtype
                peak = chip.peak_flops_per_s(NUMPY_NAMES.get(dtype, dtype)) or 1e12
                flops_s += one / peak
                flops += one
        num_bytes = sum(graph.values[v].num_bytes for v in {*kernel.reads, *kernel.writes})
        bytes_s = num_bytes / rate
        return Work(
            took_s=max(flops_s, bytes_s),
            unit="matrix" if flops_s > bytes_s else "memory",
            flops=flops,
            num_bytes=num_bytes,
        )

    return price
