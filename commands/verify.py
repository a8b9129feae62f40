"""``meshwright verify``: compiles the plan's step for its topology and says what the compiler says."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout

from .command import NO, YES, Command, plan_and_json
from .plan_file import load, machine_of, prepare_devices
from .streams import write_json


def run(arguments: argparse.Namespace) -> int:
    """Compiles the plan's step for its topology and says what the compiler says."""
    plan = load(arguments.plan)
    prepare_devices(machine_of(plan))
    from ..backends.jax.loading import load_workload, trace_workload
    from ..backends.jax.verify import verify as compile_step
    from ..render import show_verification

    with redirect_stdout(sys.stderr):
        workload = load_workload(plan)
        trace_workload(plan, workload)  # a step that cannot be traced is a problem at the model's line
        verification = compile_step(plan, workload.step, workload.args, donate_argnums=workload.donated)
    if arguments.json:
        write_json("verify", file=plan.file, **verification.as_json())
    else:
        show_verification(verification)
    return YES if verification.fits else NO


COMMAND = Command(
    name="verify",
    summary="compile the plan's step for its topology: the compiler's own word on memory, time, collectives",
    arguments=plan_and_json,
    run=run,
)
