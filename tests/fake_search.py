"""A step and a solver that know their prices at once, to test searches with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from meshwright.dsl.machine import parse_topology
from meshwright.dsl.plan import Fingerprint, Plan, Remat, Replicate, Rule
from meshwright.dsl.reader import loads
from meshwright.dsl.tensors import Tensor
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.search.pool import Here
from meshwright.planner.search.question import Question
from meshwright.planner.search.result import SearchResult
from meshwright.planner.search.search import Stamp, search
from meshwright.planner.search.task import Found, Task
from meshwright.planner.topology import physical

W = Tensor(path="params/w", shape=(64, 64), dtype="float32", role="argument")
X = Tensor(path="batch", shape=(64, 64), dtype="float32", role="argument")
GRAPH = Graph(
    values=(Value((64, 64), "f32"), Value((64, 64), "f32"), Value((64, 64), "f32")),
    ops=(Op(kind="dot_general", operands=(0, 1), results=(2,), attributes={"lhs_contracting_dimensions": (1,)}),),
    arguments=(0, 1),
    results=(2,),
    names=("params/w", "batch"),
)


@dataclass(frozen=True)
class FakeEstimate:
    step_time_s: float
    peak_bytes: int

    @property
    def bytes_by_kind(self) -> dict[str, int]:
        return {"weights": self.peak_bytes}

    compute_s = comm_s = 0.0
    kernels = ()
    memory = SimpleNamespace(tensors=(SimpleNamespace(name="params/w", num_bytes=7),))


@dataclass
class FakeStep:
    """A step whose price hangs on the mesh and the remat policy alone: seconds and bytes by the sizes of its axes."""

    prices: Callable[[Plan], tuple[float, int]]
    remat_policies: tuple[str, ...] = ("none",)
    tensors: tuple[Tensor, ...] = (W, X)
    priced: list[Plan] = field(default_factory=list)
    known: Mapping[str, Any] | None = None
    foreseen: list[Plan] = field(default_factory=list)

    def foresee(self, plan: Plan) -> None:
        self.foreseen.append(plan)

    def given_under(self, plan: Plan) -> Mapping[str, Any]:
        return {}

    def lies(self, plan: Plan) -> Mapping[str, Any] | None:
        return self.known

    def laid(self, plan: Plan) -> Graph | None:
        return None

    def tensors_under(self, remat: Remat | None) -> tuple[Tensor, ...]:
        return self.tensors

    def graph(self, plan: Plan) -> Graph:
        return replace(GRAPH, mesh={name: size or 1 for name, size in plan.mesh.sizes.items()})

    def estimate(self, plan: Plan, *, nearly: bool = False) -> Any:
        self.priced.append(plan)
        return FakeEstimate(*self.prices(plan))


class FakeSolver:
    """Solves by the same prices, and notes what it was asked. ``bound`` is the bound as a part of the cost."""

    def __init__(self, prices: Callable[[Plan], tuple[float, int]], bound: float = 1.0) -> None:
        self.prices, self.bound = prices, bound
        self.tasks: list[Task] = []

    def __call__(self, task: Task, stop: Callable[[], bool]) -> Found:
        self.tasks.append(task)
        seconds, num_bytes = self.prices(Plan(mesh=task.mesh))
        if seconds == math.inf:
            return Found(status="unknown", objective_s=math.inf, bound_s=0.0)
        if task.limit_bytes is not None and num_bytes > task.limit_bytes:
            return Found(status="infeasible", objective_s=math.inf, bound_s=math.inf)
        if seconds * self.bound >= task.cutoff_s:
            return Found(status="unknown", objective_s=math.inf, bound_s=task.cutoff_s)
        first = next(iter(task.mesh.sizes))
        layouts = {"params/w": ((first,), ()), "batch": ((), ())}
        return Found(status="optimal", objective_s=seconds, bound_s=seconds * self.bound, layouts=layouts)


def written(layouts: Mapping[str, Any], plan: Plan, workload: Any, **options: Any) -> Any:
    del layouts, options
    whole = replace(plan, rules=(*plan.rules, Rule(pattern="**", assignment=Replicate())))
    return SimpleNamespace(plan=whole, estimate=workload.estimate(whole))


def dearer_by_hand() -> Any:
    """Writes plans; those laid out by hand, which come first, cost twice as much."""
    count = iter(range(10**6))

    def minimise(layouts: Any, plan: Plan, workload: Any, **options: Any) -> Any:
        found = written(layouts, plan, workload, **options)
        factor = 2 if next(count) < 3 else 1
        return SimpleNamespace(
            plan=found.plan, estimate=FakeEstimate(factor * found.estimate.step_time_s, found.estimate.peak_bytes)
        )

    return minimise


def by_axes(plan: Plan) -> tuple[float, int]:
    """Fewer, larger axes are quicker and larger."""
    largest = max(size or 1 for size in plan.mesh.sizes.values())
    return 1.0 / largest, 1000 * largest


def ask(
    prices: Callable[[Plan], tuple[float, int]] = by_axes,
    text: str = "mesh: auto",
    topology: str = "v3:4x4",
    *,
    policies: tuple[str, ...] = ("none",),
    solver: FakeSolver | None = None,
    lies: Mapping[str, Any] | None = None,
    minimise: Any = written,
    top_k: int = 1,
    **options: Any,
) -> tuple[SearchResult, FakeSolver, FakeStep]:
    step = FakeStep(prices, policies, known=lies)
    solver = solver or FakeSolver(prices)
    question = Question(
        plan=loads(f"meshwright: 1\ntopology: {topology}\n{text}"),
        workload=step,
        machine=physical(parse_topology(topology)),
        limit_bytes=None,
        top_k=top_k,
    )
    stamp = Stamp(versions={"meshwright": "0"}, fingerprint=lambda plan: Fingerprint(arguments={}, dims={}))
    options = {"time_limit_s": 30.0, **options}
    stop = options.get("stop") or (lambda: False)
    pool = options.pop("pool", lambda: Here(stop, solver))
    result = search(question, stamp, minimise=minimise, pool=pool, **options)
    return result, solver, step
