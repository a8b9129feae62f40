"""What searches prove, held against plans: of short steps drawn by seed no plan may take less than the bound.

    python benchmarks/bounds.py --seeds 0-19 [--topology v4:2x2x2] [--plans 80] [--near 60] [--verbose]

A seed names a step (``drawn/operations.py``), a machine and a mesh, which is searched. Plans are drawn then, with a
layout for each argument and result, some left to propagation, and some of what is computed named too; and the plan that
was found is changed, one tensor at a time, as long as that makes it better. The table has what a plan that takes less
than the bound takes (``below``), what one takes that is better than the plan found (``beaten``), gaps of more than 5 %
that were not proven, and what raises an error.
"""

from __future__ import annotations

import argparse
import math
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest import mock

import meshwright as mw
from drawn import span
from drawn.operations import drawn_step
from drawn.short import Step
from meshwright.backends.jax.trace import Traced, trace
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.plan import Axis, Dim, Dims, Infer, Mesh, Plan, Replicate, Rule
from meshwright.dsl.resolve import key_of, resolve
from meshwright.dsl.tensors import Tensor
from meshwright.planner.search.pool import Here
from meshwright.planner.search.result import SearchResult
from rich.console import Console
from rich.table import Table

MACHINES: dict[str, int] = {
    "cpu:8": 8,
    "v3:2x2": 8,
    "v4:2x2x2": 16,
    "v5e:2x4": 8,
    "v5p:2x2x2": 8,
    "v6e:2x4": 8,
    "tpu7x:2x2x1": 8,
    "h100:8": 8,
}
CLOSE = 1e-6
WIDE = 0.05
Layout = tuple[tuple[str, ...], ...]
Lies = Layout | None
"""How a tensor lies; None leaves it to propagation."""


@dataclass(slots=True)
class Held:
    """What a seed's search was held against: ``best_s`` is what the ``best`` of the plans takes, of so many."""

    seed: int
    name: str
    where: str
    found: SearchResult | None = None
    best_s: float = math.inf
    best: Plan | None = None
    num_plans: int = 0
    search_s: float = 0.0
    errors: list[str] = field(default_factory=list)

    @property
    def below(self) -> float:
        """What part of the bound a plan takes less than that."""
        bound_s = (self.found and self.found.bound_s) or 0.0
        return 1 - self.best_s / bound_s if bound_s and self.best_s < bound_s * (1 - CLOSE) else 0.0

    @property
    def beaten(self) -> float:
        """What part of the plan found another takes less than that."""
        step_s = (self.found and self.found.step_time_s) or 0.0
        return 1 - self.best_s / step_s if step_s and self.best_s < step_s * (1 - CLOSE) else 0.0

    @property
    def said(self) -> str:
        """What is wrong of it, in words."""
        if self.found is None or self.found.gap is None:
            return "; ".join(self.errors) or "nothing found"
        said = [f"BELOW by {self.below:.2%}"] if self.below else []
        said += [f"beaten by {self.beaten:.2%}"] if self.beaten else []
        return "; ".join([*said, *([f"gap {self.found.gap:.1%}"] if self.is_wide else []), *self.errors])

    @property
    def is_wide(self) -> bool:
        """Whether much is left unproven."""
        return self.found is not None and self.found.status != "optimal" and (self.found.gap or 0.0) > WIDE


def drawn_mesh(draw: Random, devices: int) -> dict[str, int]:
    """One to three axes; sizes are powers of two."""
    count = draw.choices((1, 2, 3), (3, 5, 1))[0]
    sizes = [1] * count
    left = devices
    while left > 1:
        sizes[draw.randrange(count)] *= 2
        left //= 2
    named = dict(zip("abc", sizes, strict=False))
    return {name: size for name, size in named.items() if size > 1}


def layouts(draw: Random, shape: Sequence[int], mesh: Mapping[str, int]) -> Layout:
    """One that divides evenly, drawn."""
    found: list[tuple[str, ...]] = [() for _ in shape]
    for axis in mesh:
        dim = draw.randrange(-1, len(shape))
        if dim < 0:
            continue
        axes = (*found[dim], axis)
        if shape[dim] % math.prod(mesh[each] for each in axes) == 0:
            found[dim] = axes
    return tuple(found)


def rule(path: str, lies: Lies) -> Rule:
    if lies is None:
        return Rule(pattern=path, assignment=Infer())
    if not lies:
        return Rule(pattern=path, assignment=Replicate())
    return Rule(pattern=path, assignment=Dims(dims=tuple(Dim(name="_", axes=axes) for axes in lies)))


def written(topology: str, mesh: Mapping[str, int], lies: Mapping[str, Lies]) -> Plan:
    axes = tuple(Axis(name=name, size=size) for name, size in mesh.items())
    rules = tuple(rule(path, own) for path, own in lies.items())
    return Plan(topology=parse_topology(topology), mesh=Mesh(axes=axes), rules=rules)


@dataclass(slots=True)
class Plans:
    """The plans of a step on a mesh, priced as they are drawn."""

    draw: Random
    step: Step
    topology: str
    mesh: Mapping[str, int]
    traced: Traced
    held: Held

    @property
    def edges(self) -> list[Tensor]:
        """What has to have a layout."""
        return [each for each in self.traced.tensors if each.returns is None]

    def price(self, lies: Mapping[str, Lies]) -> float:
        """Seconds of a step; infinite where the layouts are none of a plan."""
        plan = written(self.topology, self.mesh, lies)
        try:
            step_s = mw.estimate(plan, self.step.run, self.step.args).step_time_s
        except mw.PlanError as error:
            self._report(f"{error.problems[0].code} of a plan", plan)
            return math.inf
        except Exception as error:
            self._report(f"{said_of(error)}, of a plan", plan)
            return math.inf
        self.held.num_plans += 1
        if step_s < self.held.best_s:
            self.held.best_s, self.held.best = step_s, plan
        return step_s

    def _report(self, said: str, plan: Plan) -> None:
        if said not in self.held.errors:
            self.held.errors.append(said)
            self.held.best = self.held.best or plan

    def drawn(self) -> dict[str, Lies]:
        """A plan with layouts for all arguments and results, and now and then for values."""
        draw = self.draw
        whole = draw.choice((0.0, 0.3, 0.6))
        found: dict[str, Lies] = {}
        values = self.traced.values.tensors
        some = draw.sample(values, min(len(values), draw.choice((0, 0, 1, 2, 3))))
        for each in [*some, *self.edges]:
            lies: Lies = layouts(draw, each.shape, self.mesh) if draw.random() >= whole else ((),) * len(each.shape)
            found[each.path] = None if each.role == "result" and draw.random() < 0.4 else lies
        return found

    def climb(self, begin: Mapping[str, Lies], count: int) -> None:
        """Changes one tensor at a time, so often, and goes on from what is better."""
        now, best_s = dict(begin), self.price(begin)
        all_of = [*self.edges, *self.traced.values.tensors]
        for _ in range(count):
            each = self.draw.choice(self.edges if self.draw.random() < 0.5 else all_of)
            changed = {k: v for k, v in now.items() if k != each.path}
            if each.role == "op" and each.path in now and self.draw.random() < 0.4:
                lies: dict[str, Lies] = changed
            else:
                free = each.role == "result" and self.draw.random() < 0.3
                lies = {each.path: None if free else layouts(self.draw, each.shape, self.mesh)} | changed
            step_s = self.price(lies)
            if step_s <= best_s:
                now, best_s = lies, step_s


def lies_of(plan: Plan, traced: Traced) -> dict[str, Lies]:
    """The layouts of a plan that was found, by path."""
    named = traced.named_by(plan)
    laid = resolve(plan, named).layouts
    found: dict[str, Lies] = {}
    for each in named:
        lies = laid.get(key_of(each))
        if each.returns is None:
            found[each.path] = None if lies is None else lies.axes
    return found


def hold(seed: int, topology: str | None, num_plans: int, num_near: int) -> Held:
    """A seed's search and its plans."""
    draw = Random(seed)
    step = drawn_step(draw)
    drawn_topology = draw.choice(tuple(MACHINES))
    where = topology or drawn_topology
    mesh = drawn_mesh(draw, MACHINES[where])
    axes = ",".join(f"{name}{size}" for name, size in mesh.items())
    found = Held(seed, step.name, f"{where} {axes}")
    began = time.monotonic()
    try:
        found.found = searched(step, where, mesh)
        found.search_s = time.monotonic() - began
        plans = Plans(draw, step, where, mesh, trace(step.run, step.args), found)
        if found.found.plan is not None:
            plans.climb(lies_of(found.found.plan, plans.traced), num_near)
        ranked = sorted(
            ((plans.price(lies), i, lies) for i, lies in enumerate(plans.drawn() for _ in range(num_plans)))
        )
        if ranked:
            plans.climb(ranked[0][2], num_near // 2)
    except Exception as error:
        found.errors.append(f"RAISED {said_of(error)}")
    return found


def said_of(error: Exception) -> str:
    """What was raised, and where."""
    return f"{type(error).__name__}: {error} at {traceback.extract_tb(error.__traceback__)[-1]}"


def searched(step: Step, topology: str, mesh: Mapping[str, int]) -> SearchResult:
    """The answer of a search in this process."""
    with mock.patch("meshwright.backends.jax.search.Processes", InProcess):
        return mw.search(step.run, step.args, topology=topology, mesh=dict(mesh), time_limit_s=30)


class InProcess(Here):
    """Solves in this process, within a ``with``."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__(lambda: False)

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def table(rows: Sequence[Held]) -> Table:
    shown = Table(title="Bounds of searches beside plans", title_justify="left")
    for head in ("seed", "step", "where", "found us", "bound us", "gap", "search s", "best us", "plans", ""):
        shown.add_column(head, justify="right", overflow="fold")
    for one in rows:
        said: Any = one.found
        shown.add_row(
            str(one.seed),
            one.name,
            one.where,
            *(f"{(value or 0.0) * 1e6:.2f}" for value in (said and said.step_time_s, said and said.bound_s)),
            f"{said.gap:.2%}" if said and said.gap is not None else "",
            f"{one.search_s:.1f}",
            f"{one.best_s * 1e6:.2f}",
            str(one.num_plans),
            one.said,
        )
    return shown


def summary(rows: Sequence[Held]) -> Iterator[str]:
    yield f"{len(rows)} seeds: {sum(bool(one.below) for one in rows)} with a plan below the bound"
    yield f"{sum(bool(one.beaten) for one in rows)} where a plan is better than what was found"
    yield f"{sum(one.is_wide for one in rows)} gaps above {WIDE:.0%}"
    yield f"{sum(bool(one.errors) for one in rows)} where something was raised"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=span, metavar="A-B", default=range(10))
    parser.add_argument("--topology", choices=tuple(MACHINES), help="default: drawn by the seed")
    parser.add_argument("--plans", type=int, default=80, help="drawn for each seed")
    parser.add_argument("--near", type=int, default=60, help="changes of the plan found")
    parser.add_argument("--verbose", action="store_true", help="the plan that is below the bound, or better")
    given = parser.parse_args()
    console = Console(width=max(180, Console().width))
    rows = []
    for seed in given.seeds:
        rows.append(hold(seed, given.topology, given.plans, given.near))
        if rows[-1].said:
            console.print(f"{seed} {rows[-1].name} on {rows[-1].where}: {rows[-1].said}", highlight=False, markup=False)
        if given.verbose and rows[-1].best and (rows[-1].below or rows[-1].beaten or rows[-1].errors):
            console.print(mw.dumps(rows[-1].best), highlight=False, markup=False)
    console.print(table(rows))
    for line in summary(rows):
        console.print(line, highlight=False)


if __name__ == "__main__":
    main()
