"""Which links messages cross: each goes the shortest way, one torus dim after another, in the machine's order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .links import CORE, OUTER, Links, Torus, links_of
from .price import Price, at_once, free, hidden
from .topology import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The busiest of each sort of link, in messages, and the longest way, in hops of the torus.

    ``dims`` are messages over one link one way, by dim of the torus; ``within`` what one device sends or takes within
    its chip or node, ``between`` what it sends or takes over the data-centre network.
    """

    dims: dict[str, int]
    hops: int
    within: int
    between: int


def traffic(machine: Machine, pairs: np.ndarray) -> Traffic:
    """What ``pairs``, (pairs, 2) device numbers from and to, put on the links when all go at the same time."""
    links = links_of(machine)
    pairs = np.asarray(pairs).reshape(-1, 2)
    sources, targets = (np.array(np.unravel_index(end, machine.sizes)) for end in pairs.T)
    names = [name for name, _ in machine.dims]
    outside = _differ(sources, targets, [i for i, name in enumerate(names) if name in OUTER])
    along = [i for i, name in enumerate(names) if name not in (CORE, *OUTER)]
    routed = _differ(sources, targets, along) & ~outside if links.torus else np.zeros(len(pairs), dtype=bool)
    within = (pairs[:, 0] != pairs[:, 1]) & ~outside & ~routed
    loads, hops = _route(links.torus, machine, sources[:, routed], targets[:, routed]) if links.torus else ({}, 0)
    return Traffic(dims=loads, hops=hops, within=_busiest(pairs[within]), between=_busiest(pairs[outside]))


def permute(machine: Machine, pairs: np.ndarray, num_bytes: float) -> Price:
    """A collective-permute of ``num_bytes`` a device, such as a halo exchange: the busiest link's bytes.

    O(1) in the devices for neighbours on the torus (GShard section 5.3).
    """
    return price_of(machine, traffic(machine, pairs), num_bytes)


def price_of(machine: Machine, moved: Traffic, num_bytes: float) -> Price:
    """What messages of ``num_bytes`` each take."""
    links = links_of(machine)
    return at_once(_over_torus(links, moved, num_bytes), *_over_others(links, moved, num_bytes))


def _over_torus(links: Links, moved: Traffic, num_bytes: float) -> Price:
    most = max(moved.dims.values(), default=0)
    if links.torus is None or not most:
        return free("nothing moves")
    busiest = next(dim for dim, load in moved.dims.items() if load == most)
    return hidden(
        "shortest ways", links.torus.hop_s * moved.hops, num_bytes * most / links.torus.link_bytes_per_s, busiest
    )


def _over_others(links: Links, moved: Traffic, num_bytes: float) -> list[Price]:
    parts = []
    if links.switch and moved.within:
        took_s = num_bytes * moved.within / links.switch.device_bytes_per_s
        parts.append(hidden("direct", links.switch.hop_s, took_s, "the switch" if links.torus is None else CORE))
    if links.uplink and moved.between:
        took_s = num_bytes * moved.between / links.uplink.device_bytes_per_s
        parts.append(hidden("direct", links.uplink.latency_s, took_s, "the data-centre network"))
    return parts


def _differ(sources: np.ndarray, targets: np.ndarray, dims: list[int]) -> np.ndarray:
    return np.asarray((sources[dims] != targets[dims]).any(axis=0), dtype=bool)


def _busiest(pairs: np.ndarray) -> int:
    return max((int(np.bincount(end).max()) for end in pairs.T if len(end)), default=0)


def _route(torus: Torus, machine: Machine, sources: np.ndarray, targets: np.ndarray) -> tuple[dict[str, int], int]:
    """The busiest link of each dim, and the hops of the longest way."""
    at = sources.copy()
    kept = [i for i, (name, _) in enumerate(machine.dims) if name != CORE]
    hops = np.zeros(at.shape[1], dtype=np.int64)
    loads = {}
    for i, (name, size) in enumerate(machine.dims):
        if name in torus.dims:
            ring = torus.wraps[torus.dims.index(name)]
            others = [k for k in kept if k != i]
            shape = tuple(machine.sizes[k] for k in others)
            lines = np.ravel_multi_index(tuple(at[others]), shape) if others else np.zeros(at.shape[1], dtype=np.int64)
            steps = _steps(at[i], targets[i], size, ring)
            loads[name] = _most(lines, at[i], steps, size, int(np.prod(shape, dtype=np.int64)))
            hops += np.abs(steps)
            at[i] = targets[i]
    return loads, int(hops.max(initial=0))


def _steps(start: np.ndarray, end: np.ndarray, size: int, ring: bool) -> np.ndarray:
    """Hops along a dim, negative downwards; half way round a ring goes upwards."""
    if not ring:
        return np.asarray(end - start)
    up = (end - start) % size
    return np.asarray(np.where(up <= size - up, up, up - size))


def _most(lines: np.ndarray, start: np.ndarray, steps: np.ndarray, size: int, num_lines: int) -> int:
    """The most messages over one link one way; link k joins positions k and k+1 of its line."""
    return max(
        _covered(lines[steps > 0], start[steps > 0], steps[steps > 0], size, num_lines),
        _covered(lines[steps < 0], (start + steps)[steps < 0] % size, -steps[steps < 0], size, num_lines),
    )


def _covered(lines: np.ndarray, first: np.ndarray, count: np.ndarray, size: int, num_lines: int) -> int:
    """The most intervals of ``count`` links from ``first`` on, round the ends, that hold one link."""
    if not len(lines):
        return 0
    change = np.zeros((num_lines, 2 * size + 1), dtype=np.int64)
    np.add.at(change, (lines, first), 1)
    np.add.at(change, (lines, first + count), -1)
    cover = change.cumsum(axis=1)
    return int((cover[:, :size] + cover[:, size : 2 * size]).max())
