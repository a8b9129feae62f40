"""What collectives take, beside published worked examples and measurements, and the laws that prices obey."""

import math
from typing import Any

import pytest
from extent import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from meshwright.planner import collectives as prices
from meshwright.planner.collectives import LINEAR, all_to_all_choices, price, ragged_all_to_all, remote_copies
from meshwright.planner.kinds import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    COLLECTIVE_BROADCAST,
    COLLECTIVE_PERMUTE,
    RAGGED_ALL_TO_ALL,
    REDUCE_SCATTER,
)
from meshwright.planner.placement import Placement
from networks import net, rewired, whole

GROUPED = [ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, ALL_TO_ALL, RAGGED_ALL_TO_ALL, COLLECTIVE_BROADCAST]
MIB = 2**20


def along(topology: str, over: str = "a", **axes: Any) -> Placement:
    return net(topology, **axes).placement(over)


# Worked examples of the scaling book, "Sharded matrices"


def test_a_gather_round_a_ring_takes_v_over_w() -> None:
    ring = price(ALL_GATHER, 34e6, along("v5e:16x16", a=16, b=16))
    assert ring.total_s == pytest.approx(377e-6, rel=0.01)
    assert (ring.algorithm, ring.bottleneck) == ("ring", "x")


def test_a_gather_along_a_line_of_four_takes_560_us() -> None:
    line = price(ALL_GATHER, 34e6, along("v5e:4x4", a=4, b=4))
    assert line.total_s == pytest.approx(560e-6, rel=0.02)
    closed = net(rewired("v5e:4x4", wraps=True), a=4, b=4).placement("a")
    assert price(ALL_GATHER, 34e6, closed).total_s == pytest.approx(377e-6, rel=0.01)


def test_a_tiny_gather_takes_its_three_hops() -> None:
    tiny = price(ALL_GATHER, 4 * 1024, along("v5e:4x4", a=4, b=4))
    assert tiny.total_s == pytest.approx(3e-6)


def test_a_hop_of_less_than_45_kb_waits_for_its_latency() -> None:
    ring = along("v5e:16x16", a=16, b=16)
    assert price(ALL_GATHER, 44e3 * 16, ring).total_s == ring.links.torus.hop_s * 8
    assert price(ALL_GATHER, 46e3 * 16, ring).total_s > ring.links.torus.hop_s * 8


def test_a_gather_over_two_rings_takes_half() -> None:
    one = price(ALL_GATHER, 1e9, along("v5e:16x16", a=16, b=16)).total_s
    two = price(ALL_GATHER, 1e9, along("v5e:16x16", "ab", a=16, b=16)).total_s
    assert two == pytest.approx(one / 2)


def test_an_all_to_all_round_a_ring_takes_a_quarter_of_a_gather() -> None:
    ring = along("v5e:16x16", a=16, b=16)
    gathered, exchanged = price(ALL_GATHER, 1e9, ring), price(ALL_TO_ALL, 1e9 / 16, ring)
    assert exchanged.total_s == pytest.approx(gathered.total_s / 4)


# GShard, Figure 9 and section 5.3, on v3

SIDES = {16: "v3:2x4", 128: "v3:8x8", 512: "v3:16x16", 2048: "v3:32x32"}


@pytest.mark.parametrize("num_bytes", [8 * MIB, 32 * MIB])
def test_an_all_reduce_is_flat_in_the_partitions(num_bytes: int) -> None:
    """The paper says constant; here the 2x4 chips of 16 partitions, which are no ring along x, are 17 % above."""
    took = [price(ALL_REDUCE, num_bytes, whole(topology)).total_s for topology in SIDES.values()]
    assert max(took) / min(took) < 1.2
    assert max(took[1:]) / min(took[1:]) < 1.01


@pytest.mark.parametrize("num_bytes", [8 * MIB, 32 * MIB])
def test_an_all_to_all_grows_as_the_square_root_of_the_partitions(num_bytes: int) -> None:
    """The paper measures 9 times for 128 times the partitions, and (Figure 8) 3.75 times for 16 times; 8 and 4 here."""
    took = {d: price(ALL_TO_ALL, num_bytes, whole(topology)).total_s for d, topology in SIDES.items()}
    assert took[2048] / took[16] == pytest.approx(9, rel=0.15)
    assert took[2048] / took[128] == pytest.approx(3.75, rel=0.1)
    assert took[2048] / took[128] == pytest.approx(math.sqrt(16), rel=0.01)


# JAX's own rules


def jax_bytes_and_hops(collective: Any, axes: tuple[str, ...], sides: dict[str, int]) -> tuple[int, int]:
    """What ``jax.experimental.roofline`` charges for a collective of 16 MiB, sharded over all axes, over ``axes``."""
    import jax
    from jax.experimental import roofline
    from jax.sharding import AbstractMesh, PartitionSpec

    spec = PartitionSpec(None, tuple(sides))
    mesh = AbstractMesh(tuple(sides.values()), tuple(sides))
    said = roofline.roofline(collective, mesh=mesh, in_specs=spec, out_specs=spec)
    _, result = said(jax.ShapeDtypeStruct((1024, 4096), "float32"))
    return result.ici_bytes[axes[0]], result.ici_latency[axes[0]]


@pytest.mark.parametrize("axes", [("a",), ("a", "b")])
def test_rings_take_what_jax_rooflines_say(axes: tuple[str, ...]) -> None:
    """But for the last hop: JAX counts n-1 shards where whole shards both ways make n/2 steps each."""
    import jax

    placed = along("v5e:16x16", "".join(axes), a=16, b=16)
    both_ways = 2 * placed.links.torus.link_bytes_per_s
    group = 16 ** len(axes)
    shard = 16 * MIB // 256

    charged, _ = jax_bytes_and_hops(lambda x: jax.lax.all_gather(x, axes), axes, {"a": 16, "b": 16})
    assert price(ALL_GATHER, shard * group, placed).bandwidth_s * both_ways == pytest.approx(charged, rel=1.1 / group)
    charged, _ = jax_bytes_and_hops(
        lambda x: jax.lax.psum_scatter(x, axes, scatter_dimension=0, tiled=True), axes, {"a": 16, "b": 16}
    )
    assert price(REDUCE_SCATTER, shard, placed).bandwidth_s * both_ways == pytest.approx(charged, rel=1.1 / group)


@pytest.mark.parametrize(("topology", "sides"), [("v5e:16x16", (16, 16)), ("v5p:4x8x4", (4, 8, 4))])
def test_all_to_alls_take_what_jax_rooflines_say(topology: str, sides: tuple[int, ...]) -> None:
    """JAX takes all dims but one for as long as the shortest, which these are."""
    import jax

    named = dict(zip("abc", sides, strict=False))
    axes = tuple(named)
    placed = along(topology, "".join(axes), **named)

    def exchange(x: Any) -> Any:
        return jax.lax.all_to_all(x, axes, 0, 0, tiled=True)

    charged, hops = jax_bytes_and_hops(exchange, axes, named)
    priced = price(ALL_TO_ALL, 16 * MIB // math.prod(sides), placed)
    assert priced.bandwidth_s * 2 * placed.links.torus.link_bytes_per_s == pytest.approx(charged, rel=1e-4)
    assert priced.latency_s == pytest.approx(hops * 1e-6)


# Switches and nodes


@pytest.mark.parametrize(("gpus", "gather", "reduce"), [(2, 537e9, 324e9), (4, 434e9, 236e9), (8, 394e9, 267e9)])
def test_h100_collectives_of_a_gigabyte_take_what_was_measured(gpus: int, gather: float, reduce: float) -> None:
    """nccl-tests fits of meta-pytorch/autoparallel. Two or four GPUs do not drive all of their links: a wide margin."""
    placed = whole(f"h100:{gpus}")
    margin = 0.08 if gpus == 8 else 0.5
    assert 1e9 / price(ALL_GATHER, 1e9, placed).bandwidth_s == pytest.approx(gather, rel=margin)
    assert 1e9 / price(ALL_REDUCE, 1e9, placed).bandwidth_s == pytest.approx(reduce, rel=margin)


@pytest.mark.parametrize(
    ("nodes", "latency_us", "rate"),
    [(2, 70, 410e9), (4, 146, 396e9), (8, 297, 390e9), (16, 599, 387e9), (32, 1204, 386e9)],
)
def test_rings_over_nodes_have_nccls_latency_and_rate(nodes: int, latency_us: float, rate: float) -> None:
    """NCCL 2.27's log, Simple protocol, eight H100 a node (meta-pytorch/autoparallel)."""
    from dataclasses import replace

    placed = whole(f"h100:8x{nodes}")
    simple = tuple(a for a in placed.links.algorithms if (a.name, a.protocol) == ("ring", "Simple"))
    priced = price(ALL_GATHER, 1e9, replace(placed, links=replace(placed.links, algorithms=simple)))
    assert priced.latency_s == pytest.approx(latency_us * 1e-6, rel=0.01)
    assert 1e9 / priced.bandwidth_s == pytest.approx(rate, rel=0.09)


def test_small_messages_take_the_low_latency_protocol() -> None:
    placed = whole("h100:8")
    assert price(ALL_GATHER, 1e4, placed).algorithm == "ring, LL"
    assert price(ALL_GATHER, 1e9, placed).algorithm == "ring, Simple"
    assert price(ALL_REDUCE, 1e9, placed).algorithm == "nvls, Simple"
    assert price(ALL_REDUCE, 1e9, whole("a100:8")).algorithm == "ring, Simple"


def test_two_level_all_to_alls_win_where_tutel_found_them_to() -> None:
    """Tutel, Figure 18: at 1 MiB from some nodes on, at 32 and 256 MiB only on many GPUs."""

    def wins(mib: int, gpus: int) -> bool:
        linear, two_level = all_to_all_choices(mib * MIB, whole(f"a100:8x{gpus // 8}"))
        assert linear.algorithm == LINEAR
        return two_level.total_s < linear.total_s

    assert [wins(1, gpus) for gpus in (64, 256, 512, 2048)] == [True] * 4
    assert [wins(32, gpus) for gpus in (16, 64, 2048)] == [False, False, True]
    assert [wins(256, gpus) for gpus in (16, 64, 256, 2048)] == [False, False, False, True]


def test_the_cheaper_all_to_all_is_taken() -> None:
    placed = whole("a100:8x64")
    assert price(ALL_TO_ALL, MIB, placed) == min(all_to_all_choices(MIB, placed), key=lambda way: way.total_s)


def test_slices_reduce_inside_first() -> None:
    """RS, AR, AG: between slices goes only what a device has reduced of its slice."""
    one, four = whole("v5e:16x16"), whole("4*v5e:16x16")
    uplink = four.links.uplink
    between_s = 2 * (1e9 / 256 * 3 / 4 / uplink.device_bytes_per_s + uplink.latency_s + 3 * uplink.message_s)
    assert price(ALL_REDUCE, 1e9, four).total_s == pytest.approx(price(ALL_REDUCE, 1e9, one).total_s + between_s)


def test_cores_share_their_chips_links() -> None:
    one = price(ALL_TO_ALL, 1e8, along("v3:4x4", a=4, b=8))
    both = price(ALL_TO_ALL, 1e8, along("v3:4x4", a=(8, "x core"), b=4))
    assert both.total_s == pytest.approx(one.total_s)  # each core's own bytes cross a link


def test_one_ring_through_both_cores_of_chips() -> None:
    """What both cores gather crosses a link once: 2 w a group, as a chip of one device has it."""
    one, both = along("v3:4x4", a=4, b=8), along("v3:4x4", a=(8, "x core"), b=4)
    assert price(ALL_GATHER, 1e8, one).total_s == pytest.approx(2 * price(ALL_GATHER, 1e8, both).total_s)
    assert price(ALL_GATHER, 1e8, both).total_s == pytest.approx(1e8 / (2 * both.links.torus.link_bytes_per_s))
    assert price(ALL_GATHER, 1e8, whole("v3:4x4")).total_s == pytest.approx(price(ALL_GATHER, 1e8, both).total_s)


def test_the_other_core_is_reached_within_the_chip() -> None:
    assert price(ALL_GATHER, 1e8, along("v3:4x4", "c", a=16, c=(2, "core"))).bottleneck == "core"


# Laws

TPUS = ["v2:4x4", "v3:4x4", "v4:2x2x4", "v5e:16x16", "v5p:4x4x4", "v6e:4x8", "tpu7x:4x4x4", "2*v5e:4x4", "4*v3:2x2"]
MACHINES = [*TPUS, "h100:8", "h100:8x4", "a100:4x2", "b200:8x2", "cpu:8", "cpu:2x3"]


@given(st.sampled_from(MACHINES), st.sampled_from(GROUPED), st.integers(0, 2**36), st.integers(0, 2**36))
@settings(deadline=None)
def test_more_bytes_never_take_less(topology: str, kind: str, some: int, other: int) -> None:
    placed = whole(topology)
    less, more = (price(kind, num_bytes, placed).total_s for num_bytes in sorted((some, other)))
    assert 0 <= less <= more
    assert math.isfinite(more)


@given(st.sampled_from(TPUS), st.integers(1, 2**36))
@settings(deadline=None)
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(topology: str, num_bytes: int) -> None:
    placed = whole(topology)
    halves = price(REDUCE_SCATTER, num_bytes, placed).total_s + price(ALL_GATHER, num_bytes, placed).total_s
    assert price(ALL_REDUCE, num_bytes, placed).total_s == pytest.approx(halves)


@given(st.sampled_from(["h100:8", "h100:8x4", "a100:4x2"]), st.integers(1, 2**36))
@settings(deadline=None)
def test_an_all_reduce_over_nvlink_is_no_slower_than_its_halves(topology: str, num_bytes: int) -> None:
    placed = whole(topology)
    halves = price(REDUCE_SCATTER, num_bytes, placed).total_s + price(ALL_GATHER, num_bytes, placed).total_s
    assert price(ALL_REDUCE, num_bytes, placed).total_s <= halves * (1 + 1e-9)


@st.composite
def cut(draw: st.DrawFn) -> tuple[str, dict[str, int]]:
    topology = draw(st.sampled_from([t for t in TPUS if "*" not in t]))
    left, axes = whole(topology).group_size, {}
    for name in "ab":
        axes[name] = draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0]))
        left //= axes[name]
    return topology, {**axes, "c": left}


@given(cut(), st.sampled_from([ALL_GATHER, ALL_TO_ALL, ALL_REDUCE]), st.integers(1, 2**32))
@settings(deadline=None, max_examples=examples(66, 200))
def test_joined_ends_never_make_it_slower(case: tuple[str, dict[str, int]], kind: str, num_bytes: int) -> None:
    topology, axes = case
    for over in ("a", "b", "c", "ab", "bc"):
        open_ended, closed = (
            price(kind, num_bytes, net(rewired(topology, wraps=wraps), **axes).placement(over))
            for wraps in (False, True)
        )
        assert closed.total_s <= open_ended.total_s * (1 + 1e-9)


@given(cut(), st.integers(1, 2**36))
@settings(deadline=None, max_examples=examples(66, 200))
def test_gathering_over_two_axes_at_once_is_no_slower_than_in_turn(
    case: tuple[str, dict[str, int]], num_bytes: int
) -> None:
    topology, axes = case
    laid = net(topology, **axes)
    assume(laid.placement("ab").cores == 1)  # what several devices of a chip need could cross its links once, in turn
    at_once = price(ALL_GATHER, num_bytes, laid.placement("ab")).total_s
    first = price(ALL_GATHER, num_bytes / axes["b"], laid.placement("a")).total_s
    second = price(ALL_GATHER, num_bytes, laid.placement("b")).total_s
    assert at_once <= (first + second) * (1 + 1e-9)


@given(cut(), st.integers(2**20, 2**36))
@settings(deadline=None, max_examples=examples(66, 200))
def test_no_gather_beats_what_its_devices_can_take_in(case: tuple[str, dict[str, int]], num_bytes: int) -> None:
    topology, axes = case
    for over in ("a", "ab", "abc"):
        placed = net(topology, **axes).placement(over)
        chips = placed.group_size // placed.cores
        ports = 2 * sum(1 for _ in placed.torus_spans)
        if chips > 1:
            bound_s = num_bytes * (chips - 1) / chips / (ports * placed.links.torus.link_bytes_per_s)
            assert price(ALL_GATHER, num_bytes, placed).total_s >= bound_s * (1 - 1e-9)


def test_the_device_order_changes_the_price() -> None:
    """An axis of 16 along one ring, over squares of chips, and woven into the others' links."""
    ring = along("v5e:16x16", a=16, b=16)
    square = along("v5e:16x16", "b", a=16, b=(16, "x:4 y:4"))
    woven = along("v5e:16x16", a=(16, "x:4 y:4"), b=16)
    exchanged = [price(ALL_TO_ALL, 1e8, placed).total_s for placed in (ring, square, woven)]
    assert exchanged == pytest.approx([exchanged[0], exchanged[0] / 2, exchanged[0]])
    gathered = [price(ALL_GATHER, 1e9, placed).total_s for placed in (ring, square, woven)]
    assert gathered == pytest.approx([gathered[0], gathered[0] * 15 / 16, gathered[0] * 2])


def test_a_group_of_one_costs_nothing() -> None:
    placed = along("v5e:4x4", "b", a=16, b=1)
    assert all(price(kind, 1e9, placed).total_s == 0 for kind in GROUPED)


def test_a_permute_has_no_price_by_its_groups() -> None:
    with pytest.raises(ValueError, match="'collective-permute' has no price by its groups"):
        price(COLLECTIVE_PERMUTE, 1.0, whole("v5e:4x4"))


# Ragged


@given(st.sampled_from(MACHINES), st.integers(1, 2**30), st.floats(1, 4))
@settings(deadline=None)
def test_skew_costs_and_the_worst_is_worse(topology: str, num_bytes: int, skew: float) -> None:
    placed = whole(topology)
    even, skewed = (ragged_all_to_all(num_bytes, placed, skew=s) for s in (1.0, skew))
    assert even.expected == price(ALL_TO_ALL, num_bytes, placed)
    assert even.expected.total_s <= skewed.expected.total_s * (1 + 1e-9)
    assert even.worst.total_s >= even.expected.bandwidth_s * (1 - 1e-9)


@pytest.mark.parametrize(("nodes", "choices"), [(2, 1), (4, 2), (8, 2), (3, 4)])
def test_the_share_of_copies_that_leave_is_what_enumerating_finds(nodes: int, choices: int) -> None:
    import itertools

    drawn = list(itertools.product(range(nodes), repeat=choices))
    away = sum(len(set(nodes_of) - {0}) for nodes_of in drawn) / len(drawn)
    assert remote_copies(nodes, choices) == pytest.approx(away / choices)


def test_every_kind_of_the_vocabulary_is_priced_or_refused() -> None:
    from meshwright.planner.kinds import KINDS

    assert {*GROUPED, COLLECTIVE_PERMUTE} == set(KINDS)
    assert prices.KINDS is KINDS
