"""Programs of all meshes with axes of the same sizes at once: nothing costs more in them than on one of these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations, product

import meshwright as mw
import pytest
from extent import examples, some
from hypothesis import given, settings
from meshwright.backends.jax.drafts import Drafts
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.plan import Axis, Mesh
from meshwright.planner.compute.speed import speed_of
from meshwright.planner.estimate.traffic import tariff
from meshwright.planner.graph import Graph, Op, Sharding, Value
from meshwright.planner.kinds import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, COLLECTIVE_PERMUTE
from meshwright.planner.partition.layout import extends
from meshwright.planner.partition.target import target
from meshwright.planner.program import Program, build
from meshwright.planner.program.pricing.choices import Choice, Counted, choices, counted
from meshwright.planner.program.pricing.counted import CountedReshards, LeastTariff
from meshwright.planner.program.pricing.reshards import Reshards
from meshwright.planner.search.meshes import foldings
from meshwright.planner.topology import Machine, physical
from small_graphs import program_of, shardings, steps
from small_steps import Pair, attention, experts, mlp, scanned
from test_program_by_parts import layers

FEW = settings(max_examples=examples(4, 40), deadline=None)
SIZES = {"x": 4, "y": 2, "z": 2}
WHERE = "v5e:4x4"


def machine_of(topology: str) -> Machine:
    return physical(parse_topology(topology))


def meshes_of(machine: Machine, sizes: Mapping[str, int]) -> list[Mesh]:
    """All meshes of a machine with axes of these sizes, in some order."""
    found = [folding for folding in foldings(machine) if sorted(folding.sizes) == sorted(sizes.values())]
    return [folding.mesh(machine) for folding in found]


def all_of(graph: Graph, topology: str, sizes: Mapping[str, int], **options: object) -> Program:
    """The program of all of them."""
    machine = machine_of(topology)
    mesh = Mesh(axes=tuple(Axis(name=name, size=size) for name, size in sizes.items()))
    return build(graph, mesh, machine, alike=meshes_of(machine, sizes), **options)  # type: ignore[arg-type]


def least_of(program: Program) -> float:
    return program.bounded(time_limit_s=120).bound_s


def ways(layout: Sharding, mesh: Mapping[str, int]) -> list[list[int]]:
    """The sizes of the axes that split each dim."""
    return [sorted(mesh[axis] for axis in axes) for axes in layout]


def test_layouts_that_split_alike_are_written_alike() -> None:
    assert counted((("z",), ("y", "x")), SIZES) == (("y",), ("x", "y"))
    assert counted((("y",), ("x", "z")), SIZES) == (("y",), ("x", "y"))
    assert counted((("z", "y"), ()), SIZES) == (("y", "z"), ())


def test_of_choices_that_differ_in_axes_of_one_size_one_is_left_and_every_way_to_split_is_there() -> None:
    program = program_of(layers(), WHERE, SIZES)
    level = program.wiring.levels[0]
    for kernel in level.program.kernels:
        nest = program.wiring.strategies.known.blueprint(level.graph, kernel)[0].nest
        every = list(choices(nest, SIZES))
        few = list(choices(nest, SIZES, Counted(((0,), (1, 2)))))

        def said(choice: Choice) -> tuple[Sharding, ...]:
            return tuple(counted(layout, SIZES) for layout in choice.layouts)

        def told(choice: Choice) -> object:
            first, *alike = choice.splits
            return first, frozenset(Counter(alike).items())

        assert {said(choice) for choice in few} == {said(choice) for choice in every}
        assert Counter(map(told, few)) == Counter({told(choice) for choice in every})
        assert len(few) < len(every)


@pytest.mark.parametrize("topology", some(["v5e:4x4", "v3:2x4", "v4:2x2x2"], 3))
@pytest.mark.parametrize("kind", [ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, COLLECTIVE_PERMUTE])
def test_no_collective_costs_more_than_on_any_of_the_meshes(kind: str, topology: str) -> None:
    machine = machine_of(topology)
    several = [tariff(mesh, machine, {}) for mesh in meshes_of(machine, SIZES)]
    least = LeastTariff.of(SIZES, meshes_of(machine, SIZES), machine)
    assert len(several) > 1
    for count in (1, 2, 3):
        for own in several:
            for axes in combinations(own.network.mesh, count):
                sizes = sorted(own.network.mesh[axis] for axis in axes)
                alike = next(a for a in combinations(SIZES, count) if sorted(SIZES[axis] for axis in a) == sizes)
                op, other = (Op(kind=kind, attributes={"axes": a, "dimensions": (0,)}) for a in (alike, axes))
                assert least.price(op, kind, 2**20).total_s <= own.price(other, kind, 2**20).total_s


def test_parts_of_axes_cost_what_they_cost_where_they_lie_best() -> None:
    machine = machine_of("v5e:4x4")
    least = LeastTariff.of(SIZES, meshes_of(machine, SIZES), machine)
    several = [tariff(mesh, machine, {}) for mesh in meshes_of(machine, SIZES)]
    for parts in (("x:(1)2",), ("x:(1)2", "y"), ("x:(1)2", "x:(2)2")):
        op = Op(kind=ALL_GATHER, attributes={"axes": parts, "dimensions": (0,)})
        found = least.price(op, ALL_GATHER, 2**20).total_s
        mine = []
        for own in several:
            (long,) = (axis for axis, size in own.network.mesh.items() if size == 4)
            short = [axis for axis, size in own.network.mesh.items() if size == 2]
            homes = ({"x": long, "y": each} for each in short)
            names = [tuple(home[part[0]] + part[1:] for part in parts) for home in homes]
            ops = [Op(kind=ALL_GATHER, attributes={"axes": axes, "dimensions": (0,)}) for axes in names]
            mine += [own.price(each, ALL_GATHER, 2**20).total_s for each in ops]
        assert found == min(mine)


def reshards_of(kind: type[Reshards], machine: Machine, mesh: Mapping[str, int], prices: object) -> Reshards:
    return kind(
        mesh=mesh,
        tariff=prices,  # type: ignore[arg-type]
        speed=speed_of(machine.chip, None),
        target=target(machine.platform, machine, machine.num_devices),
    )


@pytest.mark.parametrize("shape", [(16, 32), (16, 16, 16), (1024, 4096)])
def test_no_reshard_costs_more_than_on_any_of_the_meshes(shape: tuple[int, ...]) -> None:
    machine, value = machine_of(WHERE), Value(shape, "f32")
    meshes = meshes_of(machine, SIZES)
    least = reshards_of(CountedReshards, machine, SIZES, LeastTariff.of(SIZES, meshes, machine))
    compared = 0
    for mesh in meshes:
        sizes = {name: size or 1 for name, size in mesh.sizes.items()}
        own = reshards_of(Reshards, machine, sizes, tariff(mesh, machine, {}))
        canonical = {size: [a for a, s in SIZES.items() if s == size] for size in SIZES.values()}

        def renamed(
            layout: Sharding, sizes: Mapping[str, int] = sizes, canonical: Mapping[int, list[str]] = canonical
        ) -> Sharding:
            """A layout of the mesh as one of those with the sizes that all have."""
            names: dict[str, str] = {}
            for size, alike in canonical.items():
                names |= dict(zip((a for a, s in sizes.items() if s == size), alike, strict=True))
            return counted(tuple(tuple(names[axis] for axis in axes) for axes in layout), SIZES)

        layouts = list(shardings(shape, sizes))
        compared += len(layouts) ** 2
        for source, to in product(layouts, layouts):
            took_s = own.seconds(value, source, to)
            assert least.seconds(value, renamed(source), renamed(to)) <= took_s * (1 + 1e-9)
            assert not extends(to, source) or least.extends(renamed(to), renamed(source))
    assert compared > 500


@FEW
@given(steps(3))
def test_no_drawn_step_costs_more_than_on_any_of_the_meshes(step: tuple[Graph, dict[str, str]]) -> None:
    graph, returned = step
    sizes = {"x": 2, "y": 2, "z": 2}
    least_s = least_of(all_of(replace(graph, mesh=sizes), "v3:2x2", sizes, returned=returned))
    own_s = least_of(program_of(graph, "v3:2x2", sizes, returned=returned))
    assert 0 < least_s <= own_s * (1 + 1e-9)


@pytest.mark.parametrize(
    "pair",
    some(
        [
            lambda: mlp(tokens=512, width=256, hidden=1024, layers=1, momentum=True),
            lambda: scanned(tokens=512, width=256, hidden=512, layers=3),
            lambda: attention(batch=8, length=128, width=256, heads=4),
            lambda: experts(groups=4, tokens=128, width=128, hidden=256, count=4, capacity=64),
        ],
        4,
    ),
)
def test_no_step_costs_more_than_on_any_of_the_meshes(pair: Callable[[], Pair]) -> None:
    drafts = Drafts(*pair())
    plan = mw.loads(f"meshwright: 1\ntopology: {WHERE}\nmesh: {{x: 4, y: 2, z: 2}}\n")
    graph, returned = drafts.graph(plan), {t.path: t.returns for t in drafts.tensors if t.returns}
    least_s = least_of(all_of(graph, WHERE, SIZES, returned=returned))
    machine = machine_of(WHERE)
    meshes = some(meshes_of(machine, SIZES), 5)
    own_s = [least_of(build(graph, mesh, machine, returned=returned)) for mesh in meshes]
    assert 0.7 * min(own_s) < least_s <= min(own_s) * (1 + 1e-9)
