"""Where the groups of a collective lie on the machine, read off the device numbers of their members.

Nothing of how the order was declared is needed: axes over parts of a dim, several axes on one dim and groups taken from
a compiled program are all told by the numbers. All groups are taken to communicate at the same time, as they do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .links import CORE, OUTER, Links, links_of
from .topology import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """How one group lies on one physical dim, of ``size`` positions.

    It has ``extent`` positions, neighbours ``stride`` apart. With the groups woven into the same stretch it fills
    ``block`` positions; ``ring`` says that this is all of a dim that joins its ends.
    """

    dim: str
    size: int
    extent: int
    stride: int
    block: int
    ring: bool

    @property
    def woven(self) -> int:
        """How many groups, this one among them, use the same links of this dim at the same time."""
        return self.block // self.extent

    @property
    def hops(self) -> int:
        """Links from a member to the farthest that it must reach: half round a ring, end to end of a line."""
        return self.extent // 2 * self.stride if self.ring else (self.extent - 1) * self.stride


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """How the groups of a collective lie on a machine.

    ``spans`` are of the dims along which a group has more than one position, in the machine's order; ``shared_with``
    the mesh's other axes that use links of the same dims (empty where no mesh is known); ``hosts`` whether a group
    reaches beyond one host.
    """

    group_size: int
    spans: tuple[Span, ...]
    hosts: bool
    links: Links
    shared_with: tuple[str, ...] = ()

    def extent(self, *dims: str) -> int:
        """How many positions a group has over these dims together."""
        return math.prod(span.extent for span in self.spans if span.dim in dims)

    @property
    def torus_spans(self) -> tuple[Span, ...]:
        """The spans on dims of the torus."""
        torus = self.links.torus
        return tuple(span for span in self.spans if torus and span.dim in torus.dims)

    @property
    def outer(self) -> int:
        """How many slices or nodes a group joins."""
        return self.extent(*OUTER)

    @property
    def cores(self) -> int:
        """How many devices of one chip belong to a group."""
        return self.extent(CORE)

    @property
    def forms_rings(self) -> bool:
        """Whether the group closes a ring on every torus dim that it lies on."""
        return bool(self.torus_spans) and all(span.ring for span in self.torus_spans)


def place(machine: Machine, groups: np.ndarray) -> Placement:
    """The placement of ``groups``, (groups, devices of each) device numbers."""
    places = np.unravel_index(np.asarray(groups), machine.sizes)
    links = links_of(machine)
    wraps = dict(zip(links.torus.dims, links.torus.wraps, strict=True)) if links.torus else {}
    laid = [
        _span(name, size, where, wraps.get(name, False))
        for (name, size), where in zip(machine.dims, places, strict=True)
        if size > 1
    ]
    spans = tuple(span for span in laid if span.extent > 1)
    return Placement(
        group_size=int(np.shape(groups)[1]),
        spans=spans,
        hosts=any(_leaves_host(span, machine) for span in spans),
        links=links,
    )


def _span(dim: str, size: int, where: np.ndarray, wraps: bool) -> Span:
    """The span of groups whose members stand at ``where`` (groups, members) along this dim."""
    in_order = np.sort(where, axis=1)
    steps = np.diff(in_order, axis=1)
    extent = 1 + int((steps > 0).sum(axis=1).max(initial=0))
    stride = int(steps[steps > 0].min(initial=size))
    first, last = in_order[:, 0], in_order[:, -1]
    divisors = (d for d in range(1, size + 1) if size % d == 0 and d % extent == 0)
    block = next((d for d in divisors if (first // d == last // d).all()), size)
    return Span(dim=dim, size=size, extent=extent, stride=stride, block=block, ring=wraps and block == size)


def _leaves_host(span: Span, machine: Machine) -> bool:
    if span.dim in OUTER:
        return True
    chip = machine.chip
    held = dict(zip(chip.dims, chip.host, strict=False)).get(span.dim)
    return held is not None and span.block > held
