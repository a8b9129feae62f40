"""Collectives among devices on a switch (NVLink) and the nodes above it, in NCCL's form: latency + bytes / bandwidth.

n devices, m of a node, M nodes, B a device's bandwidth in its node, b its share of the node's to other nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from .chip import Algorithm
from .placement import Placement
from .price import Price, added, free

NODE = "the switch"
NETWORK = "the data-centre network"


def gather(placed: Placement, num_bytes: float) -> Price:
    """An all-gather of which each device ends with ``num_bytes``, or its reduce-scatter: the quickest ring.

    Latency as NCCL's ``tuning.cc`` has it: base + (n-1 - (M-1)) hops in a node + (M-1) between nodes. Bytes:
    V max((m-1)/(mB), (M-1)/(M m b)) (scaling book, GPU chapter).
    """
    return _quickest(_ring(placed, num_bytes, a, 1) for a in placed.links.algorithms if a.rings)


def all_reduce(placed: Placement, num_bytes: float) -> Price:
    """An all-reduce of ``num_bytes`` a device: the quickest of rings, trees and the switch's own adding (NVLS).

    Twice an all-gather's steps and bytes; a tree has 2(m - 1 + log2 M) steps (NCCL's ``tuning.cc``); NVLS runs in one
    step, at what the scaling book measured.
    """
    ways = {"tree": _tree, "nvls": _nvls}
    return _quickest(
        ways[algorithm.name](placed, num_bytes, algorithm)
        if algorithm.name in ways
        else _ring(placed, num_bytes, algorithm, 2)
        for algorithm in placed.links.algorithms
    )


def all_to_all(placed: Placement, num_bytes: float) -> Price:
    """An all-to-all within the node of which each device holds ``num_bytes``: V(m-1)/(m^2 B)."""
    m = _in_node(placed)
    if m == 1:
        return free(NODE)
    steps = [a.base_us * 1e-6 + (m - 1) * a.hop_us * 1e-6 for a in placed.links.algorithms if a.rings]
    shares = [a.bandwidth for a in placed.links.algorithms if a.rings]
    bytes_s = num_bytes * (m - 1) / m / _switch_rate(placed)
    return _quickest(added(NODE, lat, bytes_s / share, NODE) for lat, share in zip(steps, shares, strict=True))


def flood(placed: Placement, num_bytes: float) -> Price:
    """Every member in the node sends all of its ``num_bytes`` to one."""
    return all_to_all(placed, num_bytes * _in_node(placed))


def _ring(placed: Placement, num_bytes: float, algorithm: Algorithm, passes: int) -> Price:
    between = placed.outer - 1
    inside = placed.group_size - 1 - between
    steps_us = passes * (inside * algorithm.hop_us + between * algorithm.net_us)
    return _priced(placed, num_bytes, algorithm, passes, algorithm.base_us + steps_us)


def _tree(placed: Placement, num_bytes: float, algorithm: Algorithm) -> Price:
    inside, levels = _in_node(placed) - 1, math.log2(placed.outer)
    steps_us = 2 * (inside * algorithm.hop_us + levels * algorithm.net_us)
    return _priced(placed, num_bytes, algorithm, 2, algorithm.base_us + steps_us)


def _nvls(placed: Placement, num_bytes: float, algorithm: Algorithm) -> Price:
    steps_us = algorithm.hop_us + math.log2(placed.outer) * algorithm.net_us
    return _priced(placed, num_bytes, algorithm, 2, algorithm.base_us + steps_us)


def _priced(placed: Placement, num_bytes: float, algorithm: Algorithm, passes: int, latency_us: float) -> Price:
    m, M = _in_node(placed), placed.outer
    uplink = placed.links.uplink
    inside_s = num_bytes * (m - 1) / m / _switch_rate(placed) / algorithm.bandwidth
    share = min(1.0, algorithm.bandwidth)
    between_s = num_bytes * (M - 1) / M / (m * uplink.device_bytes_per_s) / share if uplink and M > 1 else 0.0
    name = f"{algorithm.name}, {algorithm.protocol}"
    slowest = NETWORK if between_s > inside_s else NODE
    return added(name, latency_us * 1e-6, passes * max(inside_s, between_s), slowest)


def _quickest(ways: Iterable[Price]) -> Price:
    return min(ways, key=lambda way: way.total_s, default=free("nothing known"))


def _in_node(placed: Placement) -> int:
    return placed.group_size // placed.outer


def _switch_rate(placed: Placement) -> float:
    switch = placed.links.switch
    return switch.device_bytes_per_s if switch else math.inf
