"""Predicts what a step takes under a plan, without its devices and without compiling anything."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import jax
import numpy as np

from ...dsl.errors import PlanError, Problem, problem, raise_errors
from ...dsl.given import plan_given
from ...dsl.holes import holes
from ...dsl.plan import Place, Plan, Topology
from ...planner import device_order
from ...planner.compute import Calibration
from ...planner.convolution_layout import NEARLY
from ...planner.device_order import device_numbers
from ...planner.estimate.estimate import estimate as estimated
from ...planner.estimate.figures import Estimate
from ...planner.graph import Graph
from ...planner.memory.kinds import argument_kind
from ...planner.search.workload import SKETCHED
from ...planner.topology import Machine, physical
from .graph_cache import GraphCache, Known, StepCache
from .layouts import region_problems, step_layouts
from .step_drafts import StepDrafts
from .trace import Traced, trace
from .uncollected import uncollected
from .workload import PyTree, Step, arguments_of

MAX_DRAFTS = 4
"""Of how many forms of arguments a step's drafts are kept."""

_GRAPHS = GraphCache()
_DRAFTS: StepCache[StepDrafts] = StepCache(MAX_DRAFTS)


def estimate(
    plan: Plan,
    step: Step,
    args: Sequence[PyTree],
    *,
    donate_argnums: int | Sequence[int] | None = None,
    calibration: Calibration | None = None,
    once: bool = False,
    nearly: bool = False,
) -> Estimate:
    """What ``step`` is predicted to take under a complete plan, on the plan's topology.

    ``args`` is a tuple of pytrees of ``jax.ShapeDtypeStruct``; donation is as ``apply`` has it. ``calibration`` prices
    kernels in place of the table that ships for the chip. The step is traced the first time; pricing it again for
    another machine, device order or limit takes milliseconds. Other layouts of it are priced in a fraction of the time
    of the first, but for one that is priced ``once``, for which nothing is prepared. One may be priced ``nearly``, and
    sooner, which it notes: by a sketch of the step, or where the partitioner gets a convolution wrong without laying
    the step out anew as ``apply`` would.

    Raises ``PlanError`` with every problem: an illegal plan or one with holes, no topology (MW410), a calibration of
    another chip (MW415), another mesh than the step's own regions name (MW320).
    """
    found = [*device_order.check(plan_given(plan))]
    if plan.topology is None:
        found.append(problem("MW410", Place(file=plan.file)))
    elif calibration is not None and not found and calibration.jax_kind != physical(plan.topology).jax_kind:
        found.append(_of_another_chip(calibration, plan.topology))
    if plan.topology is None or found or holes(plan):
        raise PlanError([*found, *_problems_of_step(plan, step, args)])
    machine = physical(plan.topology)
    with uncollected():
        known = _known(plan, machine, step, args, donate_argnums, once=once, nearly=nearly)
        work = known.work(machine, calibration)
        limit_bytes, notes = plan.limits.hbm_bytes, known.notes
        return estimated(work, plan.mesh, machine, limit_bytes=limit_bytes, notes=notes, tariffs=known.tariffs)


def graph_of(
    plan: Plan, step: Step, args: Sequence[PyTree], donate_argnums: int | Sequence[int] | None = None
) -> Graph:
    """The graph that ``estimate`` prices, laid out and not yet partitioned. Raises ``PlanError`` as that does."""
    if plan.topology is None:
        raise PlanError([problem("MW410", Place(file=plan.file))])
    return _known(plan, physical(plan.topology), step, args, donate_argnums).graph


def _of_another_chip(calibration: Calibration, planned: Topology) -> Problem:
    learned, where = calibration.jax_kind, calibration.topology
    return problem("MW415", planned.place, learned=learned, topology=where, planned=str(planned))


def _problems_of_step(plan: Plan, step: Step, args: Sequence[PyTree]) -> list[Problem]:
    """What else is wrong with a plan that cannot be priced, apart from where its mesh lies."""
    try:
        step_layouts(plan, trace(step, args, plan.remat))
    except PlanError as error:
        known = {found.code for found in device_order.check(plan)}
        return [found for found in error.problems if found.code not in known]
    return []


def _known(
    plan: Plan,
    machine: Machine,
    step: Step,
    args: Sequence[PyTree],
    donate_argnums: int | Sequence[int] | None,
    *,
    once: bool = False,
    nearly: bool = False,
) -> Known:
    """The step's graph, read now or before. Raises ``PlanError`` with all that is wrong with the plan."""
    form = _form(args, donate_argnums)
    key = form, _said(plan, machine)
    order = device_numbers(plan.mesh, machine).tobytes()
    known = _GRAPHS.get(step, key, order)
    if known is None:
        drafts = _drafts(step, form, donate_argnums)
        read = drafts.lowered(plan, step, args) if once else drafts.step_graph(plan, step, args, nearly=nearly)
        raise_errors(region_problems(plan, drafts.regions(read.traced)))
        names_devices = bool(read.layouts.device_assignments)
        known = Known(
            graph=read.graph,
            kinds=argument_kinds(read.traced),
            returned={tensor.path: tensor.returns for tensor in read.traced.results if tensor.returns},
            found=drafts.found,
            tariffs=drafts.tariffs,
            counted=drafts.counted,
            notes=(*read.notes, *drafts.notes(read.traced, plan.remat), *_unknown_turns(read.graph)),
            order=order if names_devices else None,
        )
        if not {NEARLY, SKETCHED}.intersection(read.notes):
            _GRAPHS.put(step, key, known)
    return known


def _unknown_turns(graph: Graph) -> Iterator[str]:
    """What a reader must know of loops whose number of turns hangs on data."""
    found = [op for _, op, _ in graph.walk() if op.kind == "while" and op.attributes.get("trips_unknown")]
    where = dict.fromkeys(op.origin.source for op in found if op.origin.source)
    if found:
        said = f" ({', '.join(where)})" if where else ""
        yield f"A loop turns as often as its data say{said}: one turn of it is priced."


def drafts_of(step: Step, args: Sequence[PyTree], donate_argnums: int | Sequence[int] | None = None) -> StepDrafts:
    """The drafts of a step with arguments of this form, kept as long as the step lives."""
    return _drafts(step, _form(args, donate_argnums), donate_argnums)


def _drafts(step: Step, form: Hashable, donate_argnums: int | Sequence[int] | None) -> StepDrafts:
    known = _DRAFTS.find(step, form)
    if known is None:
        known = StepDrafts(donate_argnums)
        _DRAFTS.put(step, form, known)
    return known


def argument_kinds(traced: Traced) -> dict[str, str]:
    """What each argument of a step is for, by its path."""
    returned = {tensor.returns for tensor in traced.results}
    return {
        tensor.path: argument_kind(tensor.path, tensor.path in returned, tensor.dtype) for tensor in traced.arguments
    }


def _said(plan: Plan, machine: Machine) -> Hashable:
    """What a step's graph depends on besides its arguments: all that the plan says of tensors and axes."""
    compiler = machine.platform, machine.offloads_collectives
    return tuple(plan.mesh.sizes.items()), plan.rules, plan.remat, compiler, repr(plan.result)


def _form(args: Sequence[PyTree], donate_argnums: int | Sequence[int] | None) -> Hashable:
    """What a step's traces depend on."""
    leaves, structure = jax.tree.flatten(arguments_of(args))
    forms = tuple([(np.shape(leaf), getattr(leaf, "dtype", type(leaf)), _is_weak(leaf)) for leaf in leaves])
    donated = tuple(donate_argnums) if isinstance(donate_argnums, Sequence) else donate_argnums
    return structure, forms, donated


def _is_weak(leaf: PyTree) -> bool:
    return bool(getattr(leaf, "weak_type", False))
