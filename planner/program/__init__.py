"""The integer program of a step on one mesh: a choice of layouts for every kernel, with the prices of an estimate."""

from .program import Program, build
from .solving.found import Found
from .step.known import Known

__all__ = ["Found", "Known", "Program", "build"]
