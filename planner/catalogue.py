"""The chips that Meshwright knows, read from ``chips.yaml``: the file's shape, checked as it is read."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

MIB = 2**20


class Hbm(BaseModel):
    """Memory of one device, in MiB: what is soldered on, and what the compiler gives a program."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    physical: int
    usable: int | None = None


class Chip(BaseModel):
    """One kind of chip: what ``chips.yaml`` says of it; that file's head explains the fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    aliases: tuple[str, ...] = ()
    platform: Literal["tpu", "gpu", "cpu"]
    jax_kind: str
    dims: tuple[str, ...] = Field(min_length=1)
    order: tuple[str, ...] = ()
    optional_dims: int = 0
    cores: int = 1
    host: tuple[int, ...] = ()
    largest: tuple[int, ...] = ()
    largest_chips: int | None = None
    hbm_mib: Hbm | None = None
    clock_mhz: int | None = None
    offloads_collectives: bool = False
    sources: dict[str, str]

    @property
    def hbm_bytes(self) -> int | None:
        """Bytes of a device's memory that a program may use; None for a CPU, whose memory is the host's."""
        return (self.hbm_mib.usable or self.hbm_mib.physical) * MIB if self.hbm_mib else None

    @property
    def hbm_physical_bytes(self) -> int | None:
        """Bytes of a device's memory."""
        return self.hbm_mib.physical * MIB if self.hbm_mib else None

    @property
    def clock_hz(self) -> float | None:
        """Clock of the compiler's cycles, in Hz; None where it is not known."""
        return self.clock_mhz * 1e6 if self.clock_mhz else None

    @property
    def slices(self) -> bool:
        """Whether several of its machines may be joined by the data-centre network (``4*v5e:16x16``)."""
        return self.platform == "tpu"


def catalogue() -> dict[str, Chip]:
    """Every kind of chip by name, newest first, without the aliases."""
    return dict(_read())


def canonical(kind: str) -> str:
    """The catalogue's name for a kind or an alias of it (``7x`` is ``tpu7x``); an unknown kind comes back as it is."""
    names = {alias: name for name, chip in _read().items() for alias in chip.aliases}
    return names.get(kind, kind)


@cache
def _read() -> dict[str, Chip]:
    text = files(__package__).joinpath("chips.yaml").read_text(encoding="utf-8")
    return {name: Chip.model_validate(entry) for name, entry in yaml.safe_load(text).items()}
