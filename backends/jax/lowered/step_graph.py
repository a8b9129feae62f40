"""The graph of a step under a plan: what the compiler would be given, as the planner's plain data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import jax
from jaxlib.mlir import ir

from ....dsl.errors import PlanError, problem
from ....dsl.plan import Place, Plan
from ....planner.convolution_layout import as_products
from ....planner.graph import Graph, Sharding
from ....planner.topology import physical
from ..devices import short_reason
from ..layouts import StepLayouts, step_layouts
from ..planned import Planned, planned
from ..shardings import abstract_mesh
from ..trace import Traced, trace
from ..workload import PyTree, Step
from .aliases import aliases
from .attributes import LIES
from .body import Body
from .propagation import functions, main_function, propagated
from .reading import Reading
from .spreading.lying import Lying
from .spreading.template import Template
from .sub_axes import in_parts


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGraph:
    """A step under a plan as a graph, and what it was made of. ``notes`` are ``apply``'s."""

    graph: Graph
    layouts: StepLayouts
    notes: tuple[str, ...]

    @property
    def traced(self) -> Traced:
        """The step as it was read."""
        return self.layouts.traced


def step_graph(
    plan: Plan, step: Step, args: Sequence[PyTree], *, donate_argnums: int | Sequence[int] | None = None
) -> StepGraph:
    """The graph of ``step`` under a complete plan: the program that ``apply`` would compile, after propagation.

    Needs neither the plan's devices nor its compiler. ``args`` and donation are as ``apply`` has them.
    Raises ``PlanError`` with every problem of the plan, or where JAX cannot lower the step for its machine (MW413).
    """
    return laid_out_graph(plan, step_layouts(plan, trace(step, args, plan.remat)), donate_argnums)


def laid_out_graph(plan: Plan, layouts: StepLayouts, donate_argnums: int | Sequence[int] | None = None) -> StepGraph:
    """The graph of a step with the layouts that a complete plan gives it. Raises ``PlanError`` (MW413)."""
    placed = abstract_mesh(plan, layouts.device_assignments)
    platform = platform_of(plan)
    with lowering(plan):
        found = planned(layouts, placed, donate_argnums, platform)
        lowered = found.lower(platform)
    graph = graph_of(lowered, found, tpu=platform == "tpu", reshards_all=reshards_all(plan))
    return StepGraph(graph=graph, layouts=layouts, notes=found.notes)


def platform_of(plan: Plan) -> str:
    """The platform that a plan's step is lowered for."""
    return physical(plan.topology).platform if plan.topology else jax.default_backend()


def reshards_all(plan: Plan) -> bool:
    """Whether the compiler of a plan's machine reshards before operations all that these need otherwise than it lies:
    that of chips whose other cores make collectives. Others leave that to the partitioner.
    """
    return plan.topology is not None and physical(plan.topology).offloads_collectives


@contextmanager
def lowering(plan: Plan) -> Iterator[None]:
    """Around what JAX refuses for some platforms, such as callbacks and kernels: a problem of the plan."""
    try:
        yield
    except PlanError:
        raise
    except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        place = plan.topology.place if plan.topology else Place(file=plan.file)
        reason = short_reason(error).rstrip(".")
        raise PlanError(
            [problem("MW413", place, topology=str(plan.topology or "this machine"), reason=reason)]
        ) from error


def graph_of(lowered: Any, found: Planned, *, tpu: bool, reshards_all: bool = False) -> Graph:
    """The graph of a lowered step (``jax.stages.Lowered``), with what the TPUs' compiler makes of it."""
    module = propagated(lowered, tpu=tpu, reshards_all=reshards_all)
    return read_graph(module, found.layouts.traced, Reading(dict(found.placed.mesh.shape)))


def read_graph(module: Any, traced: Traced, reading: Reading, names: tuple[str, ...] | None = None) -> Graph:
    """The graph of a step's module as propagation leaves it; ``names`` are the paths of its arguments, where known."""
    with module.context:
        main = main_function(module)
        block = main.regions[0].blocks[0]
        entering = edge_attributes(main, "arg_attrs", len(block.arguments), reading)
        arguments = [
            reading.value(v.type, _sharding(reading, said)) for v, said in zip(block.arguments, entering, strict=True)
        ]
        body = Body(reading, functions=functions(module)).read(block, arguments)
        body.lay_out_results(
            _sharding(reading, said) for said in edge_attributes(main, "res_attrs", len(traced.results), reading)
        )
        graph = body.graph(
            names=argument_paths(block, traced) if names is None else names,
            result_names=tuple(t.path for t in traced.results),
        )
    return _whole_step(graph, entering, dict(reading.mesh))


def spread_graph(template: Template, main: Any, lying: Lying, reading: Reading) -> Graph | None:
    """The same of a module before propagation, found without Shardy from its ``template``; None where that is not
    known. What XLA's partitioner gets wrong is noted (``as_products``). ``main`` is the module's function.
    """
    entering = edge_attributes(main, "arg_attrs", len(template.entered.graph.arguments), reading)
    leaving = edge_attributes(main, "res_attrs", len(template.entered.graph.results), reading)
    graph = template.laid_out(lies_of(entering), lies_of(leaving), lying)
    return None if graph is None else _whole_step(as_products(graph, lying.used), entering, lying.mesh)


def _whole_step(graph: Graph, entering: Sequence[Mapping[str, Any]], mesh: Mapping[str, int]) -> Graph:
    """The graph with what is written in the place of its arguments, over the parts of axes that it names."""
    arguments, results = ([graph.values[number] for number in edge] for edge in (graph.arguments, graph.results))
    return in_parts(replace(graph, aliases=aliases(entering, arguments, results, mesh)), mesh)


def edge_attributes(main: Any, table: str, count: int, reading: Reading) -> list[Mapping[str, Any]]:
    """The attributes of the arguments (``arg_attrs``) or of the results (``res_attrs``) of a function."""
    if table not in main.attributes:
        return [{}] * count
    return list(map(reading.edge, main.attributes[table]))


def lies_of(edge: Iterable[Mapping[str, Any]]) -> list[Any]:
    """How each argument or result lies by its attributes, as MLIR has it; None of what is left open."""
    return [said.get(LIES) for said in edge]


def _sharding(reading: Reading, said: Mapping[str, Any]) -> Sharding | None:
    return reading.sharding(said["sdy.sharding"]) if "sdy.sharding" in said else None


def argument_paths(block: Any, traced: Traced) -> tuple[str, ...]:
    """The paths of the arguments that the program keeps: JAX writes the tree's own path as each one's location."""
    numbered = jax.tree.unflatten(traced.in_tree, range(traced.in_tree.num_leaves))
    leaves = jax.tree_util.tree_leaves_with_path(numbered)
    paths = {f"args{jax.tree_util.keystr(path)}": traced.arguments[number].path for path, number in leaves}
    found = (_name(value.location) for value in block.arguments)
    return tuple(paths.get(name, name) for name in found)


def _name(location: Any) -> str:
    """An argument's name; the tokens that order prints have none."""
    try:
        return str(ir.NameLoc(location).name_str)
    except ValueError:
        return ""
