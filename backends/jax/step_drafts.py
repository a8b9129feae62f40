"""A step's traces and drafts, by which it is laid out anew in a fraction of the time that lowering it takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
from jax.sharding import NamedSharding

from ...dsl.plan import Plan, Remat
from ...dsl.rule_matches import names_values
from ...planner.compute.counted import Counted
from ...planner.convolution_layout import NEARLY, PRODUCTS, as_products
from ...planner.estimate.traffic import Tariffs
from ...planner.graph import Graph, Sharding
from ...planner.partition import Found
from ...planner.search.workload import SKETCHED
from .annotate import COMPUTES_NOTHING, Marks
from .axis_order import common_order, in_order
from .layouts import Region, StepLayouts, region_meshes, step_layouts, unlaid
from .lowered.draft import Draft
from .lowered.places import operations
from .lowered.propagation import propagate_split, split_constants
from .lowered.reading import Reading
from .lowered.sketch import Sketch
from .lowered.step_graph import StepGraph, laid_out_graph, lowering, platform_of, read_graph, reshards_all
from .lowered.value_names import name_once
from .opaque import notes_on_kernels
from .shardings import DeviceMesh, abstract_mesh
from .trace import Traced, trace
from .uncollected import uncollected
from .workload import PyTree, Step

MAX_LAYOUTS = 8


class StepDrafts:
    """What is known of one step with one form of arguments, and not held by the step itself: it is given each time.

    ``found`` is what partitioning it found, ``tariffs`` what its collectives are priced by, ``counted`` has the work of
    its kernels.
    """

    def __init__(self, donate_argnums: int | Sequence[int] | None = None):
        self.found, self.tariffs, self.counted = Found(), Tariffs(), Counted()
        self._donate_argnums = donate_argnums
        self._traced: dict[Hashable, Traced] = {}
        self._marks: Marks | None = None
        self._drafts: dict[Hashable, tuple[Draft, Reading]] = {}
        self._sketches: dict[Hashable, Sketch] = {}
        self._unlaid: dict[Hashable, Graph] = {}
        self._notes: dict[Hashable, tuple[str, ...]] = {}
        self._regions: list[Region] | None = None
        self._known: deque[tuple[Plan, StepLayouts]] = deque(maxlen=MAX_LAYOUTS)

    @uncollected()
    def traced(self, step: Step, args: Sequence[PyTree], remat: Remat | None, *, noting: bool = False) -> Traced:
        """The step as traced for a remat policy, without the step; ``noting`` for ``marks_blocks`` to know at once. One
        that computes nothing anew is as none.
        """
        policy = None if remat is not None and remat.policy in COMPUTES_NOTHING else remat
        if policy not in self._traced:
            marks = Marks() if noting and policy is None else None
            self._traced[policy] = replace(trace(step, args, policy, marks), step=_named_as(step))
            self._marks = marks or self._marks
        return self._traced[policy]

    def notes(self, traced: Traced, remat: Remat | None) -> tuple[str, ...]:
        """Notes on what nothing can look into, of the step as traced for a remat policy."""
        if remat not in self._notes:
            self._notes[remat] = tuple(notes_on_kernels(traced))
        return self._notes[remat]

    def regions(self, traced: Traced) -> list[Region]:
        """The meshes that the step itself names."""
        if self._regions is None:
            self._regions = region_meshes(traced)
        return self._regions

    def marks_blocks(self, step: Step, args: Sequence[PyTree]) -> bool:
        """Whether the step marks blocks that a remat policy may compute anew."""
        if self._marks is None:
            marks = Marks()
            trace(step, args, None, marks)
            self._marks = marks
        return self._marks.seen

    def layouts(self, plan: Plan, step: Step, args: Sequence[PyTree]) -> StepLayouts:
        """The layouts of a complete plan: of the last plans as they were found. Raises ``PlanError``."""
        for known, found in self._known:
            if known == plan:
                return found
        layouts = step_layouts(plan, self.traced(step, args, plan.remat))
        self._known.append((plan, layouts))
        return layouts

    def step_graph(self, plan: Plan, step: Step, args: Sequence[PyTree], *, nearly: bool = False) -> StepGraph:
        """``lowered.step_graph``'s answer, or what is known ``nearly`` and sooner, which is noted: as a sketch lies of
        what says how computed values lie (``SKETCHED``); as it lies where the partitioner gets a convolution wrong, and
        not as ``apply`` would lay it out (``NEARLY``). Raises ``PlanError`` as that does.
        """
        layouts = self.layouts(plan, step, args)
        sketched = self._sketched(plan, step, args) if nearly and names_values(plan.rules) else None
        if sketched is not None:
            return StepGraph(graph=sketched, layouts=layouts, notes=(SKETCHED,))
        graph = self._from_draft(plan, layouts)
        is_wrong = graph is not None and any(PRODUCTS in op.attributes for _, op, _ in graph.walk())
        if graph is None or (is_wrong and not nearly):
            return laid_out_graph(plan, layouts, self._donate_argnums)
        return StepGraph(graph=graph, layouts=layouts, notes=(NEARLY,) if is_wrong else ())

    def lowered(self, plan: Plan, step: Step, args: Sequence[PyTree]) -> StepGraph:
        """The same without a draft: sooner where no other plan follows."""
        return laid_out_graph(plan, self.layouts(plan, step, args), self._donate_argnums)

    @uncollected()
    def unlaid(self, plan: Plan, step: Step, args: Sequence[PyTree]) -> Graph:
        """The graph before a plan lays it out: every value whole, and named by its path where it has one.

        Of the plan only mesh, platform and remat policy count; what the step itself lays out stays as it says.
        Raises ``PlanError`` where JAX cannot lower the step (MW413), or the mesh is impossible.
        """
        layouts = unlaid(plan, self.traced(step, args, plan.remat))
        placed = abstract_mesh(plan, layouts.device_assignments)
        draft, reading = self._draft(plan, layouts.traced, placed, values=True, exact=True)
        sizes = dict(placed.mesh.shape)
        speaks_of_meshes = not draft.is_layable or bool(draft.chosen(layouts, placed))
        key = (plan.remat, draft.platform)
        if speaks_of_meshes or key not in self._unlaid:
            module = draft.unlaid(layouts, placed)
            split_constants(module)
            graph = _named_graph(module, layouts.traced, reading.over(sizes))
            if speaks_of_meshes:
                return graph
            self._unlaid[key] = graph
        return replace(self._unlaid[key], mesh=sizes)

    def laid(self, plan: Plan, step: Step, args: Sequence[PyTree]) -> Graph | None:
        """The graph that a complete plan lays out, its values named by their paths; None where it is not known.

        Raises ``PlanError`` as ``step_graph`` does.
        """
        known = self._layable(plan, step, args)
        if known is None:
            return None
        draft, reading, layouts, placed = known
        module = draft.laid_out(layouts, placed, named=True)
        propagate_split(module, draft.passes, has_loops=draft.has_loops, inlines=True, reshards_all=reshards_all(plan))
        return _named_graph(module, layouts.traced, reading)

    def lies(self, plan: Plan, step: Step, args: Sequence[PyTree]) -> Mapping[str, Sharding] | None:
        """How a step's values come to lie under a complete plan, by path, nearly; None where it is not known.

        Raises ``PlanError`` as ``step_graph`` does.
        """
        known = self._layable(plan, step, args)
        if known is None:
            return None
        draft, reading, layouts, placed = known
        return self._sketch(plan, draft, layouts, placed).lies(layouts, placed, reading)

    def _sketch(self, plan: Plan, draft: Draft, layouts: StepLayouts, placed: DeviceMesh) -> Sketch:
        key = plan.remat, draft.platform, tuple(placed.mesh.shape.items())
        if key not in self._sketches:
            self._sketches = {key: Sketch(draft, unlaid(plan, layouts.traced), placed)}
        return self._sketches[key]

    def _sketched(self, plan: Plan, step: Step, args: Sequence[PyTree]) -> Graph | None:
        """The graph of a sketch laid out, nearly that of the draft; None where that is not known."""
        known = self._layable(plan, step, args)
        if known is None:
            return None
        draft, reading, layouts, placed = known
        if draft.convolves or placed.mesh.size == 1 or reshards_all(plan):
            return None  # before any sketch is made
        reading = reading.over(dict(placed.mesh.shape), named=False)
        return self._sketch(plan, draft, layouts, placed).graph(layouts, placed, reading)

    def _layable(
        self, plan: Plan, step: Step, args: Sequence[PyTree]
    ) -> tuple[Draft, Reading, StepLayouts, DeviceMesh] | None:
        """The draft with places for values and what a plan lays it out by; None where it cannot be laid out so."""
        layouts = self.layouts(plan, step, args)
        placed = abstract_mesh(plan, layouts.device_assignments)
        draft, reading = self._draft(plan, layouts.traced, placed, values=True)
        if not draft.is_layable or layouts.device_assignments:
            return None
        if _is_reordered_or_padded(layouts, placed, layouts.shardings(placed)):
            return None
        return draft, reading.over(dict(placed.mesh.shape)), layouts, placed

    def _from_draft(self, plan: Plan, layouts: StepLayouts) -> Graph | None:
        """The graph of a laid out draft, with what the partitioner gets wrong noted; None where that is not known."""
        traced, placed = layouts.traced, abstract_mesh(plan, layouts.device_assignments)
        shardings = list(layouts.shardings(placed))
        placed = replace(placed, order=common_order(placed.mesh.axis_names, shardings))
        if placed.mesh.size == 1 or layouts.device_assignments or _is_reordered_or_padded(layouts, placed, shardings):
            return None
        draft, reading = self._draft(plan, traced, placed, values=names_values(plan.rules))
        if not draft.is_layable or (draft.convolves and draft.platform != "tpu"):
            return None
        reading = reading.over(dict(placed.mesh.shape), named=False)
        all_of_it = reshards_all(plan)
        graph = None if all_of_it else draft.graph(layouts, placed, reading)
        if graph is not None:
            return graph
        module = draft.laid_out(layouts, placed)
        propagate_split(
            module, draft.passes, has_loops=draft.has_loops, convolves=draft.convolves, reshards_all=all_of_it
        )
        graph = read_graph(module, traced, reading, draft.paths)
        return as_products(graph, [name for name, size in graph.mesh.items() if size > 1]) if draft.convolves else graph

    @uncollected()
    def _draft(
        self, plan: Plan, traced: Traced, placed: DeviceMesh, *, values: bool, exact: bool = False
    ) -> tuple[Draft, Reading]:
        """The draft for a plan's platform and remat policy, made now or before.

        One with places for values serves where none are needed too. With ``exact`` it is lowered over the plan's own
        mesh where the step speaks of meshes itself.
        """
        platform, sizes = platform_of(plan), tuple(placed.mesh.shape.items())
        for kind in (True, values):
            known = self._drafts.get((plan.remat, platform, kind)) or self._drafts.get(
                (plan.remat, platform, kind, sizes)
            )
            if known and (known[0].is_layable or not exact or known[1].mesh == dict(sizes)):
                return known
        with lowering(plan):
            draft = Draft(traced, self._donated(traced), placed, platform, values=values)
        key = (plan.remat, platform, values) if draft.is_layable else (plan.remat, platform, values, sizes)
        self._drafts[key] = draft, Reading(dict(sizes))
        return self._drafts[key]

    def _donated(self, traced: Traced) -> list[int]:
        """The numbers of the donated leaves of the arguments."""
        chosen = traced.donates(self._donate_argnums)
        numbered = jax.tree.unflatten(traced.in_tree, range(traced.in_tree.num_leaves))
        return [leaf for number in chosen for leaf in jax.tree.leaves(numbered[number])]


def _named_graph(module: Any, traced: Traced, reading: Reading) -> Graph:
    with module.context:
        name_once(operations(module), traced.values.shared)
    return read_graph(module, traced, reading)


def _is_reordered_or_padded(layouts: StepLayouts, placed: DeviceMesh, shardings: Iterable[NamedSharding]) -> bool:
    edges = (*layouts.traced.arguments, *layouts.traced.results)
    found = {id(sharding): sharding for sharding in shardings}  # most are one of a few
    return any(in_order(sharding, placed.order) is not None for sharding in found.values()) or any(
        placed.is_padded(layouts.of(tensor), tensor.shape) for tensor in edges
    )


def _named_as(step: Step) -> Step:
    """A step of the same name in place of one that is to be forgotten."""

    def forgotten(*args: Any) -> Any:
        raise NotImplementedError

    forgotten.__name__ = getattr(step, "__name__", "step")
    return forgotten
