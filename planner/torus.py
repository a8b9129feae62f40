"""Collectives on a torus or mesh of links, and between the devices of one chip.

V is what a member holds of the gathered array, n the positions of a group along a dim, w a link's bandwidth one way.
Groups woven into one another (``Span.woven``) share each link, and so do the devices of one chip: what several of them
need crosses a link once for each, unless their group is of whole chips: the TPU compiler (libtpu 0.0.51) then gathers
in one ring through all of its devices, which on two dims of a v3 comes to the same and on one is twice as fast.
"""

from __future__ import annotations

import math

from .placement import Placement, Span
from .price import Price, at_once, free, hidden

RING, LINE, CHIP = "ring", "line", "within a chip"


def gather(placed: Placement, num_bytes: float) -> Price:
    """An all-gather of which each device ends with ``num_bytes``; a reduce-scatter is the same backwards.

    One dim: n//2 steps of whole shards both ways round a ring, n-1 along a line; a step takes its hops' latency or its
    bytes' time, so V/(2w) at even n and V(n-1)/(nw) (scaling book, "Sharded matrices", its 377 and 560 us). Several
    dims: the array is cut, each piece goes round the dims in another order, and rates add (there; JAX's roofline
    rules), but no device takes in its V(N-1)/N faster than all its links together.
    """
    return at_once(_gather_links(placed, num_bytes), _within_chip(placed, num_bytes))


def all_to_all(placed: Placement, num_bytes: float) -> Price:
    """An all-to-all of which each device holds ``num_bytes`` (V/N), each pair's share taking a shortest way.

    The busiest link of a dim carries floor(n^2/4)/(2n) of what stands at each position for a ring and twice that for a
    line; the dims work at the same time: V max(n)/(4N 2w) (scaling book; GShard section 5.3, O(sqrt D) on two dims).
    """
    return at_once(_exchange_links(placed, num_bytes), _within_chip(placed, num_bytes))


def flood(placed: Placement, num_bytes: float) -> Price:
    """Every member sends all of its ``num_bytes`` to one: what that one's links can take in."""
    spans = placed.torus_spans
    others = placed.group_size // placed.outer - 1
    if not spans or others < 1:
        return _within_chip(placed, num_bytes * placed.cores)
    rate = sum(_ports(span) * _link(placed) / span.woven for span in spans)
    return hidden(_name(spans), _latency(placed), num_bytes * others / rate, spans[-1].dim)


def _gather_links(placed: Placement, num_bytes: float) -> Price:
    spans = placed.torus_spans
    if not spans:
        return free(CHIP)
    link = _link(placed)
    chips = math.prod(span.extent for span in spans)
    alone = [_steps(span) / span.extent * span.woven / link for span in spans]
    rate = sum(_ports(span) * link / span.woven for span in spans)
    together = max(1 / sum(1 / each for each in alone), (chips - 1) / chips / rate)
    if placed.cores == placed.links.cores:
        together = min(together, _one_ring(placed, chips))
    return hidden(_name(spans), _latency(placed), num_bytes * together, spans[alone.index(max(alone))].dim)


def _one_ring(placed: Placement, chips: int) -> float:
    """Seconds a byte through all devices of a group of whole chips, one after the other: a link carries it once."""
    torus, spans = placed.links.torus, placed.torus_spans
    if torus is None:
        return math.inf
    steps = chips // 2 if len(spans) > 1 or spans[0].ring else chips - 1
    return steps / chips * max(span.woven for span in spans) / torus.link_bytes_per_s


def _within_chip(placed: Placement, num_bytes: float) -> Price:
    """What the devices of a chip hand each other: of c devices, each takes in (c-1)/c of its bytes either way."""
    switch, cores = placed.links.switch, placed.cores
    if switch is None or cores == 1:
        return free(CHIP)
    return hidden(CHIP, switch.hop_s, num_bytes * (cores - 1) / cores / switch.device_bytes_per_s, "core")


def _exchange_links(placed: Placement, num_bytes: float) -> Price:
    spans = placed.torus_spans
    if not spans:
        return free(CHIP)
    loads = [_exchange_load(span) * span.woven for span in spans]
    busiest = spans[loads.index(max(loads))]
    return hidden(_name(spans), _latency(placed), num_bytes * max(loads) / _link(placed), busiest.dim)


def _exchange_load(span: Span) -> float:
    crossing = span.extent**2 // 4
    return crossing / (2 * span.extent) if span.ring else crossing / span.extent


def _link(placed: Placement) -> float:
    """A link's bandwidth for one of a chip's devices."""
    torus = placed.links.torus
    return torus.link_bytes_per_s / placed.links.cores if torus else math.inf


def _latency(placed: Placement) -> float:
    torus = placed.links.torus
    return torus.hop_s * sum(span.hops for span in placed.torus_spans) if torus else 0.0


def _steps(span: Span) -> int:
    return span.extent // 2 if span.ring else span.extent - 1


def _ports(span: Span) -> int:
    return 2 if span.ring else 1


def _name(spans: tuple[Span, ...]) -> str:
    kind = RING if all(span.ring for span in spans) else LINE
    return kind if len(spans) == 1 else f"{kind}s over {len(spans)} dims"
