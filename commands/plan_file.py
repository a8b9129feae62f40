"""What commands need of a plan file: its text, the plan, the machine and devices that it names."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..dsl.errors import PlanError, problem
from ..dsl.plan import Place

if TYPE_CHECKING:
    from ..dsl.plan import Plan
    from ..planner.topology import Machine


def text(path: str) -> tuple[str, str]:
    """A file's text and the name that problems give it. Raises ``PlanError`` for a file that cannot be read."""
    from ..dsl.text import MAX_BYTES, decode, read_text

    if path == "-":
        if sys.stdin is None:
            raise PlanError([problem("MW001", Place(file="<stdin>"), reason="it is closed")])
        return decode(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>"), "<stdin>"
    return read_text(path), path


def unwritable(path: str) -> str | None:
    """Why a file cannot be written there, as far as that is to be seen before it is tried; None where it can."""
    folder = os.path.dirname(os.path.realpath(path))
    if os.path.isdir(path):
        return os.strerror(errno.EISDIR)
    if not os.path.isdir(folder):
        return os.strerror(errno.ENOENT)
    return None if os.access(folder, os.W_OK) else os.strerror(errno.EACCES)


def load(path: str, change: Callable[[Plan], Plan] = lambda plan: plan) -> Plan:
    """The plan in a file. Raises ``PlanError`` with every problem; those of what is sound beside them are of the plan
    that ``change`` makes of it, as options do.
    """
    from ..dsl.reader import read
    from .check import verdict_on

    reading = read(*text(path))
    if reading.plan is None or reading.problems:
        raise PlanError(reading.also(verdict_on(change(reading.plan)).problems if reading.plan else ()))
    return reading.plan


def machine_of(plan: Plan) -> Machine | None:
    """The machine of the plan's topology. Raises ``PlanError`` where there is none such."""
    from ..planner.topology import physical

    return physical(plan.topology) if plan.topology else None


def prepare_solver(stop: Callable[[], bool]) -> None:
    """Has the solver compiled before a search's clock starts: half a minute once a machine, then no time."""
    from ..planner.solver.prepare import prepare

    prepare(stop)


def prepare_devices(machine: Machine | None) -> None:
    """Makes JAX, which must not have started, have the devices that the plan asks for."""
    from ..backends.jax.devices import prepare

    prepare(machine)


def prepare_together(machine: Machine | None, process: str | None) -> bool:
    """The same where several processes run a plan together; whether this is the one that speaks."""
    from ..backends.jax.hosts import parse_process
    from ..backends.jax.hosts import prepare_together as prepare

    return prepare(machine, parse_process(process) if process else None)
