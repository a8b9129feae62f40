"""The physical machine that a topology names: its dims, the numbers of its devices, what a device has.

A device's number is its position in the machine's own row-major order: slice, then x, y, z, then the core of a chip
(for GPUs node, then GPU). GShard's device assignments (appendix A.3) use these numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from ..dsl.errors import PlanError, Problem, listing, problem, raise_errors, suggest
from ..dsl.plan import Topology
from .catalogue import catalogue, chip_of
from .chip import Chip

MAX_DEVICES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A topology with the catalogue's figures.

    ``dims`` are names and sizes, major to minor, in the order that numbers the devices. ``hbm_bytes`` is what a
    program may use of a device's memory; it and ``clock_hz`` are None where unknown. ``offloads_collectives`` says that
    the compiler gives collectives to the chip's SparseCores. ``chip`` is all that the catalogue says.
    """

    topology: Topology
    platform: str
    jax_kind: str
    dims: tuple[tuple[str, int], ...]
    hbm_bytes: int | None
    hbm_physical_bytes: int | None
    clock_hz: float | None
    offloads_collectives: bool = False
    chip: Chip = field(repr=False, hash=False)

    @property
    def num_devices(self) -> int:
        """How many devices JAX sees."""
        return math.prod(self.sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The dims' sizes, in order."""
        return tuple(size for _, size in self.dims)

    def coordinates(self, number: int) -> dict[str, int]:
        """Where the device with this number stands, by dim. Raises ``ValueError`` for a number that no device has."""
        if not 0 <= number < self.num_devices:
            raise ValueError(f"{self.topology} has devices 0 to {self.num_devices - 1}, not {number}")
        place = {}
        for name, size in reversed(self.dims):
            number, place[name] = divmod(number, size)
        return dict(reversed(place.items()))

    def __str__(self) -> str:
        return f"{self.topology} ({self.num_devices} devices: {listing([f'{n} {s}' for n, s in self.dims])})"


def physical(topology: Topology) -> Machine:
    """The machine of this topology. Raises ``PlanError`` (MW2xx) if there is none such."""
    chip = chip_of(topology)
    if chip is None:
        raise PlanError(problems(topology))
    raise_errors(_size_problems(topology, chip))
    return Machine(
        topology=topology,
        platform=chip.platform,
        jax_kind=chip.jax_kind,
        dims=tuple(_dims(topology, chip)),
        hbm_bytes=chip.hbm_bytes,
        hbm_physical_bytes=chip.hbm_physical_bytes,
        clock_hz=chip.clock_hz,
        offloads_collectives=chip.offloads_collectives,
        chip=chip,
    )


def problems(topology: Topology) -> list[Problem]:
    """Why there is no such machine: an unknown kind, a wrong number of dims, sizes that it cannot have."""
    try:
        chip = chip_of(topology)
    except PlanError as error:
        return list(error.problems)
    if chip is None:
        kinds = list(catalogue())
        return [problem("MW202", topology.place, kind=topology.kind, choices=suggest(topology.kind, kinds))]
    return _size_problems(topology, chip)


def _size_problems(topology: Topology, chip: Chip) -> list[Problem]:
    if not len(chip.dims) - chip.optional_dims <= len(topology.dims) <= len(chip.dims):
        return [_wrong_rank(topology, chip)]
    return [*_wrong_sizes(topology, chip), *_wrong_slices(topology, chip)]


def _dims(topology: Topology, chip: Chip) -> Iterator[tuple[str, int]]:
    sizes = dict(zip(chip.dims, topology.dims, strict=False))
    if topology.num_slices > 1:
        yield "slice", topology.num_slices
    yield from ((name, sizes[name]) for name in chip.order or chip.dims if name in sizes)
    if chip.cores > 1:
        yield "core", chip.cores


def _wrong_rank(topology: Topology, chip: Chip) -> Problem:
    fewest = len(chip.dims) - chip.optional_dims
    wanted = f"{len(chip.dims)}" if not chip.optional_dims else f"{fewest} to {len(chip.dims)}"
    return problem(
        "MW203",
        topology.place,
        topology=str(topology),
        dims=len(topology.dims),
        wanted=wanted,
        names=listing(chip.dims),
        choices=_choices(topology, chip),
    )


def _wrong_sizes(topology: Topology, chip: Chip) -> Iterator[Problem]:
    if not _legal(topology.dims, chip):
        yield problem(
            "MW204",
            topology.place,
            topology=str(topology),
            rule=_rule(chip, len(topology.dims)),
            choices=_choices(topology, chip),
        )
    elif math.prod(topology.dims) * topology.num_slices * chip.cores > MAX_DEVICES:
        devices = math.prod(topology.dims) * topology.num_slices * chip.cores
        yield problem("MW206", topology.place, topology=str(topology), devices=devices, most=MAX_DEVICES)


def _wrong_slices(topology: Topology, chip: Chip) -> Iterator[Problem]:
    if topology.num_slices < 1 or (topology.num_slices > 1 and not chip.slices):
        one = str(topology).partition("*")[2] or str(topology)
        yield problem("MW205", topology.place, topology=str(topology), kind=topology.kind, one=one)


def _legal(dims: tuple[int, ...], chip: Chip) -> bool:
    return all(_legal_size(size, i, chip) for i, size in enumerate(dims)) and (
        chip.largest_chips is None or math.prod(dims) <= chip.largest_chips
    )


def _legal_size(size: int, dim: int, chip: Chip) -> bool:
    whole_hosts = not chip.host or size == 1 or size % chip.host[dim] == 0
    return size >= 1 and whole_hosts and (not chip.largest or size <= chip.largest[dim])


def _rule(chip: Chip, rank: int) -> str:
    names = chip.dims[:rank]
    hosts = [f"{n} is 1 or a multiple of {h}" for n, h in zip(names, chip.host, strict=False) if h > 1]
    most = [f"{n} is at most {m}" for n, m in zip(names, chip.largest, strict=False)]
    chips = [f"there are at most {chip.largest_chips} chips"] if chip.largest_chips else []
    return ", ".join([*hosts, *most, *chips]) or "sizes are at least 1"


def _choices(topology: Topology, chip: Chip) -> str:
    wanted = math.prod(max(1, size) for size in topology.dims)
    shapes = set(_near_shapes(topology.dims, chip)) or set(_largest_shapes(topology.dims, chip))
    shapes = shapes or {(chip.host or (1,) * len(chip.dims))}
    near = sorted(shapes, key=lambda dims: (_distance(wanted, dims), _spread(dims), dims))
    slices = topology.num_slices if chip.slices and topology.num_slices > 1 else 1
    return listing([str(Topology(kind=topology.kind, dims=dims, num_slices=slices)) for dims in near[:3]])


def _near_shapes(dims: tuple[int, ...], chip: Chip) -> Iterator[tuple[int, ...]]:
    """Legal shapes near the one asked for: each size moved to a legal neighbour, or as many chips in the right rank."""
    rank = len(chip.dims)
    if rank - chip.optional_dims <= len(dims) <= rank:
        sizes = [_neighbours(size, i, chip) for i, size in enumerate(dims)]
        yield from (shape for shape in product(*sizes) if _legal(shape, chip))
        return
    chips = math.prod(max(1, size) for size in dims)
    divisors = [size for size in range(1, min(chips, 512) + 1) if chips % size == 0]
    sizes = [[size for size in divisors if _legal_size(size, i, chip)] for i in range(rank)]
    yield from (shape for shape in product(*sizes) if math.prod(shape) == chips and _legal(shape, chip))


def _largest_shapes(dims: tuple[int, ...], chip: Chip) -> Iterator[tuple[int, ...]]:
    """Legal shapes of as many chips as there are, with one of the sizes asked for made smaller."""
    most = chip.largest_chips or 0
    right_rank = len(chip.dims) - chip.optional_dims <= len(dims) <= len(chip.dims)
    for i in range(len(dims) if right_rank else 0):
        others = math.prod(dims[:i] + dims[i + 1 :])
        size = next((s for s in range(most // max(1, others), 0, -1) if _legal_size(s, i, chip)), 0)
        shape = (*dims[:i], size, *dims[i + 1 :])
        if _legal(shape, chip):
            yield shape


def _neighbours(size: int, dim: int, chip: Chip) -> list[int]:
    most = min(chip.largest[dim] if chip.largest else size + 8, size + 8)
    below = next((s for s in range(most, 0, -1) if s <= size and _legal_size(s, dim, chip)), 1)
    above = next((s for s in range(size, most + 1) if _legal_size(s, dim, chip)), below)
    return sorted({below, above})


def _distance(wanted: int, dims: tuple[int, ...]) -> float:
    return abs(math.log(math.prod(dims) / wanted))


def _spread(dims: tuple[int, ...]) -> int:
    return max(dims) - min(dims)
