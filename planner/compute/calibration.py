"""What calibration learned of a chip, as a small YAML file: its coefficients, and how well they fit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files

import yaml

from ...dsl.strict_yaml import PARSER
from .coefficients import Coefficients

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
    """Reads what ``dump`` wrote. Raises ``ValueError`` if a field is missing, unknown or not a number."""
    try:
        said = yaml.load(text, Loader=PARSER)
        numbers = {name: float(value) for name, value in said.pop("coefficients").items()}
        error = FitError(**said.pop("error"))
        return Calibration(error=error, coefficients=Coefficients(**numbers), **said)
    except (AttributeError, KeyError, TypeError, ValueError, yaml.YAMLError) as problem:
        raise ValueError(f"no calibration: {problem}") from problem


def shipped(jax_kind: str) -> Calibration | None:
    """The table of a kind of chip that ships with Meshwright; None where there is none."""
    return _tables().get(jax_kind)


@cache
def _tables() -> dict[str, Calibration]:
    folder = files(__package__).joinpath("tables")
    texts = (each.read_text(encoding="utf-8") for each in folder.iterdir() if each.name.endswith(".yaml"))
    return {table.jax_kind: table for table in map(load, texts)}
