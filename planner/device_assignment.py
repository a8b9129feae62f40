"""GShard's explicit device assignment (appendix A.3) as an order of axes.

A program has one device order, the mesh's. An assignment that names every device once can be a layout of that program
only if it is that order cut into sub-axes and dealt out to the tensor's dims; this module finds the cut.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ..dsl.errors import PlanError, Problem, listing, problem, raise_errors
from ..dsl.plan import DeviceAssignment, Place, Plan, Shard
from . import topology as machines
from .device_order import check as order_problems
from .device_order import device_numbers


class AxisOrder(NamedTuple):
    """A device assignment as an order of axes.

    ``sizes`` factor the mesh's flat device order into sub-axes, major to minor; ``dims[i]`` are the positions in
    ``sizes`` of the sub-axes that the tensor's dim ``i`` is split over, major to minor.
    """

    sizes: tuple[int, ...]
    dims: tuple[tuple[int, ...], ...]


def axis_assignment(
    assignment: DeviceAssignment, numbers: np.ndarray, *, what: str = "a tensor", place: Place | None = None
) -> AxisOrder:
    """The sub-axes of the mesh's device order that put slice ``k`` of each dim on the device the assignment names.

    ``assignment`` is nested tuples of device numbers, one level a dim of the tensor; ``numbers`` the mesh's device
    numbers (``device_order.device_numbers``); ``what`` names the tensor in a problem. Raises ``PlanError`` (MW220 to
    MW224) if it is uneven, does not name each device once, or is no order of axes of this mesh.
    """
    order = numbers.ravel()
    shape = _shape(assignment)
    if shape is None:
        raise PlanError([problem("MW220", place, what=what, detail=_uneven(assignment))])
    named = np.array(_flat(assignment), dtype=object).reshape(shape)
    raise_errors(_number_problems(named, order.size, what, place))
    position = np.empty(order.size, dtype=np.int64)
    position[order] = np.arange(order.size)
    positions = position[named.astype(np.int64)]
    found = _as_axes(positions)
    if found is None:
        example = listing(order.tolist())
        raise PlanError([problem("MW224", place, what=what, detail=_first_break(positions), example=example)])
    return found


def check(plan: Plan) -> list[Problem]:
    """The plan's device assignments that are no order of axes of its mesh; none while the mesh itself is open or wrong.

    Which devices they name is checked against each tensor (MW113).
    """
    shards = [rule for rule in plan.rules if isinstance(rule.assignment, Shard)]
    if not shards or plan.mesh.axes is None or None in plan.mesh.sizes.values() or order_problems(plan):
        return []
    numbers = device_numbers(plan.mesh, machines.physical(plan.topology) if plan.topology else None)
    found: list[Problem] = []
    for rule in shards:
        if isinstance(rule.assignment, Shard):
            what = f"'{rule.pattern}'"
            found += _order_problem(rule.assignment.device_assignment, numbers, what=what, place=rule.place)
    return found


def _order_problem(assignment: DeviceAssignment, numbers: np.ndarray, *, what: str, place: Place) -> Sequence[Problem]:
    try:
        axis_assignment(assignment, numbers, what=what, place=place)
    except PlanError as error:
        return [found for found in error.problems if found.code == "MW224"]
    return ()


def _shape(nested: object) -> tuple[int, ...] | None:
    """The lengths of the levels; None if they are uneven or hold something else than whole numbers."""
    if isinstance(nested, int) and not isinstance(nested, bool):
        return ()
    if not isinstance(nested, (tuple, list)) or not nested:
        return None
    inner = {_shape(child) for child in nested}
    shape = inner.pop()
    return None if inner or shape is None else (len(nested), *shape)


def _flat(nested: object) -> list[object]:
    return [n for child in nested for n in _flat(child)] if isinstance(nested, (tuple, list)) else [nested]


def _uneven(nested: object) -> str:
    if not isinstance(nested, (tuple, list)):
        return f"{nested!r} is no device number"
    if not nested:
        return "an empty list"
    broken = next((child for child in nested if _shape(child) is None), None)
    return _uneven(broken) if broken is not None else f"lists of unlike length or depth in {listing(nested, limit=3)}"


def _number_problems(named: np.ndarray, devices: int, what: str, place: Place | None) -> Iterator[Problem]:
    counts = Counter(named.ravel().tolist())
    strange = sorted(number for number in counts if not 0 <= number < devices)
    doubled = sorted(number for number, times in counts.items() if times > 1)
    if strange:
        yield problem("MW221", place, what=what, wrong=listing(strange), last=devices - 1)
    if doubled:
        yield problem("MW222", place, what=what, wrong=listing(doubled))
    if not strange and not doubled and named.size != devices:
        yield problem("MW223", place, what=what, named=named.size, devices=devices)


def _as_axes(positions: np.ndarray) -> AxisOrder | None:
    """The sub-axes behind these positions in the mesh's order, if there are any."""
    digits = [_digits(_along(positions, dim)) for dim in range(positions.ndim)]
    by_stride = sorted((pair for own in digits for pair in own), key=lambda digit: -digit[1])
    if not _tiles(by_stride, positions.size):
        return None
    dims = tuple(tuple(by_stride.index(digit) for digit in own) for own in digits)
    order = AxisOrder(sizes=tuple(size for size, _ in by_stride), dims=dims)
    return order if np.array_equal(_positions(order, positions.shape), positions) else None


def _along(positions: np.ndarray, dim: int) -> np.ndarray:
    index = [slice(None) if i == dim else 0 for i in range(positions.ndim)]
    return np.asarray(positions[tuple(index)])


def _digits(steps: np.ndarray) -> list[tuple[int, int]]:
    """(size, stride) of the sub-axes along one dim, major to minor: each run of equal steps is one."""
    digits: list[tuple[int, int]] = []
    while len(steps) > 1:
        stride = int(steps[1])
        run = np.arange(len(steps)) * stride == steps
        size = len(steps) if run.all() else int(run.argmin())
        if size < 2 or len(steps) % size:
            break
        digits.insert(0, (size, stride))
        steps = steps[::size]
    return digits


def _tiles(by_stride: list[tuple[int, int]], count: int) -> bool:
    """Whether each stride is the product of the sizes minor to it, so that together they number ``count`` devices."""
    expected = count
    for size, stride in by_stride:
        if stride < 1 or size * stride != expected:
            return False
        expected = stride
    return expected == 1


def _positions(order: AxisOrder, shape: tuple[int, ...]) -> np.ndarray:
    grid = np.arange(math.prod(order.sizes)).reshape(order.sizes)
    return grid.transpose([axis for own in order.dims for axis in own]).reshape(shape)


def _first_break(positions: np.ndarray) -> str:
    """Where a reader should look: the first slice whose device is out of step."""
    if positions.flat[0] != 0:
        return f"its first slice is on device {int(positions.flat[0])} of the mesh's order, not on the first"
    steps = [f"dim {dim} goes {listing(_along(positions, dim).tolist(), limit=6)}" for dim in range(positions.ndim)]
    return "in the mesh's order " + ", ".join(steps)
