"""The orders in which axes that split one dim are named: each is a program of its own.

XLA's partitioner needs one order throughout: a plan that mixes them has its layouts put in that of the mesh, and out of
it where it says so. Any one will do, and what layouts are brought into each other for hangs on it: of ``b+a`` it is
``b`` that is had by one gather. The mesh's order is solved first; most of what kernels take is known then, and others
have to be better. What a device holds hangs on no order: where nothing fits in one, nothing does in another.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, permutations

import numpy as np

from ...dsl.plan import Mesh
from ..estimate.traffic import Tariff, tariff
from ..graph import Axes, Graph, Op, Sharding
from ..kinds import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, COLLECTIVE_PERMUTE
from ..topology import Machine
from .by_parts import FEW_AXES, Asked, Bound, Parts, bounded_by, nearest
from .pricing.strategies import REGION
from .program import Program
from .solving.found import Found, RunnerUp, Status, Tell
from .solving.solutions import ENOUGH, RUNNERS_UP
from .step.parted import parted, writable

Make = Callable[[Asked, Program | None, Axes], Program]
"""Builds the program of some choices, or of all, with axes in an order, with what another one had worked out before."""

SHORT = 300
"""Operations: of longer steps, and on meshes of more axes, only layouts in the mesh's order are looked at."""
TINY, MOST_PARTS = 60, 4
"""Of steps of so many operations so many parts of axes are looked at: of longer ones choices along three axes are more
than time and memory allow.
"""
FIRST = 0.7
"""Of the time at most for the first order."""
PROBED_BYTES = 2**12, 2**20, 2**28
"""So much collectives are asked to send along axes, to tell whether these are alike."""
ALIKE = 1e-9
"""What part of what collectives take is no difference between axes."""


@dataclass(slots=True, kw_only=True)
class Orders:
    """A search of a program in each order: ``program`` is the last that was built, ``told_s`` what took least of what
    was told of.
    """

    make: Make
    graph: Graph
    mesh: Mesh
    machine: Machine
    pins: Mapping[str, Sharding]
    time_limit_s: float
    seed: int = 0
    stop: Callable[[], bool] | None = None
    cutoff_s: float = math.inf
    tell: Tell | None = None
    partly: bool = False
    bound: Bound | None = None
    program: Program | None = None
    told_s: float = math.inf

    def solve(self, *, as_pinned: bool = False) -> Found:
        """What is found in any order that a plan with its pins may keep to, or in the first that is theirs alone.
        Orders that differ in names of axes alone are solved once, unless the step or its pins name axes.
        """
        deadline = time.monotonic() + self.time_limit_s
        sizes = {axis: size for axis, size in self.mesh.sizes.items() if size is not None and size > 1}
        first, *others = list(self._orders())[: None if self._is_short and not as_pinned else 1]
        parts = parted(self.graph, sizes) if self._is_short and not as_pinned else ()
        parts = parts if len(parts) <= (MOST_PARTS if self._num_ops <= TINY else FEW_AXES) else ()
        if others and not (self.pins or any(op.kind == REGION for _, op, _ in self.graph.walk())):
            others = list(told_apart(first, others, tariff(self.mesh, self.machine, {})))
        begin = time.monotonic()
        found = self._solved(first, deadline - (1 - FIRST) * self.time_limit_s if others or parts else deadline)
        if not (others or parts) or found.status == "infeasible":
            return found
        is_late = time.monotonic() + len(others) * (time.monotonic() - begin) > deadline
        known = self._of_every(found, deadline) if is_late else None
        for order in others if known is None or known.status != "optimal" else ():
            if time.monotonic() > deadline or (self.stop is not None and self.stop()):
                found = replace(found, status=_feasible(found, 0.0), bound_s=0.0, floor_s=0.0)
                break
            found = both(found, self._solved(order, deadline, found))
        if known is not None:
            found = known if known.status == "optimal" else bounded_by(found, known)
        return both(found, self._in_parts(parts, deadline, found)) if parts else found

    def _in_parts(self, parts: Axes, deadline: float, known: Found) -> Found:
        """What is found with parts of axes, of which a plan writes what lies along axes; propagation has the rest. What
        costs are off says nothing of those of the other mesh.
        """
        self.program = None  # it is of another mesh
        found = self._solved(parts, deadline, known)
        layouts = None if found.layouts is None else writable(found.layouts, parts)
        several = [each._replace(layouts=writable(each.layouts, parts)) for each in found.runners_up]
        return replace(found, layouts=layouts, runners_up=tuple(several), near=(), least=None, credit_s=known.credit_s)

    def _of_every(self, found: Found, deadline: float) -> Found | None:
        """What was found in one order with what layouts take at least in any, where that is soon known: to solve the
        others takes longer than there is time for.
        """
        if self.bound is None or self.pins or found.layouts is None:
            return None
        known = self.bound(min(found.objective_s, self.cutoff_s) + found.credit_s, max(deadline - time.monotonic(), 0))
        bound_s, floor_s = (
            min(max(each - found.credit_s, 0.0), found.objective_s) for each in (known.bound_s, known.floor_s)
        )
        return replace(found, status=_feasible(found, bound_s), bound_s=bound_s, floor_s=floor_s)

    @property
    def _is_short(self) -> bool:
        """Whether all orders are soon solved, and are not bounded elsewhere."""
        count = sum(1 for size in self.mesh.sizes.values() if (size or 1) > 1)
        return count <= FEW_AXES and not self.partly and self._num_ops <= SHORT

    @property
    def _num_ops(self) -> int:
        return sum(1 for _ in self.graph.walk())

    def lowest(self) -> Found:
        """The layouts that take least memory, which hangs on no order."""
        program = self.make(None, None, next(self._orders()))
        return program.lowest(time_limit_s=self.time_limit_s, seed=self.seed, stop=self.stop)

    def _orders(self) -> Iterator[Axes]:
        axes = tuple(axis for axis, size in self.mesh.sizes.items() if (size or 1) > 1)
        return orders(axes, self.pins.values())

    def _solved(self, order: Axes, deadline: float, known: Found | None = None) -> Found:
        """What is found in one order, of which only what is better than what is ``known`` is of interest."""
        best_s, credit_s = (math.inf, 0.0) if known is None else (known.objective_s, known.credit_s)
        parts = Parts(
            make=lambda among, before: self.make(among, before, order),
            deadline=deadline,
            cutoff_s=min(best_s + credit_s, self.cutoff_s),
            seed=self.seed,
            stop=self.stop,
            tell=self._tell_better if self.tell is not None and self.mesh.sizes.keys() >= {*order} else None,
            program=self.program,
            partly=self.partly,
            bound=None if self.pins else self.bound,
        )
        found = parts.solve(self.mesh)
        self.program = parts.program
        return found

    def _tell_better(self, seconds: float, layouts: Mapping[str, Sharding]) -> None:
        if self.tell is not None and seconds < self.told_s:
            self.told_s = seconds
            self.tell(seconds, layouts)


def both(one: Found, other: Found) -> Found:
    """What is known of two orders: the better of what was found, and what no layouts of either take less than."""
    best, rest = (other, one) if other.objective_s < one.objective_s * (1 - ENOUGH) else (one, other)
    credit_s = max(one.credit_s, other.credit_s)
    bound_s, floor_s = (
        min(max(min(of_one + one.credit_s, of_other + other.credit_s) - credit_s, 0.0), best.objective_s)
        for of_one, of_other in ((one.bound_s, other.bound_s), (one.floor_s, other.floor_s))
    )
    least = min(one, other, key=_least_bytes)
    own = () if rest.layouts is None else (RunnerUp(rest.objective_s, rest.layouts),)
    several = sorted((*best.runners_up, *own, *rest.runners_up), key=lambda each: each.seconds)
    runners_up = [each for each in several if each.seconds > best.objective_s * (1 + ENOUGH)][:RUNNERS_UP]
    return replace(
        best,
        status=_feasible(best, bound_s),
        bound_s=bound_s,
        floor_s=floor_s,
        credit_s=credit_s,
        least=least.least,
        peak_bytes=best.peak_bytes if best.layouts is not None else least.peak_bytes,
        near=nearest((*one.near, *other.near)),
        runners_up=tuple(runners_up),
        rounds=one.rounds + other.rounds,
    )


def _least_bytes(found: Found) -> float:
    return math.inf if found.least is None else found.peak_bytes


def _feasible(found: Found, bound_s: float) -> Status:
    """The status of what was found, of which so much is proven."""
    if found.layouts is None:
        return "unknown"
    return "optimal" if bound_s >= found.objective_s * (1 - ENOUGH) else "feasible"


def orders(axes: Axes, layouts: Iterable[Sharding]) -> Iterator[Axes]:
    """The orders that a plan may keep to in which values lie so: those in which they name axes, and the mesh's, in
    which it has to put others.
    """
    pairs = {pair for layout in layouts for dim in layout for pair in combinations(dim, 2) if set(axes) >= set(pair)}
    for order in permutations(axes):
        if all(order.index(major) < order.index(minor) for major, minor in pairs):
            yield order
    if not all(axes.index(major) < axes.index(minor) for major, minor in pairs):
        yield axes


def told_apart(first: Axes, others: Iterable[Axes], prices: Tariff) -> Iterator[Axes]:
    """Of orders that differ in names of axes alone one, and none that differs so from the ``first``."""
    renamings = list(_renamings(first, prices))
    known = {_renamed(first, names) for names in renamings}
    for order in others:
        if order not in known:
            known |= {_renamed(order, names) for names in renamings}
            yield order


def _renamings(axes: Axes, prices: Tariff) -> Iterator[Mapping[str, str]]:
    """The ways to exchange names of axes after which all that devices send takes as long."""
    mesh = prices.network.mesh
    for places in permutations(axes):
        renamed = dict(zip(axes, places, strict=True))
        if all(mesh[axis] == mesh[other] for axis, other in renamed.items()) and _takes_as_long(prices, renamed):
            yield renamed


def _takes_as_long(prices: Tariff, renamed: Mapping[str, str]) -> bool:
    def took(op: Op) -> list[float]:
        return [prices.price(op, op.kind, num_bytes).total_s for num_bytes in PROBED_BYTES]

    named = {axis: axis for axis in renamed}
    pairs = zip(_sent(tuple(renamed), named), _sent(tuple(renamed), renamed), strict=True)
    return all(np.allclose(took(one), took(other), rtol=ALIKE, atol=0.0) for one, other in pairs)


def _sent(axes: Axes, names: Mapping[str, str]) -> Iterator[Op]:
    """Collectives along some of the axes, and what brings values from one order of them into another, with their names
    exchanged.
    """
    for count in range(1, len(axes) + 1):
        for group in combinations(axes, count):
            for kind in (ALL_GATHER, ALL_REDUCE, ALL_TO_ALL):
                yield Op(kind=kind, attributes={"axes": _renamed(group, names)})
    for order in permutations(axes):
        ends = {"source": (_renamed(axes, names),), "target": (_renamed(order, names),)}
        yield Op(kind=COLLECTIVE_PERMUTE, attributes={"axes": _renamed(axes, names), **ends})


def _renamed(axes: Axes, names: Mapping[str, str]) -> Axes:
    return tuple(names[axis] for axis in axes)
