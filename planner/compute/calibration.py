"""What calibration learned of a chip, as a small YAML file: its coefficients, and how well they fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import yaml

from ...dsl.strict_yaml import PARSER
from .coefficients import Coefficients

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

HEAD = """# What `meshwright calibrate {topology}` learned from the compiler's own cycles of small programs.
# planner/compute/coefficients.py says what each is. `error` is that of the programs that the fit did not see.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitError:
    """How far predicted cycles are from the compiler's, as shares of these, over ``programs`` held out of the fit."""

    programs: int
    median: float
    p95: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The coefficients of one kind of chip (JAX's name), learned on ``topology`` from a version of the compiler."""

    jax_kind: str
    topology: str
    compiler: str
    programs: int
    error: FitError
    coefficients: Coefficients


def dump(calibration: Calibration) -> str:
    """The text of a calibration's file."""
    text = yaml.safe_dump(asdict(calibration), sort_keys=False, allow_unicode=True)
    return HEAD.format(topology=calibration.topology) + text


def load(text: str) -> Calibration:
    """Reads what ``dump`` wrote. Raises ``ValueError``, which says all that is wrong, where it is nothing such."""
    try:
        said = yaml.load(text, Loader=PARSER)
    except yaml.YAMLError as error:
        raise ValueError(f"it is no YAML ({' '.join(str(error).split())})") from error
    wrong = [*_wrong(said, Calibration, "")]
    if not wrong:
        wrong = [
            *_wrong(said["error"], FitError, "error."),
            *_wrong(said["coefficients"], Coefficients, "coefficients."),
        ]
    if wrong:
        raise ValueError("; ".join(wrong))
    coefficients = Coefficients(**{name: float(value) for name, value in said["coefficients"].items()})
    of_fit = {name: float(value) for name, value in said["error"].items()}
    fitted = FitError(programs=int(of_fit["programs"]), median=of_fit["median"], p95=of_fit["p95"])
    return Calibration(**said | {"programs": int(said["programs"]), "error": fitted, "coefficients": coefficients})


def _wrong(said: object, meant: type[DataclassInstance], place: str) -> Iterator[str]:
    """What keeps a mapping from being read as one of these."""
    if not isinstance(said, dict):
        yield f"{place.rstrip('.') or 'the file'} is no mapping"
        return
    known = {field.name: field for field in fields(meant)}
    yield from (
        f"{place}{name} is missing" for name, field in known.items() if field.default is MISSING and name not in said
    )
    yield from (f"{place}{name} is not known" for name in said if name not in known)
    yield from (
        f"{place}{name} is {value!r}, not a number from 0"
        for name, value in said.items()
        if name in known and known[name].type in ("int", "float") and not _is_amount(value)
    )


def _is_amount(value: object) -> bool:
    try:
        return isinstance(value, int | float | str) and not isinstance(value, bool) and 0 <= float(value) < math.inf
    except ValueError:
        return False


def shipped(jax_kind: str) -> Calibration | None:
    """The table of a kind of chip that ships with Meshwright; None where there is none."""
    return _tables().get(jax_kind)


@cache
def _tables() -> dict[str, Calibration]:
    folder = files(__package__).joinpath("tables")
    texts = (each.read_text(encoding="utf-8") for each in folder.iterdir() if each.name.endswith(".yaml"))
    return {table.jax_kind: table for table in map(load, texts)}
