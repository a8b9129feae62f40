"""What a device holds at least on whatever mesh of so many devices: worked out once, of a step that is not split."""

from __future__ import annotations

from ...dsl.plan import Mesh
from ..compute.speed import speed_of
from ..convolution_layout import convolutions_in
from ..estimate.traffic import tariff
from ..graph import Graph
from ..images import images
from ..memory.tight import TIGHT, is_tight
from ..partition.target import target
from ..topology import Machine
from .pricing.costs import Pricing
from .pricing.reshards import Reshards
from .pricing.strategies import REGION, Strategies
from .pricing.strategy_prices import StrategyPrices
from .rows.needs import needed_in_all
from .rows.usage import always_there, least_bytes
from .step.known import Known
from .wiring.wires import Wiring
from .wiring.wiring import wire

MOST_OPS = 20_000
"""Of steps of more operations too much would have to be known of what depends on what."""


def exceeds_anywhere(graph: Graph, mesh: Mesh, machine: Machine, limit_bytes: int, known: Known) -> bool:
    """Whether it is proven that a step takes more than a limit on every mesh of a machine, whatever is pinned: a device
    has no less than its part of what all of them hold together. Of the ``mesh`` that the graph is on nothing matters.
    """
    several = [graph, *(body for _, op, _ in graph.walk() for body in op.bodies)]
    if sum(value.num_bytes for each in several for value in each.values) <= limit_bytes * machine.num_devices:
        return False  # nor can more be there at once
    lent = is_tight(limit_bytes, machine.chip.hbm_bytes)  # then temporaries may lie where results will
    return _known_bytes(graph, mesh, machine, known, lent=lent) > limit_bytes


def least_anywhere(graph: Graph, mesh: Mesh, machine: Machine, known: Known) -> int:
    """The bytes of a device that a step is proven to take at least on every mesh of a machine, whatever is pinned."""
    apart = _known_bytes(graph, mesh, machine, known, lent=False)
    has_bytes = machine.chip.hbm_bytes
    if not is_tight(apart, has_bytes):
        return apart
    lent, most = _known_bytes(graph, mesh, machine, known, lent=True), int(TIGHT * (has_bytes or 0))
    return min(apart, max(lent, most))  # what is not tight takes no less than apart, which is more than that


def _known_bytes(graph: Graph, mesh: Mesh, machine: Machine, known: Known, *, lent: bool) -> int:
    """The same with temporaries where results will lie, or not; 0 of steps of which too much would have to be known."""
    several = [graph, *(body for _, op, _ in graph.walk() for body in op.bodies)]
    if any(op.kind == REGION for each in several for op in each.ops):
        return 0  # which says itself how it is split
    if sum(len(each.ops) for each in several) > MOST_OPS:
        return 0
    key = (id(graph.ops), machine.num_devices, lent)
    if key not in known.least_bytes:
        known.least_bytes[key] = _least_bytes(graph, mesh, machine, known, lent=lent)
    return known.least_bytes[key]


def _least_bytes(graph: Graph, mesh: Mesh, machine: Machine, known: Known, *, lent: bool) -> int:
    chip, wiring, devices = machine.chip, _whole(graph, mesh, machine, known), machine.num_devices
    level = wiring.levels[0]
    there = [level.values[value].num_bytes for _, value in always_there(wiring)]
    besides = there[: len(level.graph.arguments)] if lent else there
    needed = needed_in_all(wiring, with_results=lent, fast_bytes=chip.buffer_vmem_most_bytes * devices)
    beside_bytes = (sum(besides) + needed) // devices
    return max(sum(there) // devices, beside_bytes) + least_bytes(wiring, chip, devices)


def _whole(graph: Graph, mesh: Mesh, machine: Machine, known: Known) -> Wiring:
    """The wiring of a step that nothing splits, the same for every mesh."""
    chip, prices, is_gpu = machine.chip, tariff(mesh, machine, {}), machine.platform == "gpu"
    near_bytes, repeats = chip.buffer_vmem_bytes, chip.repeats_scores
    program, values = known.program(
        graph, near_bytes, (), repeats_scores=repeats, is_gpu=is_gpu, pads=machine.platform == "tpu"
    )
    speed = speed_of(chip, None)
    pricing = Pricing(machine=machine, speed=speed, tariff=prices, mesh={}, convolutions=convolutions_in(graph))
    strategies = Strategies(prices=StrategyPrices(pricing=pricing, pieces=pricing.pieces()), known=known)
    reshards = Reshards(
        mesh={}, tariff=prices, speed=speed, target=target(machine.platform, machine, 1), images=images(graph)
    )
    return wire(program, values, strategies, reshards, pins={}, returned={})
