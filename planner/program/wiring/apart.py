"""What it takes to write what a node would else compute in passing."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...fusion.nature import ELEMENTWISE, PRODUCTS, widens
from ...fusion.parts import FLOATS
from ...graph import Graph, Op, Sharding
from ...images import CONVOLUTION
from ...kernels import Kernel
from ...partition.layout import extends
from ..step.summed import images_summed
from .wires import Costs, Level, Wiring


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Who reads what of a level: its ``kernels`` by their nodes, ``readers`` how many read each value but for masks of
    it alone, which read what is ``masked``.
    """

    kernels: Mapping[int, Kernel]
    readers: Mapping[int, int]
    masked: Collection[int]


def written_apart(wiring: Wiring, level: Level, node: int, reading: Reading, *, narrow: bool) -> Costs:
    """Seconds of a step, by the choices of a node, of writing what that computes in passing: ``narrow`` as bfloat16.

    A convolution before leaves it beside its image, for what leaving both takes where that takes least. Where only
    masks or sums are made of the image besides, it leaves bits and sums instead, unless windows that go over what is
    written have it sent to neighbours. What has bits left for it is no convolution's.
    """
    made = wiring.nodes[node]
    run, bits = (np.zeros(len(made.costs)) if each is None else each for each in (made.apart, made.after))
    part, image = part_apart(level, node, reading)
    if image is None or part == 1.0:
        return np.maximum(part * run, bits)
    kernel, maker = reading.kernels[level.source[image].node], wiring.nodes[level.source[image].node]
    if all(level.graph.ops[number].kind != CONVOLUTION for number in kernel.ops):
        return np.maximum(part * run, bits)
    if part == 0.0 and image not in reading.masked and image not in images_summed(level.graph, kernel):
        return bits
    (value,) = reading.kernels[node].writes
    along = windows_along(level.graph, value)
    dtype = "bf16" if narrow else level.graph.values[value].dtype
    beside = maker.times * wiring.strategies.beside(level.graph, kernel, image, dtype)
    cheapest, both = dict[Sharding, float](), dict[Sharding, float]()
    several = list(zip(maker.layouts[image], maker.costs.tolist(), beside.tolist(), strict=True))
    known = [each for choice, each in enumerate(several) if choice not in maker.unsaved]
    lying = {lies for lies, *_ in known}
    for lies, alone_s, more_s in (*known, *(each for each in several if each[0] not in lying)):
        cheapest[lies] = min(cheapest.get(lies, alone_s), alone_s)
        both[lies] = min(both.get(lies, math.inf), alone_s + more_s)
    least = {lies: both[lies] - alone_s for lies, alone_s in cheapest.items()}
    is_left = [part > 0.0 or any(lies[dim] for dim in along) for lies in made.layouts[image]]
    pairs = zip(made.layouts[image], part * run, is_left, strict=True)
    found = np.array([max(least.get(lies, other), 0.0) if left else 0.0 for lies, other, left in pairs])
    return np.array(np.maximum(found, bits))


def part_apart(level: Level, node: int, reading: Reading) -> tuple[float, int | None]:
    """What part of running by itself it takes to write what a node computes in passing, and the product's value that it
    is computed with.

    All of it, unless a product before can compute it, whose value the node reads while nothing else that it reads is
    made of that: then nothing where nothing else reads the product's value, else only what is written, beside that.
    """
    kernels, own = reading.kernels, reading.kernels[node]
    made = level.graph.values[own.writes[0]]
    before = [value for value in own.reads if _is_of_product(level, kernels, value, made.num_elements)]
    for value in before:
        if _come_of(level, kernels, [other for other in own.reads if other != value], level.source[value].node):
            continue  # a product after that one
        if reading.readers.get(value, 0) == 1 and value not in level.graph.results:
            return 0.0, value
        read = sum(level.graph.values[each].num_bytes for each in own.reads)
        return made.num_bytes / max(made.num_bytes + read, 1), value
    return 1.0, before[0] if before else None


def _is_of_product(level: Level, kernels: Mapping[int, Kernel], value: int, num_elements: int) -> bool:
    """Whether a kernel with a product makes a value of so many elements."""
    maker = kernels.get(level.source[value].node) if value in level.source else None
    kinds = {level.graph.ops[number].kind for number in maker.ops} if maker is not None else set()
    return bool(kinds & PRODUCTS) and level.graph.values[value].num_elements == num_elements


def is_for_parts(wiring: Wiring, level: Level, value: int) -> bool:
    """Whether several that compute a value in passing have it written where some cut a part out of it, as numbers that
    are computed one by one are (``fusion/parts``). A program of several meshes does not say which parts are cut.
    """
    pricing = wiring.strategies.prices.pricing
    if pricing.counted or pricing.machine.platform == "gpu" or level.graph.values[value].dtype not in FLOATS:
        return False
    op = next(op for op in level.graph.ops if value in op.results)
    return op.kind in ELEMENTWISE and not widens(level.graph, op)


def is_part(lies: Sharding, wanted: Sharding) -> bool:
    """Whether a device that has its part of a value so cuts what is wanted of it out of that."""
    return lies != wanted and extends(wanted, lies)


def windows_along(graph: Graph, value: int) -> frozenset[int]:
    """The dims of an image along which windows go over it."""
    return frozenset(dim for op in graph.of_kind(CONVOLUTION) if op.operands[0] == value for dim in _along(graph, op))


def _along(graph: Graph, op: Op) -> Iterator[int]:
    said = op.attributes
    dims = zip(said.get("input_spatial_dimensions", ()), said.get("kernel_spatial_dimensions", ()), strict=True)
    yield from (dim for dim, place in dims if graph.shape(op.operands[1])[place] > 1)


def _come_of(level: Level, kernels: Mapping[int, Kernel], values: Sequence[int], maker: int) -> bool:
    """Whether some of these values are made of what a node makes."""
    seen, waiting = set[int](), list(values)
    while waiting:
        port = level.source.get(waiting.pop())
        if port is None or port.node in seen:
            continue
        if port.node == maker:
            return True
        seen.add(port.node)
        waiting += kernels[port.node].reads if port.node in kernels else ()
    return False
