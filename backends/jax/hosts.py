"""Several processes that run one plan together, on one host or many: how they find each other.

Every process runs the same command and has a part of the plan's devices; each is told which of how many it is, and
where process 0 listens. On TPU pods, under SLURM and the like, JAX finds that out by itself (``auto``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ...dsl.errors import PlanError, problem, shorten
from ...planner.topology import Machine
from .devices import prepare, short_reason, simulate_cpu

_PROCESS = re.compile(r"(?P<index>\d{1,6})/(?P<count>[1-9]\d{0,5})@(?P<address>[^@/\s]+:\d{1,5})")
TIMEOUT_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """Which process of a run this is. Everything None: JAX finds it out."""

    index: int | None = None
    count: int | None = None
    address: str | None = None
    """``host:port`` where process 0 listens."""


def parse_process(text: str) -> Process:
    """The process that ``0/2@10.0.0.1:1234`` or ``auto`` names. Raises ``PlanError`` (MW528)."""
    if text == "auto":
        return Process()
    found = _PROCESS.fullmatch(text)
    if found is None or int(found["index"]) >= int(found["count"]):
        raise PlanError([problem("MW528", text=shorten(text))])
    return Process(index=int(found["index"]), count=int(found["count"]), address=found["address"])


def prepare_together(machine: Machine | None, process: Process | None) -> bool:
    """Makes JAX, which must not have been used yet, see the plan's devices, those of the other processes among them;
    whether this process is the one that speaks.

    Raises ``PlanError``: MW529 where simulated devices do not divide over the processes, MW530 where the processes do
    not find each other.
    """
    prepare(machine)
    if process is None:
        return True
    import jax

    if machine is not None and machine.platform == "cpu":
        _simulate_part(machine, process)
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(process.address, process.count, process.index, initialization_timeout=TIMEOUT_S)
    except (RuntimeError, ValueError) as error:
        raise PlanError([problem("MW530", reason=short_reason(error))]) from error
    return jax.process_index() == 0


def in_any_process(asked: bool) -> bool:
    """Whether any process says yes. Every one of them must ask at the same point of its work."""
    import jax

    if jax.process_count() == 1:
        return asked
    import numpy as np
    from jax.experimental.multihost_utils import process_allgather

    return bool(np.any(process_allgather(np.array(asked))))


def _simulate_part(machine: Machine, process: Process) -> None:
    if process.count is None or machine.num_devices % process.count:
        numbers: dict[str, Any] = {"devices": machine.num_devices, "processes": process.count or "an unknown number of"}
        raise PlanError([problem("MW529", machine.topology.place, **numbers)])
    simulate_cpu(machine.num_devices // process.count)
