"""``meshwright check``: legal? complete? do the arguments fit?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING

from ..dsl.errors import PlanError, Problem
from . import plan_file
from .command import BAD, NO, YES, Command, plan_and_json
from .streams import write_json, write_problems

if TYPE_CHECKING:
    from ..dsl.plan import Plan
    from ..dsl.tensors import Tensor
    from ..dsl.verdict import Verdict
    from ..planner.topology import Machine


def run(arguments: argparse.Namespace) -> int:
    """Legal? Complete? Do the arguments fit?"""
    from ..dsl.reader import read

    reading = read(*plan_file.text(arguments.plan))
    plan = reading.plan
    if plan is None or reading.problems:
        raise PlanError(reading.also(verdict_on(plan).problems if plan else ()))
    verdict = verdict_on(plan)
    write_problems(verdict.problems)
    if arguments.json:
        write_json("check", file=plan.file, **verdict.as_json())
    else:
        from ..render import show_verdict

        show_verdict(verdict, plan.file or "the plan")
    if not verdict.legal:
        return BAD
    return NO if verdict.fits is False else YES


def verdict_on(plan: Plan) -> Verdict:
    """The verdict on a plan, with its model's tensors and its chip's memory where it names them."""
    from ..dsl.verdict import judge
    from ..planner import device_assignment, device_order, topology

    found = [*device_order.check(plan), *device_assignment.check(plan)]
    machine = None if plan.topology and topology.problems(plan.topology) else plan_file.machine_of(plan)
    plan_file.prepare_devices(machine)
    settled, left, refused = _settled(plan, machine)
    tensors, of_model = tensors_of(settled, machine) if not refused else (None, refused)
    return judge(
        replace(settled, mesh=plan.mesh),
        tensors,
        other_problems=[*found, *of_model],
        other_holes=left,
        chip_bytes=machine.hbm_bytes if machine else None,
    )


def _settled(plan: Plan, machine: Machine | None) -> tuple[Plan, tuple[str, ...], Sequence[Problem]]:
    """The plan with the first values for what it leaves open that its model accepts; the open settings; problems."""
    if plan.model is None:
        return plan, (), ()
    from ..backends.jax.open_settings import open_settings

    with redirect_stdout(sys.stderr):
        try:
            left = open_settings(plan)
        except PlanError:
            return plan, (), ()  # whoever asks for the tensors is told
        try:
            settled = left.first_accepted(machine) if left.every or left.axes_of(plan) else plan
        except PlanError as error:
            return plan, (), error.problems
    return settled, tuple(f"with.{name}" for name in left.every), ()


def tensors_of(plan: Plan, machine: Machine | None) -> tuple[list[Tensor] | None, Sequence[Problem]]:
    """The tensors of the plan's model (None without a model that loads), and what is wrong with it for this plan."""
    if plan.model is None:
        return None, ()
    plan_file.prepare_devices(machine)
    from ..backends.jax import layouts, loading

    try:
        with redirect_stdout(sys.stderr):
            traced = loading.trace_workload(plan)
    except PlanError as error:
        return None, error.problems
    return list(traced.named_by(plan)), layouts.check(plan, traced)


COMMAND = Command(
    name="check",
    summary="is a plan legal, is it complete, do its arguments fit?",
    arguments=plan_and_json,
    run=run,
)
