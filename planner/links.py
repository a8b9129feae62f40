"""What joins the devices of a machine, in bytes and seconds: a torus, switches, the data-centre network above them.

Each physical dim is of one of these. A chip's own devices (``core``) are a switch of their own below the torus.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .chip import NODE, Algorithm, Chip
from .topology import Machine

CORE = "core"
OUTER = ("slice", NODE)
"""The dims that the data-centre network joins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Torus:
    """Links between chips along ``dims``: a link's bandwidth one way, a hop's latency, which dims join their ends."""

    dims: tuple[str, ...]
    wraps: tuple[bool, ...]
    link_bytes_per_s: float
    hop_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Devices along ``dims`` that reach each other at the same rate: a device's bandwidth one way, a step's latency."""

    dims: tuple[str, ...]
    device_bytes_per_s: float
    hop_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Uplink:
    """The data-centre network along ``dims``: a device's bandwidth one way, latency, what each message adds to it."""

    dims: tuple[str, ...]
    device_bytes_per_s: float
    latency_s: float
    message_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """What joins the devices of one machine. ``cores`` devices of a chip share the links of its torus."""

    cores: int
    torus: Torus | None
    switch: Switch | None
    uplink: Uplink | None
    algorithms: tuple[Algorithm, ...]
    hbm_bytes_per_s: float | None


def links_of(machine: Machine) -> Links:
    """The links that the catalogue gives this machine. A chip without any figures has none."""
    chip = machine.chip
    inner = [(name, size) for name, size in machine.dims if name not in (CORE, *OUTER)]
    return Links(
        cores=chip.cores,
        torus=_torus(chip, inner),
        switch=_switch(chip, tuple(name for name, _ in inner)),
        uplink=_uplink(chip, tuple(name for name, _ in machine.dims if name in OUTER)),
        algorithms=chip.algorithms or tuple(_one_ring(chip)),
        hbm_bytes_per_s=chip.hbm_bytes_per_s,
    )


def _torus(chip: Chip, dims: list[tuple[str, int]]) -> Torus | None:
    if chip.ici is None:
        return None
    return Torus(
        dims=tuple(name for name, _ in dims),
        wraps=chip.ici.wraps.of(tuple(size for _, size in dims)),
        link_bytes_per_s=chip.ici.link_gb_per_s * 1e9 * chip.ici.efficiency,
        hop_s=chip.ici.hop_us * 1e-6,
    )


def _switch(chip: Chip, dims: tuple[str, ...]) -> Switch | None:
    said = chip.core_link if chip.ici else chip.switch
    if said is None:
        return None
    return Switch(
        dims=(CORE,) if chip.ici else dims,
        device_bytes_per_s=said.device_gb_per_s * 1e9 * said.efficiency,
        hop_s=said.hop_us * 1e-6,
    )


def _one_ring(chip: Chip) -> Iterator[Algorithm]:
    """What runs over a switch of which no algorithm is said: a ring of its hops, at the whole bandwidth."""
    if chip.switch is not None:
        net_us = chip.uplink.latency_us if chip.uplink else 0.0
        yield Algorithm(
            name="ring", protocol="Simple", base_us=0.0, hop_us=chip.switch.hop_us, net_us=net_us, bandwidth=1.0
        )


def _uplink(chip: Chip, dims: tuple[str, ...]) -> Uplink | None:
    if chip.uplink is None:
        return None
    return Uplink(
        dims=dims,
        device_bytes_per_s=chip.uplink.chip_gb_per_s * 1e9 * chip.uplink.efficiency / chip.cores,
        latency_s=chip.uplink.latency_us * 1e-6,
        message_s=chip.uplink.message_us * 1e-6,
    )
