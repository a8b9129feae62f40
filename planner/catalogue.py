"""The chips that Meshwright knows, read from ``chips.yaml``, and a user's own, read from a file beside the plan."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

import yaml

from ..dsl.plan import Topology
from ..dsl.strict_yaml import PARSER
from .chip import Chip
from .machine_file import read_machine

SUFFIXES = (".yaml", ".yml")


def catalogue() -> dict[str, Chip]:
    """Every kind of chip that ships, by name, newest first, without the aliases."""
    return dict(_read())


def canonical(kind: str) -> str:
    """The catalogue's name for a kind or an alias of it (``7x`` is ``tpu7x``); an unknown kind comes back as it is."""
    names = {alias: name for name, chip in _read().items() for alias in chip.aliases}
    return names.get(kind, kind)


def chip_of(topology: Topology) -> Chip | None:
    """The chip that a topology names; None for one that there is not.

    A kind that ends in ``.yaml`` is a user's own machine: a file beside the plan, or in the working directory where the
    topology stands in no plan. Raises ``PlanError`` (MW207, MW208, or those of YAML) if the file says no chip.
    """
    if topology.kind.endswith(SUFFIXES):
        plan = topology.place.file if topology.place else None
        return read_machine(str((Path(plan).parent if plan else Path()) / topology.kind), topology.place)
    return _read().get(canonical(topology.kind))


@cache
def _read() -> dict[str, Chip]:
    text = files(__package__).joinpath("chips.yaml").read_text(encoding="utf-8")
    return {name: Chip.model_validate(entry) for name, entry in yaml.load(text, Loader=PARSER).items()}
