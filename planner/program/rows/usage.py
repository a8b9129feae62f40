"""What the choices use of a device's memory, over the step: the rows of the program."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...chip import Chip
from ...compute.products import product_of
from ...fusion.nature import PRODUCTS
from ...graph import Graph, Op, Sharding, Value
from ...memory.code import least_code_bytes
from ...memory.fast.accessed import matrix_flops
from ...memory.tight import is_tight
from ...partition.layout import local_shape
from ...solver.arrays import starts
from ...solver.problem import Problem
from ..wiring.wires import Port, Wiring
from .lives import part_bytes, spans
from .needs import Need

LEAST_EDGE = 8
"""Rows of a register: a device's part of so many along each dim is no vector, which no matrix unit need multiply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the choices of some nodes use together, and within what. A node may be there more than once."""

    usages: tuple[tuple[int, NDArray[np.int64]], ...]
    limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """What a solution that does not fit takes in all, and what each node's values take of it, at its peak."""

    peak_bytes: int
    held_bytes: Mapping[int, int]


def with_needs(
    wiring: Wiring, problem: Problem, limit_bytes: int, place: NDArray[np.int64], chip: Chip, needed: Sequence[Need]
) -> Problem:
    """The problem with rows that are sure: what is there all the time, and besides that what is ``needed`` in whatever
    order the step is computed (``needs``). ``place`` has the problem's node for each of the wiring's.
    """
    lent = is_tight(limit_bytes, chip.hbm_bytes)  # then temporaries may lie where results will
    level = wiring.levels[0]
    pieces: list[tuple[int, NDArray[np.int64], tuple[int, int]]] = []
    for position, (port, value) in enumerate(always_there(wiring)):
        is_given = position < len(level.graph.arguments)
        apart = [row for row, need in enumerate(needed, 1) if value in need.least] if is_given else []
        used = part_bytes(wiring, port, level.values[value])
        pieces += [
            (port.node, used, rows) for rows in ranges_but(apart, 1 + len(needed) if is_given or not lent else 1)
        ]
    for row, need in enumerate(needed, 1):
        if need.node is not None and need.used is not None:
            pieces.append((need.node, need.used, (row, row + 1)))
    least = limit_bytes - least_bytes(wiring, chip)
    beside = [-need.num_bytes - sum(need.least.values()) for need in needed]
    return replace(
        problem,
        piece_nodes=np.array([int(place[node]) for node, *_ in pieces], np.int64),
        piece_rows=np.array([rows for *_, rows in pieces], np.int64).reshape(-1, 2),
        usage_start=starts(np.array([len(used) for _, used, _ in pieces], np.int64)),
        usages=np.concatenate([np.zeros(0, np.int64), *(used for _, used, _ in pieces)]),
        limits=least + np.array([0, *beside], np.int64),
    )


def ranges_but(apart: Sequence[int], end: int) -> Iterator[tuple[int, int]]:
    """The rows up to ``end`` but for those ``apart``, by ranges."""
    first = 0
    for row in (*apart, end):
        if first < row:
            yield first, row
        first = row + 1


def misfit_row(wiring: Wiring, choices: Sequence[int], misfit: Misfit, limit_bytes: int, *, hopeful: bool) -> Row:
    """A row that a solution that does not fit goes beyond by as much as it does beyond the limit.

    Under its other choices a node is taken to hold no more than what it lays out; if ``hopeful``, nothing, but for what
    the step is given and what it leaves. So the row is not known to hold, and proves nothing.
    """
    least: dict[int, NDArray[np.int64]] = {}
    for span in () if hopeful else spans(wiring):
        level = wiring.levels[span.level]
        port = level.source[span.value]
        if port.node in misfit.held_bytes:
            own, known = part_bytes(wiring, port, level.graph.values[span.value]), least.get(port.node)
            least[port.node] = own if known is None else np.maximum(known, own)
    values = wiring.levels[0].values
    usages = [(port.node, part_bytes(wiring, port, values[value])) for port, value in always_there(wiring)]
    for node, held in misfit.held_bytes.items():
        own = np.minimum(least.get(node, np.zeros(len(wiring.nodes[node].costs), np.int64)), held)
        own[choices[node]] = held
        usages.append((node, own))
    used = sum(int(own[choices[node]]) for node, own in usages)
    return Row(usages=tuple(usages), limit_bytes=limit_bytes - (misfit.peak_bytes - used))


def with_rows(problem: Problem, rows: Sequence[Row], place: NDArray[np.int64]) -> Problem:
    """The problem with these rows too; ``place`` as for ``with_memory``."""
    if not rows:
        return problem
    pieces = [(number, node, own) for number, row in enumerate(rows, len(problem.limits)) for node, own in row.usages]
    ends = problem.usage_start[-1] + np.cumsum([len(own) for _, _, own in pieces], dtype=np.int64)
    own_rows = [(number, number + 1) for number, _, _ in pieces]
    return replace(
        problem,
        piece_nodes=np.concatenate([problem.piece_nodes, np.array([place[node] for _, node, _ in pieces], np.int64)]),
        piece_rows=np.concatenate([problem.piece_rows, np.array(own_rows, np.int64).reshape(-1, 2)]),
        usage_start=np.concatenate([problem.usage_start, ends]),
        usages=np.concatenate([problem.usages, *(own for _, _, own in pieces)]),
        limits=np.concatenate([problem.limits, [row.limit_bytes for row in rows]]),
    )


def always_there(wiring: Wiring) -> Iterator[tuple[Port, int]]:
    """What is there at every point, as a node lays it out: what the step is given, then the memory of what it leaves,
    but for what lies where something given did.
    """
    level = wiring.levels[0]
    graph = level.graph
    for given in graph.arguments:
        yield level.source[given], given
    for position, left in enumerate(graph.results):
        port = wiring.ends.get(left) or level.source.get(left)
        if port is not None and position not in graph.aliases:
            yield port, left


def least_bytes(wiring: Wiring, chip: Chip, devices: int | None = None) -> int:
    """What the program itself takes at least, on so many devices, if not those of the mesh."""
    if chip.platform != "tpu":
        return 0
    devices = math.prod(wiring.reshards.mesh.values()) if devices is None else devices
    flops = [
        _least_flops(level.graph, level.graph.ops[number], devices)
        for level in wiring.levels
        for number in {number for kernel in level.program.kernels for number in kernel.ops}
        if level.graph.ops[number].kind in PRODUCTS
    ]
    return least_code_bytes(flops, sum(len(level.inner) for level in wiring.levels))


def _least_flops(graph: Graph, op: Op, devices: int) -> float:
    """What a device multiplies at least for a product; 0 of one that may be of vectors there, or convolves."""
    if op.kind != "dot_general":
        return 0.0
    product = product_of(graph, op)
    is_large = min(product.rows, product.columns, product.depth) >= LEAST_EDGE * devices
    return matrix_flops(graph, op) / devices if is_large else 0.0


def local_bytes(value: Value, layout: Sharding, mesh: object) -> int:
    """What one device holds of a value."""
    return (math.prod(local_shape(value.shape, layout, mesh)) * value.bits + 7) // 8  # type: ignore[arg-type]
