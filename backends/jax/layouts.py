"""The layouts that a plan gives to everything a step names, or every reason why it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jax.extend.core import JaxprEqn
from jax.sharding import NamedSharding

from ...dsl.errors import Problem, listing, problem, raise_errors
from ...dsl.plan import Assignment, DeviceAssignment, Plan
from ...dsl.resolve import Resolution, assign, holes, resolve
from ...dsl.rule_matches import OPS
from ...dsl.tensors import Layout, Tensor
from ...planner import device_assignment, device_order
from .annotate import mark_p
from .constrain import Chooser, Given
from .fingerprint import changes
from .named_meshes import named_meshes
from .shardings import DeviceMesh
from .trace import IN_PLACE, Traced, abstract_tensor, equations, value_names

INFER = Layout(how="infer")
Region = tuple[tuple[str, int], ...]  # the axes of a mesh that a step itself names, with their sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLayouts:
    """A step and the layout of each of its arguments, results and tagged values."""

    traced: Traced
    resolution: Resolution
    in_place: Mapping[tuple[tuple[int, ...], Assignment], Layout]

    def of(self, tensor: Tensor) -> Layout:
        """The layout of one of the step's tensors."""
        return self.resolution.layouts[tensor.path, tensor.shape]

    @property
    def device_assignments(self) -> list[DeviceAssignment]:
        """The explicit device assignments among the layouts."""
        layouts = [*self.resolution.layouts.values(), *self.in_place.values()]
        return list(dict.fromkeys(a for layout in layouts if (a := layout.device_assignment) is not None))

    def shardings(self, placed: DeviceMesh) -> Iterator[NamedSharding]:
        """The shardings of everything that is not left to propagation."""
        chosen = [placed.sharding(layout, shape) for (_, shape), layout in self.resolution.layouts.items()]
        chosen += [placed.sharding(layout, shape) for (shape, _), layout in self.in_place.items()]
        return (sharding for sharding in chosen if sharding is not None)

    def chooser(self, placed: DeviceMesh) -> Chooser:
        """Which sharding each naming equation of the step's jaxpr stands for; None for all others."""
        name = value_names(self.traced.jaxpr.jaxpr)

        def choose(equation: JaxprEqn) -> NamedSharding | None:
            layout = self._layout_at(equation, name(equation))
            return None if layout is None else placed.sharding(layout, _aval(equation).shape)

        return choose

    def of_results(self, placed: DeviceMesh) -> Given:
        """Which shardings the plan gives to results of equations that have no name of the model's."""
        return self._given(placed, lambda: self.traced.values.of_equation)

    def of_operands(self, placed: DeviceMesh) -> Given:
        """Which shardings the plan gives to operands of products, for these alone."""
        return self._given(placed, lambda: self.traced.values.read_by_equation)

    def of_slices(self, placed: DeviceMesh) -> Given:
        """Which shardings the plan gives to what each turn of a scan reads of what it goes over."""
        return self._given(placed, lambda: self.traced.values.turned_by_equation)

    def _given(self, placed: DeviceMesh, named: Callable[[], Mapping[int, tuple[tuple[int, str], ...]]]) -> Given:
        given = self.values(placed)
        known = named() if given else {}

        def shardings(equation: JaxprEqn) -> list[tuple[int, str, NamedSharding]]:
            return [(i, path, given[path]) for i, path in known.get(id(equation), ()) if path in given]

        return shardings

    def values(self, placed: DeviceMesh) -> dict[str, NamedSharding]:
        """The shardings of the computed values (``ops/...``) that are not left to propagation, by path."""
        layouts = self.resolution.layouts.items()
        given = {path: placed.sharding(layout, shape) for (path, shape), layout in layouts if path.startswith(OPS)}
        return {path: sharding for path, sharding in given.items() if sharding is not None}

    def _layout_at(self, equation: JaxprEqn, name: str | None) -> Layout | None:
        if name is not None:
            return self.of(abstract_tensor(f"acts/{name}", _aval(equation), role="tagged"))
        if equation.primitive is mark_p:
            return self.in_place[tuple(_aval(equation).shape), equation.params["assignment"]]
        return None


def _aval(equation: JaxprEqn) -> Any:
    """The shape and dtype of the value that a naming equation names."""
    return equation.outvars[0].aval


def step_layouts(plan: Plan, traced: Traced) -> StepLayouts:
    """Every tensor's layout under a complete, legal plan.

    Raises ``PlanError`` with all that is wrong at once: illegal assignments, an impossible mesh, holes, a remat policy
    without blocks, another workload than the plan was made for.
    """
    resolution = resolve(plan, traced.named_by(plan))
    in_place, problems = _in_place(plan, traced)
    of_mesh = [*device_order.check(plan), *device_assignment.check(plan)]
    problems += [*resolution.problems, *of_mesh, *_step_problems(plan, traced, resolution)]
    problems += [problem("MW303", plan.mesh.place, holes=listing(holes(plan)))] if holes(plan) else []
    raise_errors(problems)
    return StepLayouts(traced=traced, resolution=resolution, in_place=in_place)


def unlaid(plan: Plan, traced: Traced) -> StepLayouts:
    """Layouts that say nothing but what the model itself assigns in place.

    Raises ``PlanError`` for what is wrong there, or with the mesh.
    """
    in_place, problems = _in_place(plan, traced)
    raise_errors([*problems, *device_order.check(plan)])
    bare = replace(plan, rules=(), remat=None, result=None)
    return StepLayouts(traced=traced, resolution=resolve(bare, traced.tensors), in_place=in_place)


def given_in_place(plan: Plan, traced: Traced) -> Mapping[tuple[tuple[int, ...], Assignment], Layout]:
    """The layouts that the model's own verbs give on a plan's mesh, by shape and assignment."""
    return _in_place(plan, traced)[0]


def check(plan: Plan, traced: Traced) -> list[Problem]:
    """What is wrong with a plan, holes allowed, for a step beside what its rules say of the step's tensors."""
    found = [*_in_place(plan, traced)[1], *_step_problems(plan, traced, resolve(plan, traced.named_by(plan)))]
    return [p if p.place else replace(p, place=plan.places.get("model")) for p in found]


def region_problems(plan: Plan, regions: Sequence[Region]) -> Iterator[Problem]:
    """A problem for each mesh that the step itself names whose axes the plan's mesh, if it has one, does not have."""
    sizes = plan.mesh.sizes
    for axes in regions if plan.mesh.axes is not None else ():
        if any(sizes.get(name, size) not in (size, None) or name not in sizes for name, size in axes):
            shown = (", ".join(f"{name}: {size}" for name, size in each) for each in (axes, sizes.items()))
            yield problem("MW320", plan.mesh.place, region=next(shown), mesh=next(shown))


def region_meshes(traced: Traced) -> list[Region]:
    """The axes and sizes of each mesh that the step itself names: of its regions for one device (``shard_map``), and of
    the shardings that it gives to values and to functions inside it, unless they split nothing.
    """
    named = (mesh for equation in equations(traced.jaxpr.jaxpr) for mesh in named_meshes(equation))
    return list(dict.fromkeys(tuple(mesh.shape.items()) for mesh in named))


def _step_problems(plan: Plan, traced: Traced, resolution: Resolution) -> Iterator[Problem]:
    if plan.remat and plan.remat.policy != "none" and not traced.num_remat_blocks:
        yield problem("MW304", plan.remat.place, policy=plan.remat.policy)
    if plan.result and plan.result.fingerprint:
        changed = changes(plan.result.fingerprint, traced, resolution.dims)
        if changed:
            yield problem("MW307", plan.result.place, changed=listing(changed))


def _in_place(plan: Plan, traced: Traced) -> tuple[dict[tuple[tuple[int, ...], Assignment], Layout], list[Problem]]:
    """The layouts of the assignments that the model itself gives with ``split``, ``replicate`` and ``shard``."""
    layouts: dict[tuple[tuple[int, ...], Assignment], Layout] = {}
    problems: list[Problem] = []
    for tensor, assignment in traced.in_place:
        layout, found = assign(plan, assignment, replace(tensor, path=IN_PLACE))
        layouts[tensor.shape, assignment] = layout or INFER
        problems += found
    return layouts, problems
