"""The mesh laid over the topology, and explicit device assignments as orders of axes."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from meshwright.dsl.errors import PlanError
from meshwright.dsl.machine import parse_topology, scan_over
from meshwright.dsl.plan import Axis, Mesh, Plan
from meshwright.planner.device_assignment import axis_assignment
from meshwright.planner.device_order import check, device_numbers
from meshwright.planner.topology import physical


def mesh(**axes: Any) -> Mesh:
    """``x=4`` or ``x=(4, "y core")``."""
    return Mesh(axes=tuple(_axis(name, said) for name, said in axes.items()))


def _axis(name: str, said: Any) -> Axis:
    size, over = said if isinstance(said, tuple) else (said, None)
    return Axis(name=name, size=size, over=None if over is None else tuple(map(scan_over, over.split())))


def numbers(topology: str, **axes: Any) -> np.ndarray:
    return device_numbers(mesh(**axes), physical(parse_topology(topology)))


def problems(topology: str, **axes: Any) -> list[str]:
    plan = Plan(mesh=mesh(**axes), topology=parse_topology(topology))
    return [f"{p.code} {p}" for p in check(plan)]


def test_without_over_the_mesh_is_row_major_over_the_device_numbers() -> None:
    assert (numbers("v3:2x4", a=2, b=8) == np.arange(16).reshape(2, 8)).all()
    assert (numbers("cpu:2x3", a=3, b=2) == np.arange(6).reshape(3, 2)).all()


def test_an_axis_over_a_dim_runs_along_it() -> None:
    assert numbers("cpu:2x4", a=(4, "y"), b=(2, "x")).tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert numbers("cpu:2x4", a=4, b=(2, "x")).tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_an_axis_over_two_dims_runs_along_the_minor_one_first() -> None:
    assert numbers("v3:2x2", a=(4, "core x"), b=(2, "y")).tolist() == [[0, 2], [4, 6], [1, 3], [5, 7]]


def test_of_a_shared_dim_the_axis_listed_first_takes_the_major_part() -> None:
    assert numbers("cpu:8", a=(2, "x:2"), b=(4, "x:4")).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert numbers("cpu:8", a=(2, "x"), b=(4, "x")).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert numbers("cpu:8", a=2, b=(4, "x")).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert numbers("cpu:8", a=2, b=(2, "x"), c=2).tolist() == np.arange(8).reshape(2, 2, 2).tolist()


def test_an_unsaid_part_is_all_that_the_others_leave() -> None:
    assert (numbers("cpu:8x2", a=(2, "x:2"), b=(8, "y x")) == _brute("cpu:8x2", [["x2a"], ["y", "x4b"]])).all()


def _brute(topology: str, order: list[list[str]]) -> np.ndarray:
    """For the test above, coordinate by coordinate."""
    machine = physical(parse_topology(topology))
    table = np.empty((2, 8), dtype=int)
    for n in range(machine.num_devices):
        at = machine.coordinates(n)
        table[at["x"] // 4, at["y"] * 4 + at["x"] % 4] = n
    return table


@pytest.mark.parametrize(
    ("topology", "axes", "code", "says"),
    [
        ("v3:4x4", {"a": 30}, "MW210", "{a: 32}"),
        ("v3:4x4", {"a": 5, "b": 8}, "MW210", "{a: 4, b: 8}"),
        ("v3:4x4", {"a": 5, "b": None}, "MW211", "32"),
        ("v3:4x4", {"a": (4, "z"), "b": 8}, "MW212", "x, y, core"),
        ("v3:4x4", {"a": (2, "corr"), "b": 16}, "MW212", "'core'"),
        ("v3:4x4", {"a": (3, "x:3"), "b": 8}, "MW213", "1, 2, 4"),
        ("v3:4x4", {"a": (4, "x"), "b": (2, "x"), "c": 4}, "MW214", "8 of dim 'x'"),
        ("v3:4x4", {"a": (8, "x y"), "b": 4}, "MW215", "x:4 x y:4"),
        ("v3:4x4", {"a": (8, "x"), "b": 4}, "MW214", "a 8"),
        ("v3:4x4", {"a": (4, "x y"), "b": (8, "y x")}, "MW216", "settled"),
        ("v3:4x4", {"a": (4, "x"), "b": (4, "y")}, "MW217", "core:2"),
    ],
)
def test_a_mesh_that_does_not_fit_is_told_why(topology: str, axes: dict[str, Any], code: str, says: str) -> None:
    found = problems(topology, **axes)
    assert [p for p in found if p.startswith(code) and says in p], found


def test_all_problems_are_told_at_once() -> None:
    found = problems("v3:4x4", a=(3, "x:3"), b=(5, "q"))
    assert sorted(p[:5] for p in found) == ["MW210", "MW212", "MW213"]


def test_holes_are_no_problem() -> None:
    assert problems("v3:4x4", a=None, b=(None, "core")) == []
    assert check(Plan(mesh=Mesh(axes=None), topology=parse_topology("v3:4x4"))) == []
    assert check(Plan(mesh=mesh(a=7))) == []


def test_over_needs_a_topology() -> None:
    assert [p.code for p in check(Plan(mesh=mesh(a=(2, "x"))))] == ["MW218"]


@st.composite
def laid_out(draw: st.DrawFn) -> tuple[str, dict[str, Any], np.ndarray]:
    """A mesh whose axes take random pieces of random dims, and where each device must stand, cell by cell."""
    topology = draw(st.sampled_from(["v3:4x4", "v4:2x2x4", "2*v5e:4x2", "h100:8x2", "cpu:12", "cpu:6x4"]))
    machine = physical(parse_topology(topology))
    pieces = [(name, part) for name, size in machine.dims for part in _factors(draw, size)]
    order = draw(st.permutations(range(len(pieces))))
    cuts = sorted(draw(st.lists(st.integers(1, len(pieces)), max_size=2)))
    runs = [order[a:b] for a, b in itertools.pairwise([0, *cuts, len(pieces)]) if a < b]
    axes = {
        f"a{i}": (math.prod(pieces[p][1] for p in run), " ".join("{}:{}".format(*pieces[p]) for p in run))
        for i, run in enumerate(runs)
    }
    return topology, axes, _cells(machine, [[pieces[p] for p in run] for run in runs])


def _factors(draw: st.DrawFn, size: int) -> list[int]:
    part = draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
    return [part] if part == size else [part, size // part]


def _cells(machine: Any, runs: list[list[tuple[str, int]]]) -> np.ndarray:
    """By counting: at each cell of the mesh the digits of each dim, put together major part first."""
    table = np.empty([math.prod(size for _, size in run) for run in runs], dtype=int)
    listed = [piece for run in runs for piece in run]
    for cell in itertools.product(*(range(size) for _, size in listed)):
        at = dict.fromkeys((name for name, _ in machine.dims), 0)
        for (name, size), digit in zip(listed, cell, strict=True):
            at[name] = at[name] * size + digit
        number = 0
        for name, size in machine.dims:
            number = number * size + at[name]
        index, digits = [], iter(cell)
        for run in runs:
            position = 0
            for _, size in run:
                position = position * size + next(digits)
            index.append(position)
        table[tuple(index)] = number
    return table


@given(laid_out())
def test_any_order_of_pieces_puts_each_device_where_counting_puts_it(case: tuple[str, dict[str, Any], Any]) -> None:
    topology, axes, expected = case
    assert (numbers(topology, **axes) == expected).all()


@given(st.sampled_from(["v3:4x4", "2*v5e:4x2", "cpu:12"]), st.data())
def test_every_mesh_that_passes_holds_each_device_once(topology: str, data: st.DataObject) -> None:
    machine = physical(parse_topology(topology))
    names = [name for name, _ in machine.dims]
    overs = st.none() | st.lists(st.sampled_from([*names, *(f"{n}:2" for n in names)]), min_size=1, max_size=2)
    sizes = st.sampled_from([1, 2, 3, 4, 6, 8, 16])
    axes = {f"a{i}": (data.draw(sizes), (data.draw(overs) or [])) for i in range(data.draw(st.integers(1, 3)))}
    said = {name: (size, " ".join(over)) if over else size for name, (size, over) in axes.items()}
    if not problems(topology, **said):
        assert sorted(numbers(topology, **said).ravel()) == list(range(machine.num_devices))


# Explicit device assignments


@st.composite
def assigned(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """A device order, and an assignment made from it by cutting it into sub-axes and dealing these out to dims."""
    count = draw(st.sampled_from([1, 4, 6, 8, 12, 36]))
    order = np.array(draw(st.permutations(range(count))))
    sizes, left = [], count
    while left > 1:
        sizes.append(draw(st.sampled_from([d for d in range(2, left + 1) if left % d == 0])))
        left //= sizes[-1]
    permutation = draw(st.permutations(range(len(sizes))))
    rank = draw(st.integers(1, 3))
    home = sorted(draw(st.lists(st.integers(0, rank - 1), min_size=len(sizes), max_size=len(sizes))))
    shape = [math.prod(sizes[p] for p, h in zip(permutation, home, strict=True) if h == dim) for dim in range(rank)]
    return order, order.reshape(sizes or [1]).transpose(permutation or [0]).reshape(shape)


def nested(array: np.ndarray) -> Any:
    return tuple(map(nested, array)) if array.ndim else int(array)


@given(assigned())
def test_an_assignment_made_from_axes_is_recovered(case: tuple[np.ndarray, np.ndarray]) -> None:
    order, assignment = case
    found = axis_assignment(nested(assignment), order)
    again = order.reshape(found.sizes).transpose([a for dim in found.dims for a in dim]).reshape(assignment.shape)
    assert (again == assignment).all()


def test_only_orders_of_axes_are_recovered_of_all_orders_of_six_devices() -> None:
    flat = np.arange(6)
    reachable = {tuple(flat)} | {tuple(flat.reshape(s).T.ravel()) for s in [(2, 3), (3, 2)]}
    for order in itertools.permutations(range(6)):
        try:
            axis_assignment(order, flat)
        except PlanError:
            assert order not in reachable
        else:
            assert order in reachable


@pytest.mark.parametrize(
    ("assignment", "code", "says"),
    [
        ((0, (1, 2), 3), "MW220", "unlike"),
        (((0, 1), (2,)), "MW220", "unlike"),
        ((), "MW220", "an empty list"),
        ((0, 1, 2.5, 3), "MW220", "2.5"),
        ((0, 1, 2, 9), "MW221", "names 9"),
        ((0, 1, 2, 10**30), "MW221", "names 1000"),
        ((0, 1, 2, 2), "MW222", "names 2 more than once"),
        ((0, 1), "MW223", "2 devices; the mesh has 4"),
        ((0, 1, 3, 2), "MW224", "0, 1, 2, 3"),
        ((1, 0, 3, 2), "MW224", "not on the first"),
    ],
)
def test_an_assignment_that_cannot_be_is_told_why(assignment: Any, code: str, says: str) -> None:
    with pytest.raises(PlanError) as refused:
        axis_assignment(assignment, np.arange(4).reshape(2, 2))
    assert refused.value.problems[0].code == code
    assert says in str(refused.value)


@pytest.mark.parametrize("assignment", [((0, 1), (2, 3), (4, 5), (6, 7)), ((0, 4), (2, 6), (1, 5), (3, 7))])
def test_jax_places_the_slices_as_assigned(assignment: Any) -> None:
    import jax
    from jax.sharding import Mesh as JaxMesh
    from jax.sharding import NamedSharding, PartitionSpec

    found = axis_assignment(assignment, np.arange(8))
    names = [f"part{i}" for i in range(len(found.sizes))]
    devices = JaxMesh(np.array(jax.devices()[:8]).reshape(found.sizes), names)
    sharding = NamedSharding(devices, PartitionSpec(*(tuple(names[a] for a in dim) for dim in found.dims)))
    for device, (row, column) in sharding.devices_indices_map((4, 2)).items():
        assert assignment[row.start or 0][column.start or 0] == device.id  # type: ignore[attr-defined]


@pytest.mark.parametrize("topology", [None, parse_topology("cpu:1")])
def test_a_mesh_larger_than_any_machine_is_a_problem(topology: Any) -> None:
    for large in (mesh(x=2**20, y=2), mesh(**{f"x{i}": 1 for i in range(100)})):
        assert [p.code for p in check(Plan(mesh=large, topology=topology))] == ["MW219"]
