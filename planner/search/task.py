"""What a worker is given to solve, and what it answers: plain data that travels between processes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from ...dsl.plan import Mesh
from ..graph import Axes, Graph, Sharding
from ..topology import Machine

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..program import Known, Program
    from ..program.pricing.choices import Among
    from ..program.wiring.wires import Node

Status = Literal["optimal", "feasible", "infeasible", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A program to solve: a step on a mesh, the layouts that are pinned, the limit on memory, what is worth finding.

    ``limit_bytes`` None is no limit at all, not even the chip's. ``returned`` has, by a result's path, that of the
    argument whose next value it is. Nothing above ``cutoff_s`` needs to be found. One that is solved ``alone`` may use
    another core. ``loose`` pins say nothing of what stays inside of kernels. ``lowest`` asks for the layouts of the
    least memory instead, whatever the limit. Of one that is ``doubted`` it is asked first whether any mesh holds it.
    Of meshes that are ``alike`` it is asked what the step takes at least on all of them; such a one by itself is solved
    ``partly`` then. Axes of one dim stand in any order, or in the only one that pins have where only that
    ``is_as_pinned``.
    """

    graph: Graph = field(repr=False)
    mesh: Mesh
    machine: Machine
    pins: Mapping[str, Sharding] = field(repr=False)
    returned: Mapping[str, str] = field(repr=False)
    limit_bytes: int | None
    time_limit_s: float
    seed: int = 0
    cutoff_s: float = math.inf
    alone: bool = False
    loose: bool = False
    lowest: bool = False
    doubted: bool = False
    alike: tuple[Mesh, ...] = ()
    partly: bool = False
    is_as_pinned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """Layouts that take a little more than the limit: as many bytes, and seconds."""

    peak_bytes: int
    seconds: float
    layouts: Mapping[str, Sharding] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a program's solver answers. ``layouts`` are those of every named value, empty where none were found.

    ``bound_s`` counts what exact prices taught, ``floor_s`` the costs of kernels alone. ``credit_s`` is the most that
    a solution was seen to take less than its costs; where nothing was priced it is not in the bounds. ``least_s`` is
    what the step takes at least on any mesh of the machine. Where nothing fits, ``least`` are the layouts of the least
    memory that were seen, which take ``least_bytes``; ``anywhere`` says that nothing does on any mesh. Where that was
    asked for, nothing takes less than ``proven_bytes``; there and where it is doubted that anything fits, on no mesh
    than ``anywhere_bytes``. ``near`` are some that take a little more than the limit and may take less time,
    ``runners_up`` those next to the best. ``inside`` says whether pins are of what stays inside of kernels. ``took_s``
    is what building the program and solving it took; ``ended`` says that the time ended that.
    """

    status: Status
    objective_s: float
    bound_s: float
    floor_s: float = 0.0
    credit_s: float = 0.0
    least_s: float = 0.0
    took_s: float = 0.0
    ended: bool = False
    layouts: Mapping[str, Sharding] = field(default_factory=dict, repr=False)
    least: Mapping[str, Sharding] = field(default_factory=dict, repr=False)
    least_bytes: int = 0
    proven_bytes: int = 0
    anywhere_bytes: int = 0
    near: Sequence[Near] = field(default=(), repr=False)
    runners_up: Sequence[First] = field(default=(), repr=False)
    inside: bool = False
    anywhere: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """What was found first, before it is proven that nothing takes less, or what does: layouts as ``Found`` has them.
    It takes ``objective_s``.
    """

    objective_s: float
    layouts: Mapping[str, Sharding] = field(repr=False)


Solve = Callable[[Task, Callable[[], bool]], Found]
"""Solves a task until it says so, or is asked to stop."""

Tell = Callable[[First], None]
"""Is told what was found first."""


@dataclass(frozen=True, slots=True)
class _Built:
    """The program of a task, with all of its choices, how many these were, and which of them were rough."""

    task: Task
    program: Program
    num_choices: int
    rough: Sequence[tuple[Node, NDArray[np.float64], Mapping[int, float]]]

    @classmethod
    def of(cls, task: Task, program: Program) -> _Built:
        """That of a program that was just built."""
        rough = [(node, node.costs, dict(node.rough)) for node in program.wiring.nodes if node.rough]
        return cls(task, program, _num_choices(program), rough)

    def serves(self, task: Task) -> bool:
        """Whether another task's program differs by its limit alone, and no choices came since."""
        own = self.task
        return (
            self.is_beside(task)
            and (own.machine, own.loose) == (task.machine, task.loose)
            and (own.pins, own.returned) == (task.pins, task.returned)
            and _num_choices(self.program) == self.num_choices
        )

    def is_beside(self, task: Task) -> bool:
        """Whether another task is of the same step and mesh."""
        return self.task.graph.ops is task.graph.ops and self.task.mesh == task.mesh

    def anew(self) -> Program:
        """The program as it was built, whatever was priced since: which worker has which task decides nothing."""
        for node, costs, rough in self.rough:
            node.costs, node.rough = costs, dict(rough)
        return self.program


def _num_choices(program: Program) -> int:
    return sum(len(node.costs) for node in program.wiring.nodes)


class Solver:
    """Builds the programs of tasks and solves them; keeps what is the same on every mesh from one to the next, and the
    last program, in each order of axes, for a task that differs by its limit alone.

    One that ``may_fork`` has help with tasks that are solved alone (``program.build``).
    """

    def __init__(self, *, may_fork: bool = False) -> None:
        self._known: Known | None = None
        self._built: dict[Axes, _Built] = {}
        self._may_fork = may_fork

    def prepare(self, stop: Callable[[], bool], compiling: Callable[[bool], None]) -> None:
        """Loads what solving needs, before there is a task; ``compiling`` is told when that is compiled first."""
        from ..program import Known
        from ..solver.prepare import compiles, prepare

        self._known = Known()
        first = compiles()
        if first:
            compiling(True)
        prepare(stop)
        if first:
            compiling(False)

    def __call__(self, task: Task, stop: Callable[[], bool], tell: Tell | None = None) -> Found:
        """Solves a task until it says so, or is asked to stop; ``tell`` hears of what is found first."""
        from ..compute.speed import speed_of
        from ..estimate.limit import memory_limit
        from ..program import Found as Proven
        from ..program import Known, Orders, build, exceeds_anywhere, holds_inside, least_anywhere

        begin_s = time.monotonic()
        known = self._known = self._known or Known()

        def make(among: Among | Mapping[int, Among] | None, before: Program | None, order: Axes) -> Program:
            machine = replace(task.machine, hbm_bytes=task.limit_bytes)
            built = self._built.get(order)
            if among is None and built is not None and built.serves(task):
                limit_bytes, _ = memory_limit(machine, task.limit_bytes)
                return replace(built.anew(), machine=machine, limit_bytes=limit_bytes)
            self._keep_beside(task, order)  # before there is another one
            made = build(
                task.graph,
                task.mesh,
                machine,
                pins=task.pins,
                returned=task.returned,
                limit_bytes=task.limit_bytes,
                known=known,
                helped=self._may_fork and task.alone,
                loose=task.loose,
                among=among,
                before=before,
                order=order,
            )
            if among is None:
                self._built[order] = _Built.of(task, made)
            return made

        def bound(cutoff_s: float, left_s: float) -> Proven:
            deadline = time.monotonic() + left_s
            made = build(
                task.graph,
                task.mesh,
                task.machine,
                returned=task.returned,
                known=known,
                helped=self._may_fork and task.alone,
                alike=task.alike or (task.mesh,),
            )
            left_s = max(deadline - time.monotonic(), 0.0)
            return made.bounded(time_limit_s=left_s, seed=task.seed, stop=stop, cutoff_s=cutoff_s)

        limit = task.limit_bytes if task.doubted and not task.lowest else None
        asks = limit is not None and not stop()
        anywhere = asks and exceeds_anywhere(task.graph, task.mesh, task.machine, limit or 0, known)
        if anywhere:
            found = Proven(status="infeasible", objective_s=math.inf, bound_s=0.0)
        elif task.alike:
            found = bound(task.cutoff_s, max(task.time_limit_s - (time.monotonic() - begin_s), 0.0))
        else:
            found_by = Orders(
                make=make,
                graph=task.graph,
                mesh=task.mesh,
                machine=task.machine,
                pins=task.pins,
                time_limit_s=max(task.time_limit_s - (time.monotonic() - begin_s), 0.0),
                seed=task.seed,
                stop=stop,
                cutoff_s=task.cutoff_s,
                partly=task.partly,
                bound=bound,
                tell=None if tell is None else lambda took_s, own: tell(First(objective_s=took_s, layouts=own)),
            )
            found = found_by.lowest() if task.lowest else found_by.solve(as_pinned=task.is_as_pinned)
        layouts, chip = {} if found.layouts is None else dict(found.layouts), task.machine.chip
        speed, devices, is_gpu = speed_of(chip), task.machine.num_devices, chip.platform == "gpu"
        wants_least = task.lowest or (asks and not layouts)  # of which most is known by then
        took_s = time.monotonic() - begin_s
        return Found(
            status=found.status,
            objective_s=found.objective_s,
            bound_s=found.bound_s,
            floor_s=found.floor_s,
            credit_s=found.credit_s,
            least_s=known.least_seconds(
                task.graph,
                speed,
                devices,
                chip.buffer_vmem_bytes,
                repeats_scores=chip.repeats_scores,
                is_gpu=is_gpu,
                pads=chip.platform == "tpu",
            ),
            took_s=took_s,
            ended=stop() or took_s >= task.time_limit_s,
            layouts=layouts,
            least=dict(found.least or {}),
            least_bytes=found.peak_bytes,
            proven_bytes=found.proven_bytes,
            anywhere_bytes=least_anywhere(task.graph, task.mesh, task.machine, known) if wants_least else 0,
            near=tuple(Near(**each._asdict()) for each in found.near),
            runners_up=tuple(First(objective_s=each.seconds, layouts=each.layouts) for each in found.runners_up),
            inside=holds_inside(task.graph, task.pins, task.machine, known),
            anywhere=anywhere,
        )

    def _keep_beside(self, task: Task, order: Axes) -> None:
        """Keeps of what was built what another order of a task may be built beside."""
        self._built = {other: each for other, each in self._built.items() if other != order and each.is_beside(task)}
