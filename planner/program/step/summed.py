"""Images that the kernel which makes them adds up: it leaves them, and a sum."""

from __future__ import annotations

from collections.abc import Iterator

from ...fusion.nature import REDUCE
from ...graph import Graph
from ...images import CONVOLUTION
from ...kernels import Kernel, Program
from .passing import own_ops


def images_summed(graph: Graph, kernel: Kernel) -> Iterator[int]:
    """The images that a kernel makes by a convolution, leaves, and adds up."""
    if kernel.bodies or all(graph.ops[number].kind != REDUCE for number in kernel.ops):
        return
    ops = (graph.ops[number] for number in own_ops(graph, kernel))
    yield from (op.results[0] for op in ops if op.kind == CONVOLUTION and op.results[0] in kernel.writes)


def every_image_summed(program: Program) -> frozenset[int]:
    """Those of all kernels of a program; loops are not entered."""
    if CONVOLUTION not in program.graph.kinds:
        return frozenset()
    return frozenset(value for kernel in program.kernels for value in images_summed(program.graph, kernel))
