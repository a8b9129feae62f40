"""Link loads of permutes and all-to-alls, against counting them link by link."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.plan import Axis, Mesh
from meshwright.planner import torus
from meshwright.planner.estimate.traffic import tariff
from meshwright.planner.graph import Op
from meshwright.planner.kinds import COLLECTIVE_PERMUTE
from meshwright.planner.links import links_of
from meshwright.planner.routing import permute, traffic
from meshwright.planner.topology import Machine, physical
from networks import net, rewired
from oracles.link_loads import busiest

SMALL = ["v5e:4x4", "v5e:2x8", "v3:2x4", "v3:4x4", "v5p:2x2x4", "v5p:4x4x4", "v4:2x2x2", "2*v3:2x4"]


def wired(machine: Machine) -> dict[str, bool]:
    joined = links_of(machine).torus
    return dict(zip(joined.dims, joined.wraps, strict=True))


@given(st.sampled_from(SMALL), st.booleans(), st.data())
@settings(max_examples=60, deadline=None)
def test_permutes_load_the_links_that_counting_finds(topology: str, wraps: bool, data: st.DataObject) -> None:
    machine = rewired(topology, wraps=wraps)
    count = machine.num_devices
    pairs = np.stack([np.arange(count), data.draw(st.permutations(range(count)))], axis=1)
    slice_of = [machine.coordinates(n).get("slice", 0) for n in range(count)]
    inside = [(int(a), int(b), 1.0) for a, b in pairs if slice_of[a] == slice_of[b]]
    counted = busiest(machine, wired(machine), inside, halve=False)
    assert {dim: load for dim, load in traffic(machine, pairs).dims.items() if load} == counted


AXES: list[tuple[str, dict[str, Any], str]] = [
    ("v5e:4x4", {"a": 4, "b": 4}, "a"),
    ("v5e:4x4", {"a": 16}, "a"),
    ("v5e:2x8", {"a": 2, "b": 8}, "ab"),
    ("v5e:2x8", {"a": 2, "b": 2, "c": 4}, "b"),
    ("v5e:8x8", {"a": 2, "b": 2, "c": 2, "d": 8}, "ac"),
    ("v5e:8x8", {"a": (8, "x:4 y:2"), "b": 8}, "a"),
    ("v5e:8x8", {"a": (8, "x:4 y:2"), "b": 8}, "b"),
    ("v5e:12x8", {"a": 3, "b": 4, "c": 8}, "a"),
    ("v5e:12x8", {"a": 4, "b": 3, "c": 8}, "b"),
    ("v5e:6x2", {"a": 6, "b": 2}, "a"),
    ("v3:2x4", {"a": 2, "b": 4, "c": 2}, "b"),
    ("v3:2x4", {"a": 2, "b": 8}, "b"),
    ("v3:4x4", {"a": 32}, "a"),
    ("v5p:4x4x4", {"a": 4, "b": 16}, "b"),
    ("v5p:4x4x4", {"a": (16, "z x"), "b": 4}, "a"),
    ("v5p:2x2x4", {"a": 16}, "a"),
]


@pytest.mark.parametrize("wraps", [True, False])
@pytest.mark.parametrize(("topology", "axes", "over"), AXES)
def test_an_all_to_alls_bytes_take_what_its_busiest_link_takes(
    topology: str, axes: dict[str, Any], over: str, wraps: bool
) -> None:
    """Exactly: no tolerance is needed."""
    laid = net(rewired(topology, wraps=wraps), **axes)
    groups = laid.groups(over).tolist()
    share = 1e6 / len(groups[0])
    messages = [(a, b, share) for group in groups for a in group for b in group if a != b]
    counted = max(busiest(laid.machine, wired(laid.machine), messages, halve=True).values())
    placed = laid.placement(over)
    priced = torus.all_to_all(placed, 1e6)
    assert priced.bandwidth_s == pytest.approx(counted / placed.links.torus.link_bytes_per_s)


@given(st.sampled_from([4, 6, 8, 16]), st.booleans(), st.integers(1, 3))
def test_a_shift_goes_once_round_a_ring_and_back_along_a_line(size: int, wraps: bool, by: int) -> None:
    laid = net(rewired(f"v5e:{size}x2", wraps=wraps), a=size, b=2)
    open_ended = permute(laid.machine, laid.shift("a", by), 9e6)
    closed = permute(laid.machine, laid.shift("a", by, around=True), 9e6)
    rate = links_of(laid.machine).torus.link_bytes_per_s
    reach = min(by, size - by)
    assert open_ended.bandwidth_s == pytest.approx(9e6 / rate * min(by, size - by))
    assert closed.total_s >= open_ended.total_s
    assert closed.latency_s == pytest.approx(1e-6 * (min(reach, size - reach) if wraps else max(by, size - by)))


def test_a_halo_is_constant_in_the_devices() -> None:
    """GShard section 5.3: collective-permute between neighbours is O(1)."""
    prices = []
    for side in (4, 8, 16, 32):
        laid = net(f"v3:{side}x{side}", a=side, b=2 * side)
        prices.append(permute(laid.machine, laid.shift("a", around=True), 2**20).total_s)
    assert max(prices) == min(prices)


def test_messages_within_a_chip_and_between_slices_do_not_load_the_torus() -> None:
    machine = physical(parse_topology("2*v3:2x2"))
    within = traffic(machine, np.array([[0, 1], [1, 0]]))
    between = traffic(machine, np.array([[0, 8], [1, 9]]))
    assert (max(within.dims.values()), within.within, within.between) == (0, 1, 0)
    assert (max(between.dims.values()), between.within, between.between) == (0, 0, 1)
    nodes = traffic(physical(parse_topology("h100:8x2")), np.array([[0, 1], [0, 9], [1, 9]]))
    assert (nodes.within, nodes.between) == (1, 2)


def test_nothing_moves_for_nothing() -> None:
    machine = physical(parse_topology("v5e:4x4"))
    assert permute(machine, np.array([[3, 3]]), 1e9).total_s == 0
    assert permute(machine, np.zeros((0, 2), dtype=int), 1e9).total_s == 0


def test_permutes_of_one_way_are_routed_once_whatever_dims_they_are_of() -> None:
    """Neighbours' say where their pieces go (``target``), and are priced as any."""
    mesh = Mesh(axes=(Axis(name="a", size=4), Axis(name="b", size=4)))
    prices = tariff(mesh, physical(parse_topology("v5e:4x4")), {})

    def took(axes: tuple[str, ...], **said: object) -> float:
        op = Op(kind=COLLECTIVE_PERMUTE, attributes={"axes": axes, "dimensions": (), **said})
        return prices.price(op, COLLECTIVE_PERMUTE, 1 << 20).total_s

    first = took(("a", "b"), source=(("a",), ("b",)), target=(("b",), ("a",)))
    assert took(("a", "b"), source=((), ("a", "b")), target=(("b", "a"), ())) == first
    assert len(prices.routed) == 1
    assert took(("a", "b"), source=(("a", "b"),), target=(("a", "b"),)) == 0.0 != first
    halo = took(("a",))
    assert took(("a",), target=(3, 7, 0)) == halo > 0
    assert took(("a",), around=True) > 0
    assert len(prices.routed) == 4
