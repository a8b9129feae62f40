"""The steps that a model makes of combinations of settings, as a search over them asks of them."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr

from ...dsl.errors import PlanError
from ...dsl.plan import Auto, Plan
from ...dsl.rule_matches import OPS
from ...dsl.tensors import Tensor
from ...planner.estimate.limit import memory_limit
from ...planner.explain.reasons import rules_of, without_idle
from ...planner.minimise import minimise
from ...planner.search.combination import Combination
from ...planner.search.floor import Products
from ...planner.search.pins import TAGS, named_axes
from ...planner.search.pool import Lent, Pool
from ...planner.search.progress import Clock, Progress
from ...planner.search.question import Question
from ...planner.search.result import PricedPlan, SearchResult
from ...planner.search.search import is_complete, search, stamped
from ...planner.search.simple import argument_bytes, simple_layouts
from ...planner.search.task import Status
from ...planner.search.workload import decided_remat
from ...planner.topology import Machine
from .drafts import Drafts
from .loading import load_workload, models_code
from .search import question_of, stamp_of
from .short_drafts import ShortDrafts
from .short_search import searched_short
from .trace import Traced, equations

KEPT = 16
"""Steps whose traces and drafts are kept."""


class ModelSteps:
    """The steps of combinations (``planner.search.choosing.Steps``), read when they are first asked for."""

    def __init__(self, machine: Machine, workers: Pool, *, seed: int, exact: bool) -> None:
        self._machine, self._workers, self._seed, self._exact = machine, workers, seed, exact
        self._kept: OrderedDict[str, Drafts] = OrderedDict()
        self._prints: dict[str, Combination] = {}

    def forget(self) -> None:
        """Begins anew with what is the same step."""
        self._prints.clear()

    def same_as(self, one: Combination) -> Combination | None:
        """An earlier combination with the very same step. Raises ``PlanError`` for one that is refused."""
        question = self._question(one)
        traced = self._drafts(one).traced(decided_remat(question.plan))
        known = self._prints.setdefault(f"{_digest(traced)} {one.plan.mesh.axes}", one)
        return None if known is one else known

    def leaves_nothing(self, one: Combination) -> bool:
        """Whether its plan leaves nothing else open."""
        return is_complete(self._question(one))

    def priced(self, one: Combination, like: Plan | None) -> PricedPlan:
        """Its price with another plan's layouts, or with its own plan's. Raises ``PlanError``."""
        drafts = self._drafts(one)
        if like is None:
            plan = replace(one.plan, result=None)
            return PricedPlan(plan=plan, estimate=drafts.estimate(plan))
        borrowed = _borrowed(one.plan, like)
        if set(named_axes(rule.assignment for rule in like.rules)) - set(borrowed.mesh.sizes):
            return self._by_hand(borrowed, one.plan, drafts)
        plan = _without_idle(borrowed, one.plan, drafts.tensors_under(borrowed.remat))
        try:
            return PricedPlan(plan=plan, estimate=drafts.estimate(plan))
        except PlanError:
            fewer = _of_arguments(plan, one.plan)
            if fewer.rules == plan.rules:
                raise
            return PricedPlan(plan=fewer, estimate=drafts.estimate(fewer))

    def _by_hand(self, plan: Plan, own: Plan, drafts: Drafts) -> PricedPlan:
        """The price on a mesh of other axes: of the first layouts by hand that fit, beside what the user decided."""
        tensors = drafts.tensors_under(plan.remat)
        sizes = {name: size or 1 for name, size in plan.mesh.sizes.items()}
        limit, _ = memory_limit(self._machine, own.limits.hbm_bytes)
        layouts = [each for _, each in simple_layouts(tensors, {}, sizes)]
        fitting = (each for each in layouts if limit is None or argument_bytes(tensors, each, sizes) <= limit)
        decided = tuple(rule for rule in own.rules if not isinstance(rule.assignment, Auto))
        said = replace(plan, rules=(*decided, *rules_of(next(fitting, layouts[0]), tensors)))
        said = _without_idle(said, own, tensors)
        return PricedPlan(plan=said, estimate=drafts.estimate(said))

    def floor_s(self, one: Combination, priced: PricedPlan) -> float:
        """What its matrix products take at least, spread evenly, under the policy that recomputes least.

        It has been priced so, maybe with another policy, under which it computes more.
        """
        drafts, remat = self._drafts(one), decided_remat(one.plan)
        plan = replace(priced.plan, remat=remat, result=None)
        products = drafts.products(plan) if priced.plan.remat == remat else Products.of(drafts.graph(plan))
        return products.even_seconds(self._machine.num_devices, self._machine.chip)

    def search(self, one: Combination, clock: Clock, tell: Callable[[Progress], None] | None) -> SearchResult:
        """Searches its best plan. Raises ``PlanError``."""
        begin_s, time_limit_s = time.monotonic(), max(clock.left_s, 0.01)
        run = partial(
            search,
            minimise=minimise,
            begin_s=begin_s,
            compare=False,
            on_progress=tell,
            stop=lambda: clock.stopped,
        )
        question, drafts, found = self._question(one), self._drafts(one), None
        if not self._exact:
            short, limits = ShortDrafts(drafts), {"begin_s": begin_s, "time_limit_s": time_limit_s}
            found = searched_short(question, short, run, self._workers, stamp_of, **limits)
        pool = partial(Lent, self._workers)
        return found or run(question, stamp_of(drafts), time_limit_s=time_limit_s, pool=pool)

    def stamped(self, one: Combination, priced: PricedPlan, bound_s: float, status: Status) -> Plan:
        """A plan of a combination with its ``result:`` block."""
        question, stamp = self._question(one), stamp_of(self._drafts(one))
        return stamped(question, replace(priced.plan, result=None), priced.estimate, bound_s, status, stamp)

    def _question(self, one: Combination) -> Question:
        return question_of(one.plan, self._drafts(one), self._machine, seed=self._seed, exact=self._exact)

    def _drafts(self, one: Combination) -> Drafts:
        key = repr((one.plan.settings, one.plan.mesh.sizes))
        if key not in self._kept:
            workload = load_workload(one.plan)
            drafts = Drafts(workload.step, workload.args, donate_argnums=workload.donated)
            with models_code(one.plan, "MW315"):
                drafts.traced(decided_remat(one.plan))
            self._kept[key] = drafts
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]


def _digest(traced: Traced) -> str:
    """A digest of all that a step computes, equal for equal steps."""
    told = hashlib.sha256(str(traced.jaxpr).encode())
    for constant in _constants(traced.jaxpr):
        told.update(np.asarray(constant).tobytes())
    told.update(repr((traced.in_tree, traced.out_tree, traced.donated)).encode())
    return told.hexdigest()


def _constants(closed: ClosedJaxpr) -> Iterator[Any]:
    """The constants of a step, and of all that it calls: those of a ``jax.jit`` within are its own."""
    yield from closed.consts
    for equation in equations(closed.jaxpr):
        for parameter in equation.params.values():
            for part in parameter if isinstance(parameter, (tuple, list)) else (parameter,):
                if isinstance(part, ClosedJaxpr):
                    yield from part.consts


def _borrowed(own: Plan, like: Plan) -> Plan:
    """A plan with another one's layouts; its mesh is its own where that is given."""
    given = own.mesh.axes is not None and None not in own.mesh.sizes.values()
    return replace(own, mesh=own.mesh if given else like.mesh, rules=like.rules, remat=like.remat, result=None)


def _without_idle(plan: Plan, own: Plan, tensors: Sequence[Tensor]) -> Plan:
    """The plan without those rules that decide no tensor; the user's ``own`` stay."""
    kept = {rule.pattern for rule in (*without_idle(plan, tensors).rules, *own.rules)}
    return replace(plan, rules=tuple(rule for rule in plan.rules if rule.pattern in kept))


def _of_arguments(plan: Plan, own: Plan) -> Plan:
    """The plan without the rules for computed values, which other settings may compute in other shapes."""
    kept = {rule.pattern for rule in own.rules}
    computed = (TAGS, OPS)
    return replace(plan, rules=tuple(r for r in plan.rules if r.pattern in kept or not r.pattern.startswith(computed)))
