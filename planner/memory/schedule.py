"""The order in which the compiler runs a program's kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..graph import Value
from ..kernels import Kernel, Program
from .flow import Flow, flow
from .liveness import scheduled_peak_bytes
from .orders import depth_first_order, list_order, post_order
from .tiles import memoised, padded_bytes


def schedule(program: Program) -> Program:
    """The same kernels in the compiler's order, loops' bodies too.

    XLA's memory scheduler tries three orders and takes the one whose live bytes peak lowest, the first of those that
    tie (``hlo_memory_scheduler.cc``). What the latency-hiding scheduler then moves to hide collectives is not followed.
    """
    return _scheduled(program, memoised(padded_bytes))[0]


def _scheduled(program: Program, sizes: Callable[[Value], int]) -> tuple[Program, int]:
    """The program in order, and the bytes that it needs at most besides its arguments."""
    needs: dict[int, int] = {}
    kernels = []
    for kernel in program.kernels:
        bodies = [_scheduled(body, sizes) for body in kernel.bodies]
        needs.update((id(body), peak) for body, peak in bodies)
        kernels.append(replace(kernel, bodies=tuple(body for body, _ in bodies)) if bodies else kernel)
    program = replace(program, kernels=tuple(kernels))
    found = flow(program, sizes, lambda body: needs[id(body)])
    order, peak = _best(found)
    return replace(program, kernels=tuple(kernels[position] for position in order)), peak


def _best(found: Flow) -> tuple[list[int], int]:
    orders = [list_order(found), depth_first_order(found), post_order(found)]
    peaks = [scheduled_peak_bytes(found, order) for order in orders]
    best = peaks.index(min(peaks))
    return orders[best], peaks[best]


def kernel_count(kernels: tuple[Kernel, ...]) -> int:
    """How many kernels there are, those of bodies among them."""
    return sum(1 + sum(kernel_count(body.kernels) for body in kernel.bodies) for kernel in kernels)
