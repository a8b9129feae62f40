"""What of a machine decides how the compiler communicates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ...dsl.records import record
from ..links import CORE, OUTER
from ..topology import Machine
from .layout import Mesh, ways

WINDOW_FLOPS_PER_BYTE: Mapping[str, float] = MappingProxyType(
    {"v4": 1520.0, "v5e": 2130.0, "v5p": 2130.0, "v6e": 4800.0, "tpu7x": 4800.0}
)
"""Where libtpu 0.0.51 begins to make such loops, found by bisection over the size of products on each chip."""
ONE_HOST_CHIPS, ONE_HOST_RATIO = 4, 3.0
"""On a single host of v4, and of v4 alone, where it needs more operations to begin."""

FEWEST_PARTS = 8
FEWEST_PARTS_OF: Mapping[str, int] = MappingProxyType({"v4": 4, "v5e": 4, "v5p": 4, "v6e": 4})
"""It makes none for fewer parts, as seen on each chip of more than one host. On one host it needs ``FEWEST_PARTS``."""
EXCHANGES_LATE = frozenset({"v6e"})
"""Gradients of bf16[512,8192] over four by four devices, and of seven others, are scattered or not as their products
stand in the step there, and as they are stored on v3, v4, v5e and v5p.
"""
CONVOLVED_IN_MORE = frozenset({"v4"})
"""Where convolutions need ``FEWEST_PARTS``: three nets with kernels in four parts have no loop, one in eight has."""

RING_BYTES = 57 * 2**18
"""Memory that the pieces of one ring share, four more than it has devices: read off libtpu 0.0.51's shapes."""
LARGE_RING_BYTES = 29 * 2**20
"""The same on v6e."""
NO_RING_BYTES = 2**62
"""Enough for any parts whole: TPU7x's other cores send narrow numbers unpadded (bf16[1024,32768] of a tied head), and
others in pieces (f32[2048,8192] of an MLP, f32[4096,16384] over 16 devices).
"""

FEWEST_ROWS: Mapping[str, int] = MappingProxyType({"v4": 64, "v5e": 64})
"""Of sums whose last dim is one, what labels look up: of 48 rows each is laid out alone, and none is scattered; v3 has
them in tiles. v5p, v6e and TPU7x look up on other cores.
"""
FEWEST_SUMMED = 64
"""Devices of a slice from which on gathers of all of it are sums: of 48 they are none."""
MOST_SUMMED_BYTES = 16 * 2**20
"""On a torus of two dims, such gathers of no more: 16 MiB are a sum, 17 are gathered, of 64 devices to 512 (v3, v5e,
v6e). On one of three dims of any size, as seen up to 2 GiB.
"""


@record(frozen=True, slots=True)
class Target:
    """``scatters_whole``: a sum over all devices whose parts are kept apart is one ring's reduce-scatter.

    The TPU compiler fuses a sum with the slice of it that a device keeps where it runs over one ring: for every group
    smaller than the machine, and for all of a machine of one dim, or of two that differ (or two by two chips of one
    core), or whose chips have other cores for collectives (TPU7x). ``devices`` is how many there are.
    ``window_flops_per_byte`` is how many operations of a product hide a byte of its collective in a loop of permutes,
    ``fewest_parts`` of how many parts, ``fewest_convolved`` for convolutions; None where the compiler makes no such
    loops. ``ring_bytes`` is what a ring's pieces may fill, ``narrow_ring_bytes`` of less than 32 bits.
    ``summed_devices`` is how many devices' gathers are sums, those of a whole slice, and ``summed_bytes`` of how many
    bytes at most; None where none are, and where all are. What a product makes that a transpose turns lies as the step
    has it when sums are scattered where the compiler ``exchanges_late`` its operands, else as the transpose leaves it.
    Of a sum whose last dim is one no fewer than ``fewest_rows`` are scattered.
    """

    devices: int
    is_tpu: bool = True
    scatters_whole: bool = True
    window_flops_per_byte: float | None = None
    fewest_parts: int = FEWEST_PARTS
    fewest_convolved: int = FEWEST_PARTS
    ring_bytes: int = RING_BYTES
    narrow_ring_bytes: int = RING_BYTES
    summed_devices: int | None = None
    summed_bytes: int | None = MOST_SUMMED_BYTES
    exchanges_late: bool = False
    fewest_rows: int = 0

    @property
    def may_sum_gathers(self) -> bool:
        """Whether any gather becomes a sum."""
        return self.is_tpu and self.summed_devices is not None

    def sums_gather(self, axes: Iterable[str], mesh: Mesh, num_bytes: int) -> bool:
        """Whether so many bytes gathered along these axes are a sum of what devices have among zeros."""
        if not self.may_sum_gathers or ways(axes, mesh) != self.summed_devices:
            return False
        return self.summed_bytes is None or num_bytes <= self.summed_bytes

    def may_scatter(self, axes: Iterable[str], mesh: Mesh) -> bool:
        """Whether a sum along these axes of which each device keeps a part becomes a reduce-scatter."""
        return self.is_tpu and (self.scatters_whole or ways(axes, mesh) < self.devices)


def target(platform: str, machine: Machine | None, devices: int) -> Target:
    """The target for a machine, or for its platform alone where it is not known."""
    if machine is None:
        return Target(devices, is_tpu=platform == "tpu")
    sizes = [size for name, size in machine.dims if size > 1 and name not in (CORE, *OUTER)]
    cores = dict(machine.dims).get(CORE, 1)
    square = [2, 2] if cores == 1 else []
    in_slice = math.prod(size for name, size in machine.dims if name not in OUTER)
    one_ring = len(sizes) < 2 or (len(sizes) == 2 and (sizes[0] != sizes[1] or sizes == square))
    fewest = _fewest(machine.topology.kind, math.prod(machine.sizes) // cores)
    ring_bytes = LARGE_RING_BYTES if machine.topology.kind == "v6e" else RING_BYTES
    return Target(
        devices=math.prod(machine.sizes),
        is_tpu=machine.platform == "tpu",
        scatters_whole=one_ring or machine.offloads_collectives,
        fewest_parts=fewest,
        fewest_convolved=FEWEST_PARTS if machine.topology.kind in CONVOLVED_IN_MORE else fewest,
        window_flops_per_byte=_window(machine.topology.kind, math.prod(machine.sizes) // cores),
        ring_bytes=ring_bytes,
        narrow_ring_bytes=NO_RING_BYTES if machine.offloads_collectives else ring_bytes,
        summed_devices=in_slice if in_slice >= FEWEST_SUMMED else None,
        summed_bytes=None if len(machine.chip.dims) > 2 else MOST_SUMMED_BYTES,
        exchanges_late=machine.topology.kind in EXCHANGES_LATE,
        fewest_rows=FEWEST_ROWS.get(machine.topology.kind, 0),
    )


def _window(kind: str, chips: int) -> float | None:
    begin = WINDOW_FLOPS_PER_BYTE.get(kind)
    return begin * ONE_HOST_RATIO if begin and kind == "v4" and chips <= ONE_HOST_CHIPS else begin


def _fewest(kind: str, chips: int) -> int:
    return FEWEST_PARTS if chips <= ONE_HOST_CHIPS else FEWEST_PARTS_OF.get(kind, FEWEST_PARTS)
