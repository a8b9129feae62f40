"""What the search may choose between: each mesh of the machine with each remat policy, none solved yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Literal, cast

from ...dsl.errors import PlanError, Problem, listing, problem, raise_errors
from ...dsl.plan import Axis, Mesh, Plan, Remat
from ...dsl.tensors import Tensor
from ..graph import Graph, Sharding
from ..links import OUTER
from ..topology import Machine
from .floor import Products, least_argument_bytes, least_result_bytes
from .meshes import MAX_AXES, NAMES, Folding, filled, foldings, uncovered
from .pins import Demand, demands_of, joined_axes, misassigned, named_axes, pinned, pinned_values
from .promise import by_axes, by_promise
from .workload import Workload, decided_remat

MAX_MESHES = 24
BOTH_WAYS = 2  # meshes that are tried with every remat policy before others
NO_REMAT = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meshes:
    """The meshes to try, the most promising first, and how many there are besides.

    ``distinct`` counts all that can be told apart, ``covered`` those that another one covers, ``impossible`` those
    that a pin rules out, ``left_out`` those that nothing rules out and that are not tried; ``unlisted`` are these,
    where no axis has a name.
    """

    listed: tuple[Mesh, ...]
    distinct: int
    covered: int = 0
    impossible: int = 0
    left_out: int = 0
    unlisted: tuple[Mesh, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A mesh with a remat policy: the plan so far, what is pinned, what it takes at least.

    ``policy`` counts the policies in the order in which they are tried. ``returned`` has, by a result's path, that of
    the argument whose next value it is.
    """

    index: int
    plan: Plan
    policy: int = 0
    pins: Mapping[str, Sharding] = field(repr=False)
    returned: Mapping[str, str] = field(default_factory=dict, repr=False)
    floor_s: float
    least_bytes: int

    @property
    def remat(self) -> str:
        """The remat policy, as a plan says it."""
        return policy_name(self.plan.remat)

    def __str__(self) -> str:
        mesh = " ".join(f"{name}={size}" for name, size in self.plan.mesh.sizes.items())
        return mesh if self.remat == NO_REMAT else f"{mesh}, remat {self.remat}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """All candidates; ``even_s`` is what the step takes at least on whatever mesh, ``num_ops`` how many operations it
    has under the first policy.
    """

    listed: tuple[Candidate, ...]
    even_s: float
    num_ops: int


def meshes(
    plan: Plan, machine: Machine, tensors: Sequence[Tensor], axis_names: Sequence[str] = (), limit: int = MAX_MESHES
) -> Meshes:
    """The meshes that a plan may be given; ``axis_names`` are those that the model itself names.

    Raises ``PlanError`` where the pins forbid all of them (MW551, MW552; the pins' own problems on a given mesh), or
    what is said of the axes does (MW576), or there are too many (MW557).
    """
    if plan.mesh.axes is not None and None not in plan.mesh.sizes.values():
        return _given(plan, tensors)
    raise_errors(misassigned(plan, tensors, machine.num_devices))
    if plan.mesh.axes is not None:
        return _possible(plan, machine, tensors, filled(machine, plan.mesh.axes), limit)
    names = tuple(dict.fromkeys((*axis_names, *named_axes(rule.assignment for rule in plan.rules))))
    every = foldings(machine, max(MAX_AXES, len(names)))
    if not names:
        demands_of(plan, tensors, plan.mesh)  # pins that name no axis may be wrong on any mesh too
        return _unnamed(machine, tensors, every, limit)
    named = [mesh for folding in every for mesh in _named(folding, machine, names)]
    if not named:
        most = max(len(folding.axes) for folding in every)
        topology, axes = str(machine.topology), listing(list(names))
        raise PlanError([problem("MW557", plan.mesh.place, count=len(names), axes=axes, topology=topology, most=most)])
    return _possible(plan, machine, tensors, named, limit)


def candidates(plan: Plan, workload: Workload, machine: Machine, listed: Sequence[Mesh]) -> Candidates:
    """Each mesh with each policy, in the order in which they are tried.

    One graph is read, of the first policy: what others compute anew comes on top. Raises ``PlanError`` where what the
    model assigns in place is possible on no mesh.
    """
    policies = _policies(plan, workload)
    graph = _graph(replace(plan, remat=policies[0]), workload, listed)
    products = Products.of(graph)
    tensors = workload.tensors_under(decided_remat(plan))
    returned = {tensor.path: tensor.returns for tensor in tensors if tensor.returns}
    places = [(mesh, remat) for mesh in listed[:BOTH_WAYS] for remat in policies]
    places += [(mesh, remat) for remat in policies for mesh in listed[BOTH_WAYS:]]
    made = []
    for index, (mesh, remat) in enumerate(places):
        own = replace(plan, mesh=mesh, remat=remat)
        sizes = {name: size or 1 for name, size in mesh.sizes.items()}
        pins = {**workload.given_under(own), **(pinned_values(own, workload, remat) if plan.rules else {})}
        made.append(
            Candidate(
                index=index,
                plan=own,
                policy=policies.index(remat),
                pins=pins,
                returned=returned,
                floor_s=products.seconds(list(sizes.values()), machine.chip),
                least_bytes=least_argument_bytes(tensors, sizes, pins) + least_result_bytes(graph, sizes, pins),
            )
        )
    even_s = products.even_seconds(machine.num_devices, machine.chip)
    return Candidates(listed=tuple(made), even_s=even_s, num_ops=sum(1 for _ in graph.walk()))


def _graph(plan: Plan, workload: Workload, listed: Sequence[Mesh]) -> Graph:
    """A step, read on the first mesh that it can be had on."""
    refused: PlanError | None = None
    for mesh in listed:
        try:
            return workload.graph(replace(plan, mesh=mesh))
        except PlanError as error:
            refused = refused or error
    raise refused or PlanError([])


def policy_of(name: str) -> Remat | None:
    """The remat policy with this name (``save:a+b`` keeps the values ``a`` and ``b``); None for none."""
    if name == NO_REMAT:
        return None
    policy, _, names = name.partition(":")
    kept = tuple(names.split("+")) if names else ()
    return Remat(policy=cast(Literal["none", "full", "dots", "save", "auto"], policy), names=kept)


def policy_name(remat: Remat | None) -> str:
    """The inverse of ``policy_of``."""
    if remat is None:
        return NO_REMAT
    return f"{remat.policy}:{'+'.join(remat.names)}" if remat.names else remat.policy


def _policies(plan: Plan, workload: Workload) -> list[Remat | None]:
    """The policies to try: the plan's own, or those that the step allows."""
    if plan.remat is not None and plan.remat.policy != "auto":
        return [plan.remat]
    return [policy_of(name) for name in workload.remat_policies]


def _unnamed(machine: Machine, tensors: Sequence[Tensor], every: Sequence[Folding], limit: int) -> Meshes:
    """Meshes of one axis, two and three: each kind takes a fraction of the time of the next one, which covers it.

    Of a kind that not all can be tried of half as many are as there is room for, of the last a third, since each takes
    several times as long: so a search on a large machine takes about as long as on a small one, on which all are. On
    several slices or nodes there are two axes at least: what is split over one is joined over the slow network.
    """
    finest = [folding.mesh(machine) for folding in uncovered(machine, every)]
    chosen: list[Mesh] = []
    networks = {name in OUTER for name, size in machine.dims if size > 1}
    for axes in range(max(len(networks), 1), MAX_AXES + 1):
        few = [folding for folding in every if len(folding.axes) <= axes]
        of_few = [folding.mesh(machine) for folding in uncovered(machine, few)] if axes < MAX_AXES else finest
        new = [mesh for mesh in of_few if mesh not in chosen]
        room = limit - len(chosen)
        most = room // 2 if axes < MAX_AXES else room if len(new) <= room else room // 3
        chosen += by_promise(new, machine, tensors, most, chosen)
    unlisted = tuple(mesh for mesh in finest if mesh not in chosen)
    return Meshes(
        listed=tuple(chosen),
        distinct=len(every),
        covered=len(every) - len(chosen) - len(unlisted),
        left_out=len(unlisted),
        unlisted=unlisted,
    )


def _given(plan: Plan, tensors: Sequence[Tensor]) -> Meshes:
    found = pinned(plan, tensors).problems
    if found:
        raise PlanError(found)
    return Meshes(listed=(plan.mesh,), distinct=1)


def _named(folding: Folding, machine: Machine, names: Sequence[str]) -> Iterator[Mesh]:
    """The meshes of a folding in which each of ``names`` is an axis; other axes have names of their own."""
    others = [name for name in (*NAMES, *(f"axis{i}" for i in range(len(names)))) if name not in names]
    for homes in permutations(range(len(folding.axes)), len(names)) if len(names) <= len(folding.axes) else ():
        spare = iter(others)
        own = dict(zip(homes, names, strict=True))
        yield folding.mesh(machine, [own.get(i) or next(spare) for i in range(len(folding.axes))])


def _possible(plan: Plan, machine: Machine, tensors: Sequence[Tensor], found: Sequence[Mesh], limit: int) -> Meshes:
    """Those of ``found`` on which all pins are possible, ranked."""
    demands = demands_of(plan, tensors, found[0] if found else plan.mesh)
    if not found:
        raise PlanError([_no_mesh(plan.mesh, machine)])
    possible = [mesh for mesh in found if all(demand.met(mesh) for demand in demands)]
    if not possible:
        raise PlanError(_impossible(machine, found, demands))
    chosen = by_axes(possible, machine, tensors, limit, joined_axes(demands, tensors))
    return Meshes(
        listed=tuple(chosen),
        distinct=len(found),
        impossible=len(found) - len(possible),
        left_out=len(possible) - len(chosen),
    )


def _no_mesh(mesh: Mesh, machine: Machine) -> Problem:
    """That a machine has no mesh with such axes."""
    said = [f"{axis.name}: {axis.size or 'auto'}{_lying(axis)}" for axis in mesh.axes or ()]
    dims = [f"{name} ({size})" for name, size in machine.dims]
    topology, count = str(machine.topology), machine.num_devices
    return problem("MW576", mesh.place, topology=topology, axes=listing(said), dims=listing(dims), count=count)


def _lying(axis: Axis) -> str:
    over = ", ".join(each.name if each.size is None else f"{each.name}:{each.size}" for each in axis.over or ())
    return f" over [{over}]" if over else ""


def _impossible(machine: Machine, found: Sequence[Mesh], demands: Sequence[Demand]) -> list[Problem]:
    """The pins that no mesh satisfies, each named; or that none satisfies all of them."""
    topology = str(machine.topology)
    alone = [demand for demand in demands if not any(demand.met(mesh) for mesh in found)]
    if not alone:
        together = listing(list(dict.fromkeys(f"'{demand.pattern}'" for demand in demands)))
        return [problem("MW552", topology=topology, pins=together)]
    first = {demand.pattern: demand for demand in reversed(alone)}
    return [problem("MW551", d.place, topology=topology, pin=d.pattern, reason=str(d)) for d in first.values()]
