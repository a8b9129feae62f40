"""``meshwright convert``: logical axis rules (MaxText, Flax) to a plan, and back."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING

from ..dsl.errors import PlanError, Problem, problem, raise_errors
from ..dsl.rule_matches import OPS
from . import plan_file
from .command import YES, Command
from .overrides import overridden, set_option
from .streams import write, write_problems

if TYPE_CHECKING:
    from ..dsl.logical.rules import TensorNames
    from ..dsl.plan import Plan
    from ..dsl.tensors import Tensor

FORMATS = ("flax", "maxtext")


def run(arguments: argparse.Namespace) -> int:
    """Makes a plan of rules, or rules of a plan."""
    from ..dsl.logical.reader import is_plan

    text, name = plan_file.text(arguments.input)
    written, notes = (_to_rules if is_plan(text) else _to_plan)(text, name, arguments)
    write_problems(notes)
    if arguments.output:
        from ..dsl.writer import write_file

        write_file(written, arguments.output)
    else:
        write(written)
    return YES


def _to_plan(text: str, name: str, arguments: argparse.Namespace) -> tuple[str, Sequence[Problem]]:
    """The plan that a file of rules means for a model."""
    from ..dsl.logical.reader import loads
    from ..dsl.plan import Mesh, Plan
    from ..dsl.writer import dumps
    from ..planner.device_order import check
    from ..planner.logical.mesh import mesh_of
    from ..planner.logical.to_plan import plan_of

    _refuse("rules, from which only a plan can be made", to=arguments.to)
    rules = loads(text, name)
    frame = _of_model(Plan(mesh=Mesh(axes=None)), arguments)
    machine = plan_file.machine_of(frame)
    mesh = frame.mesh if frame.mesh.axes else mesh_of(rules, machine)
    tensors, names = _named_tensors(frame, arguments)
    converted = plan_of(rules, mesh, tensors, names, frame=frame)
    raise_errors(check(converted.plan))
    return dumps(converted.plan), converted.notes


def _to_rules(text: str, name: str, arguments: argparse.Namespace) -> tuple[str, Sequence[Problem]]:
    """The rules that say what a plan says of its model."""
    from ..dsl.holes import holes
    from ..dsl.logical.from_plan import rules_of
    from ..dsl.logical.writer import as_flax, as_maxtext
    from ..dsl.reader import loads
    from ..planner.logical.mesh import parallelism

    _refuse("a plan, which has its own", topology=arguments.topology, mesh=arguments.mesh)
    plan = _of_model(loads(text, name), arguments)
    left_open = [f"'{hole}'" for hole in holes(plan) if hole.startswith("mesh")]
    if left_open:
        raise PlanError([problem("MW674", plan.mesh.place, what=", ".join(left_open))])
    rules = rules_of(_of_edges(plan), *_named_tensors(plan, arguments))
    if arguments.to == "maxtext":
        return as_maxtext(rules, *parallelism(plan.mesh, plan_file.machine_of(plan))), list(_unsaid(plan))
    return as_flax(rules), [problem("MW683", severity="note", what="the mesh"), *_unsaid(plan)]


def _of_edges(plan: Plan) -> Plan:
    """The plan without what it says of computed values, which have no logical names."""
    return replace(plan, rules=tuple(rule for rule in plan.rules if not rule.pattern.startswith(OPS)))


def _unsaid(plan: Plan) -> Iterator[Problem]:
    """Notes on what a plan says and rules do not."""
    computed = [rule for rule in plan.rules if rule.pattern.startswith(OPS)]
    if computed:
        what = f"how computed values lie ('{OPS}')"
        yield problem("MW683", computed[0].place, severity="note", what=what)
    if any(axis.over for axis in plan.mesh.axes or ()):
        yield problem("MW683", plan.mesh.place, severity="note", what="where axes lie on the machine ('over')")
    for key, said in (("remat", plan.remat), ("limits", plan.limits.hbm_bytes)):
        if said:
            yield problem("MW683", plan.places.get(key), severity="note", what=f"'{key}'")


def _refuse(what: str, **options: str | None) -> None:
    """Refuses options that say nothing about such an input."""
    raise_errors(
        problem("MW665", option=f"--{name}", what=what, remedy=f"Leave --{name} out.")
        for name, value in options.items()
        if value
    )


def _of_model(plan: Plan, arguments: argparse.Namespace) -> Plan:
    """The plan with what the command line says in the place of its own. Raises ``PlanError`` without a model."""
    model = arguments.model or plan.model
    if model is None:
        raise PlanError([problem("MW677", plan.places.get("meshwright"))])
    return overridden(replace(plan, model=model), arguments)


def _named_tensors(plan: Plan, arguments: argparse.Namespace) -> tuple[list[Tensor], Mapping[str, TensorNames]]:
    """The tensors of the plan's model and their logical names: the file's, where it has some, before the model's."""
    from ..dsl.logical import names_file

    given = names_file.loads(*plan_file.text(arguments.names)) if arguments.names else ()
    plan_file.prepare_devices(None)
    from ..backends.jax.loading import load_workload, trace_workload
    from ..backends.jax.logical_names import logical_names

    with redirect_stdout(sys.stderr):
        workload = load_workload(plan)
        traced = trace_workload(plan, workload)
    carried = logical_names(workload.step, workload.args)
    return list(traced.tensors), {**carried, **names_file.names_of(given, traced.tensors)}


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="RULES|PLAN", help="logical axis rules, or a plan; - for the standard input")
    parser.add_argument("--model", metavar="NAME", help="package.module:callable, which returns (step, abstract args)")
    set_option(parser)
    parser.add_argument("--names", metavar="FILE", help="logical names by pattern: 'params/**/wi/kernel: [embed, mlp]'")
    parser.add_argument("--topology", metavar="NAME", help="of rules: the machine, such as v5e:16x16")
    parser.add_argument("--mesh", metavar="AXES", help="of rules: the mesh, such as data=4,model=2")
    parser.add_argument("--to", choices=FORMATS, help="of a plan: Flax's list of pairs (the default), MaxText's fields")
    parser.add_argument("-o", "--out", dest="output", metavar="FILE", help="write here, not to the standard output")


COMMAND = Command(
    name="convert",
    summary="make a plan of Flax's or MaxText's logical axis rules, or such rules of a plan",
    arguments=_arguments,
    run=run,
)
