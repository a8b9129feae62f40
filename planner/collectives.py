"""Seconds of a collective, predicted from where its groups lie.

``num_bytes`` is everywhere what one device holds of the collective, the larger of its operands and its results: the
gathered array of an all-gather, the unreduced one of a reduce-scatter, the reduced one of an all-reduce (V in the
literature, over the other axes' shares), and a device's own part of an all-to-all (V/n) and of a permute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import switch, torus
from .kinds import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    COLLECTIVE_BROADCAST,
    KINDS,
    RAGGED_ALL_TO_ALL,
    REDUCE_SCATTER,
)
from .placement import Placement
from .price import Price, added, at_once, free, in_turn

LINEAR, HIERARCHICAL = "linear", "2DH"
NETWORK = "the data-centre network"


@dataclass(frozen=True, slots=True, kw_only=True)
class RaggedPrice:
    """A ragged all-to-all: ``expected`` if the load is as skewed as said, ``worst`` if all send everything to one."""

    expected: Price
    worst: Price


def price(kind: str, num_bytes: float, placed: Placement) -> Price:
    """What a collective of this kind takes over groups placed so.

    An all-reduce is a reduce-scatter and an all-gather, outside slices or nodes on what each device has reduced
    (RS, AR, AG). A broadcast is taken as the gathering of its pieces. Raises ``ValueError`` for another kind; a
    permute is priced by its pairs (``routing.permute``).
    """
    priced: dict[str, Callable[[float, Placement], Price]] = {
        ALL_GATHER: _gather,
        REDUCE_SCATTER: _gather,
        COLLECTIVE_BROADCAST: _gather,
        ALL_REDUCE: _all_reduce,
        ALL_TO_ALL: _all_to_all,
        RAGGED_ALL_TO_ALL: _all_to_all,
    }
    if kind not in priced:
        raise ValueError(f"'{kind}' has no price by its groups; kinds are {', '.join(KINDS)}")
    return priced[kind](num_bytes, placed) if placed.group_size > 1 else free()


def all_to_all_choices(num_bytes: float, placed: Placement) -> tuple[Price, ...]:
    """The ways to run an all-to-all.

    Linear: every pair directly, a message to each of the n-m devices outside. Over several slices or nodes also 2DH
    (Tutel, appendix A): two stride copies, an all-to-all inside, one with the n/m peers outside in messages m times as
    long.
    """
    if placed.outer == 1:
        return (_inner_all_to_all(num_bytes, placed),)
    inside = placed.group_size // placed.outer
    outside_bytes = num_bytes * (placed.outer - 1) / placed.outer
    near = _inner_all_to_all(num_bytes / placed.outer, placed)
    linear = at_once(near, _direct(outside_bytes, placed.group_size - inside, placed)).named(LINEAR)
    if inside == 1:
        return (linear,)
    merged = _direct(outside_bytes, placed.outer - 1, placed)
    steps = (_stride_copies(num_bytes, placed), _inner_all_to_all(num_bytes, placed), merged)
    return linear, in_turn(HIERARCHICAL, *steps)


def ragged_all_to_all(num_bytes: float, placed: Placement, *, skew: float = 1.0) -> RaggedPrice:
    """An all-to-all whose parts differ in length; ``num_bytes`` is the mean that a device sends.

    ``skew`` is the busiest device's load over the mean (1: even). It bounds the slowdown, for no link has more than
    that factor over the even load.
    """
    return RaggedPrice(expected=_all_to_all(num_bytes * skew, placed), worst=_flood(num_bytes, placed))


def remote_copies(nodes: int, choices: int) -> float:
    """Of a token's copies to ``choices`` random experts the share that leaves its node.

    A node that holds several of the experts is sent one copy: (1 - ((Z-1)/Z)^K) (Z-1)/Z a node for Z nodes and K
    choices, Z nodes, K copies (scaling book, GPU chapter).
    """
    away = (nodes - 1) / nodes
    return (1 - away**choices) * away * nodes / choices


def _gather(num_bytes: float, placed: Placement) -> Price:
    if placed.links.torus is None:
        return switch.gather(placed, num_bytes)
    inner = torus.gather(placed, num_bytes)
    if placed.outer == 1:
        return inner
    own_bytes = num_bytes * placed.outer / placed.group_size
    outer = _direct(own_bytes * (placed.outer - 1) / placed.outer, placed.outer - 1, placed)
    return in_turn(f"between slices, then {inner.algorithm}", outer, inner)


def _all_reduce(num_bytes: float, placed: Placement) -> Price:
    if placed.links.torus is None:
        return switch.all_reduce(placed, num_bytes)
    return _gather(num_bytes, placed).times(2)


def _all_to_all(num_bytes: float, placed: Placement) -> Price:
    return min(all_to_all_choices(num_bytes, placed), key=lambda way: way.total_s)


def _inner_all_to_all(num_bytes: float, placed: Placement) -> Price:
    if placed.links.torus is None:
        return switch.all_to_all(placed, num_bytes)
    return torus.all_to_all(placed, num_bytes)


def _flood(num_bytes: float, placed: Placement) -> Price:
    inside = placed.group_size // placed.outer
    near = torus.flood(placed, num_bytes) if placed.links.torus else switch.flood(placed, num_bytes)
    far = placed.group_size - inside
    return at_once(near, _direct(num_bytes * far, far, placed)) if far else near


def _direct(num_bytes: float, messages: int, placed: Placement) -> Price:
    """``num_bytes`` a device over the data-centre network, in this many messages."""
    uplink = placed.links.uplink
    if uplink is None or not messages:
        return free()
    latency_s = uplink.latency_s + messages * uplink.message_s
    return added("direct", latency_s, num_bytes / uplink.device_bytes_per_s, NETWORK)


def _stride_copies(num_bytes: float, placed: Placement) -> Price:
    """Two copies within the device's memory, each read and written."""
    rate = placed.links.hbm_bytes_per_s
    return added("copy", 0.0, 4 * num_bytes / rate, "memory") if rate else free()
