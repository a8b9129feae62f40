"""Asks the TPU compiler what memory a plan's program takes, in a process that ends when the time does.

No TPU is needed. A compile in this process could not be ended, and may take minutes.
"""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from jax._src.interpreters.pxla import create_compile_options, get_prop_to_input_output

from ...dsl.errors import PlanError
from ...dsl.machine import parse_topology
from ...dsl.plan import Plan
from ...planner.search.fitted import Said, late
from ...planner.search.progress import Clock
from ...planner.topology import physical
from .apply import apply
from .devices import short_reason, topology
from .misfit import read_misfit
from .shardings import default_devices
from .workload import PyTree, Step

LOOKS_S = 0.1
"""Between looks at the clock."""

Workload = tuple[Step, Sequence[PyTree], int | Sequence[int] | None]
"""A step, its abstract arguments, those that it donates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """A module as JAX would compile it: bytecode, the options' protobuf, device ids in order, machine."""

    code: bytes
    options: bytes
    devices: tuple[int, ...]
    topology: str


class Ahead:
    """The TPU compiler, asked about the steps of plans. ``step_of`` has a plan's step."""

    def __init__(self, step_of: Callable[[Plan], Workload]) -> None:
        self._step_of = step_of

    def absent(self, plan: Plan) -> str:
        """Why there is no compiler for a plan's machine here; empty where there is one."""
        if plan.topology is None or physical(plan.topology).platform != "tpu":
            return f"{plan.topology or 'this machine'} has none that compiles ahead of time"
        return "" if importlib.util.find_spec("libtpu") else "libtpu is not installed (pip install 'meshwright[tpu]')"

    def peak(self, plan: Plan, clock: Clock) -> Said:
        """What the program of a plan for a TPU takes of a device."""
        step, args, donated = self._step_of(plan)
        try:
            lowered = apply(plan, step, args, default_devices(plan), donate_argnums=donated).lower(*args)
        except PlanError as error:
            return Said(why=error.problems[0].message)
        return _compiled(_program(lowered, str(plan.topology)), clock)


def _program(lowered: Any, where: str) -> _Program:
    """A lowered step (``jax.stages.Lowered``) as bytes. JAX has no public way to its options."""
    module, lowering = lowered.compiler_ir("stablehlo"), lowered._lowering
    asked, devices = lowering.compile_args, list(lowering._device_list)
    to_inputs, to_outputs = get_prop_to_input_output(
        asked["in_shardings"], asked["out_shardings"], len(asked["ordered_effects"])
    )
    ordered = np.empty(len(devices), dtype=object)
    ordered[:] = devices
    options = create_compile_options(module, asked["tuple_args"], to_inputs, to_outputs, asked["backend"], ordered, {})
    code = BytesIO()
    module.operation.write_bytecode(code)
    ids = tuple(device.id for device in devices)
    return _Program(code=code.getvalue(), options=options.SerializeAsString(), devices=ids, topology=where)


def _compiled(program: _Program, clock: Clock) -> Said:
    """What the compiler says, in a process of its own: a session, so that Ctrl-C does not reach it."""
    command = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            answer = _answer(process, pickle.dumps(program), clock)
        finally:
            process.kill()
    if answer is None:
        return Said(why=late(clock))
    return pickle.loads(answer) if answer else Said(why=f"its process ended ({process.returncode})")


def _answer(process: subprocess.Popen[bytes], asked: bytes, clock: Clock) -> bytes | None:
    """What a process answers; None where the time ended first."""
    given: bytes | None = asked
    while True:
        try:
            return process.communicate(given, timeout=LOOKS_S)[0]
        except subprocess.TimeoutExpired:
            given = None
        if clock.over:
            return None


def main() -> None:
    """The process that compiles: a program comes on the standard input, what the compiler says goes to the output."""
    import os

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else prints goes to the standard error
    pickle.dump(_made(pickle.load(sys.stdin.buffer)), answers, pickle.HIGHEST_PROTOCOL)
    answers.flush()
    os._exit(0)  # libtpu is in no hurry to end


def _made(program: _Program) -> Said:
    """What the compiler says of a program."""
    import jax
    from jax._src.interpreters.mlir import make_ir_context
    from jax._src.lib import xla_client  # type: ignore[attr-defined]
    from jax._src.lib.mlir import ir  # type: ignore[attr-defined]

    jax.config.update("jax_platforms", "cpu")
    devices = {device.id: device for device in topology(parse_topology(program.topology)).devices()}
    ordered = xla_client.DeviceList(tuple(devices[number] for number in program.devices))
    options = xla_client.CompileOptions.ParseFromString(program.options)
    with make_ir_context():
        module = ir.Module.parse(program.code)
    try:
        made = devices[program.devices[0]].client.compile(module, executable_devices=ordered, compile_options=options)
    except jax.errors.JaxRuntimeError as error:
        misfit = read_misfit(str(error))
        if misfit is None:
            return Said(why=short_reason(error))
        return Said(peak_bytes=misfit.required_bytes, fits=False)
    memory = made.get_compiled_memory_stats()
    results_bytes = memory.output_size_in_bytes - memory.alias_size_in_bytes
    temporaries_bytes = memory.temp_size_in_bytes + memory.generated_code_size_in_bytes
    return Said(peak_bytes=memory.argument_size_in_bytes + results_bytes + temporaries_bytes, fits=True)
