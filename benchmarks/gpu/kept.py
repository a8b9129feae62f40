"""What was measured, as it is kept: a file a card in ``measured/``, made of what ``measure.py`` wrote on a GPU."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from meshwright.planner.catalogue import catalogue

FOLDER = Path(__file__).parent / "measured"
LIBRARIES = ("gemm", "nvjet", "cutlass", "cudnn", "xmma")
RUNS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program as it ran. ``median_s``, ``least_s``: a call among many; ``kernels_s`` its kernels under the
    profiler, ``products_s`` those of libraries and of Triton that multiply, ``kernels`` how many. Bytes as compiled,
    ``result_bytes`` of results that do not lie in arguments' place. ``is_finite``: whether no number overflowed.
    """

    name: str
    median_s: float
    least_s: float
    kernels_s: float
    products_s: float
    kernels: int
    argument_bytes: int
    result_bytes: int
    temp_bytes: int
    is_finite: bool

    @property
    def peak_bytes(self) -> int:
        """What a device held."""
        return self.argument_bytes + self.result_bytes + self.temp_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A card, with which JAX and when, and its programs by name."""

    device: str
    topology: str
    jax: str
    driver: str
    date: str
    programs: Mapping[str, Program]


def cards() -> list[str]:
    """Of which cards something is kept: the catalogue's names, in its order."""
    return [name for name in catalogue() if (FOLDER / f"{name}.json").exists()]


def kept(card: str) -> Measured:
    """What is kept of a card."""
    said = json.loads((FOLDER / f"{card}.json").read_text())
    programs = {each["name"]: Program(**each) for each in said.pop("programs")}
    return Measured(programs=programs, **said)


def keep(file: Path) -> str:
    """Adds what ``measure.py`` wrote to what is kept of its card; which that is. Raises if no chip is called so."""
    rows = {row["name"]: row for row in map(json.loads, file.read_text().splitlines())}
    machine = rows.pop("machine")
    card = next((name for name, chip in catalogue().items() if chip.jax_kind == machine["device"]), None)
    if card is None:
        raise SystemExit(f"chips.yaml has no chip whose jax_kind is '{machine['device']}': add it, then keep this.")
    said = {
        "device": machine["device"],
        "topology": card,
        "jax": machine["jax"],
        "driver": machine["smi"].splitlines()[1].split(", ")[1],
        "date": machine["date"].split()[0],
    }
    before = kept(card).programs if card in cards() else {}
    found = {**before, **{name: _program(row) for name, row in rows.items() if "hot" in row}}
    programs = [json.dumps(asdict(program)) for program in found.values()]
    head = json.dumps(said)[:-1]
    (FOLDER / f"{card}.json").write_text(f'{head}, "programs": [\n' + ",\n".join(programs) + "\n]}\n")
    return card


def _program(row: Mapping[str, Any]) -> Program:
    memory, kernels = row["memory"], row.get("kernels", [])
    multiply = (seconds for _, name, _, seconds in kernels if any(each in name for each in LIBRARIES))
    return Program(
        name=row["name"],
        median_s=_rounded(row["hot"]["median_s"]),
        least_s=_rounded(row["hot"]["least_s"]),
        kernels_s=_rounded(sum(seconds for *_, seconds in kernels) / RUNS),
        products_s=_rounded(sum(multiply) / RUNS),
        kernels=round(sum(count for _, _, count, _ in kernels) / RUNS),
        argument_bytes=memory["argument_size_in_bytes"],
        result_bytes=memory["output_size_in_bytes"] - memory["alias_size_in_bytes"],
        temp_bytes=memory["temp_size_in_bytes"],
        is_finite=row["finite"],
    )


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.4g}")
