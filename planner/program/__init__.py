"""The integer program of a step on one mesh: a choice of layouts for every kernel, with the prices of an estimate."""

from .found import Found
from .known import Known
from .program import Program, build

__all__ = ["Found", "Known", "Program", "build"]
