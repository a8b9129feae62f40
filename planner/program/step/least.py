"""What computing a step takes at least on each of so many devices: on whatever mesh of them, in whatever layouts.

Each value and each product is at best split as many ways as its elements and the number of devices have in common, and
a kernel waits at least for the slowest of three: its products in whole squares, its vector operations, its bytes. What
may be gone when a device has but a part is left out: waits for memory, what is read anew, what vector memory may hold.
So are collectives, and what the compiler counts no cycles for. What several kernels compute anew, each for itself, may
be written once: it is counted once, without its reads; what may end the product before is not counted at all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ...compute.demand import demanded
from ...compute.products import product_of
from ...compute.speed import Speed
from ...compute.work import (
    ALONE,
    NO_WORK,
    PRODUCT,
    REGISTER_ELEMENTS,
    is_small,
    kind_of_cost,
    padded_bytes,
    vector_operations,
)
from ...fusion.nature import PRODUCTS, REDUCE, UPDATE
from ...graph import Graph, Op
from ...kernels import Program, repeats_of
from .blueprint import kernel_graph, name_of

PREDICATE, AS_BITS = "pred", 8  # of what is left as bits so many stand in a byte
DOT = "dot_general"


def least_seconds(program: Program, speed: Speed, devices: int) -> float:
    """Seconds of one device; ``program`` are the fused kernels of a step before it is laid out."""
    graph = program.graph
    standing = Counter(number for kernel in program.kernels for number in kernel.ops)
    ends = _ends(program)
    found: dict[object, float] = {}
    total_s = 0.0
    for kernel in program.kernels:
        trips = graph.ops[kernel.ops[-1]].trips
        total_s += trips * sum(least_seconds(body, speed, devices) for body in kernel.bodies)
        if kernel.bodies or is_small(graph, kernel):
            continue
        own, numbers = kernel_graph(graph, kernel)
        shares = tuple(1 / standing[number] for number in kernel.ops)
        ended = tuple(place for place, value in enumerate(numbers) if value in ends)
        key = (name_of(own), shares, ended)
        if key not in found:
            found[key] = _Least(own, shares, frozenset(ended), speed, devices).seconds
        total_s += found[key] * repeats_of(graph, kernel)
    return total_s


def _ends(program: Program) -> frozenset[int]:
    """What products make and one kernel alone reads: that could as well be computed at their end."""
    reading = Counter(value for kernel in program.kernels for value in kernel.reads)
    made = {
        value
        for kernel in program.kernels
        if any(program.graph.ops[number].kind in PRODUCTS for number in kernel.ops)
        for value in kernel.writes
    }
    return frozenset(value for value in made - set(program.graph.results) if reading[value] == 1)


class _Least:
    """A kernel, given as a graph of its own. ``shares`` has what part of each operation is counted here, ``ends`` the
    values that a product before makes for it alone.
    """

    def __init__(self, own: Graph, shares: Sequence[float], ends: frozenset[int], speed: Speed, devices: int) -> None:
        self._graph, self._speed, self._devices = own, speed, devices
        makers = {value: number for number, op in enumerate(own.ops) for value in op.results}
        before = [self._before(value, makers) for op in own.ops if op.kind in PRODUCTS for value in op.operands]
        gone = {number for ops in before if self._reads(ops) & ends for number in ops}
        self._shares = [0.0 if number in gone else share for number, share in enumerate(shares)]

    @property
    def seconds(self) -> float:
        """What one run takes at least."""
        graph, of = self._graph, self._speed.coefficients
        real = [op for op in graph.ops if op.kind not in NO_WORK]
        kind = kind_of_cost(real) if real else ALONE
        if kind == ALONE:
            return 0.0
        need = demanded(graph, graph.ops, graph.results)
        matrix = sum(self._squares(op) for op in real if op.kind in PRODUCTS) * of.multiply_add_cycles
        vector = sum(self._registers(op, share, need) for op, share in zip(graph.ops, self._shares, strict=True))
        alone = self._reads(number for number, share in enumerate(self._shares) if share == 1)
        near_share = 0.0 if kind == PRODUCT else of.near_read_share
        read = sum(self._part(v, need) * self._bytes(v, near_share) for v in graph.arguments if v in alone)
        updates = {op.results[0]: op.operands[1] for op in real if op.kind == UPDATE}
        memory = (read + sum(self._bytes(updates.get(v, v), 0.0) for v in graph.results)) * of.byte_cycles
        return max(matrix, vector * of.register_cycles, memory) / self._speed.clock_hz

    def _before(self, value: int, makers: Mapping[int, int]) -> frozenset[int]:
        """The operations that make a value, by their numbers."""
        found: set[int] = set()
        waiting = [value]
        while waiting:
            number = makers.get(waiting.pop())
            if number is not None and number not in found:
                found.add(number)
                waiting += self._graph.ops[number].operands
        return frozenset(found)

    def _reads(self, ops: Iterable[int]) -> frozenset[int]:
        return frozenset(value for number in ops for value in self._graph.ops[number].operands)

    def _squares(self, op: Op) -> float:
        """Multiply-adds of one device for a product; none for what is no plain product."""
        if op.kind != DOT:
            return 0.0
        product = self._speed.product(product_of(self._graph, op))
        return product.padded(self._speed.edge) / math.gcd(product.multiply_adds, self._devices)

    def _registers(self, op: Op, share: float, need: Mapping[int, int]) -> float:
        """Vector operations of one device, 1024 numbers each."""
        value, each = vector_operations(op)
        each = min(each, 1) if op.kind == REDUCE else each
        return share * each * need.get(value, 0) / self._ways(value) / REGISTER_ELEMENTS if each else 0.0

    def _part(self, value: int, need: Mapping[int, int]) -> float:
        """What part of a value is read."""
        return need.get(value, 0) / max(self._graph.values[value].num_elements, 1)

    def _bytes(self, value: int, near_share: float) -> float:
        """What one device's part of a value counts; ``near_share`` of it where vector memory may hold that."""
        known = self._graph.values[value]
        whole = known.num_elements / AS_BITS if known.dtype == PREDICATE else padded_bytes(known)
        num_bytes = whole / self._ways(value)
        return num_bytes if num_bytes > self._speed.coefficients.held_near_bytes else num_bytes * near_share

    def _ways(self, value: int) -> int:
        """Into how many parts a value can be split on so many devices."""
        return math.gcd(self._graph.values[value].num_elements, self._devices)
