"""Plans that fit by the compiler's own word: one near its limit is compiled, and searched again where it takes more."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from ...dsl.plan import Limits, Plan
from ..estimate.figures import Estimate
from ..estimate.limit import is_near, memory_limit, whose
from ..explain.rows import binary
from ..topology import Machine
from .misfit import LARGEST, more_memory, within, worth_more
from .others import distinct_plans, says
from .progress import Clock, Progress
from .result import CompiledPeak, Misfit, PricedPlan, Remedy, SearchResult, gap, status_of
from .task import Status

FOUND_FIRST = 0.7
"""Of the time left, for each search where there is a limit; the rest is for the compiler and for searching again."""
PATIENCE_S = 20.0
"""How long the compiler may take at least, within the time; else as long as the search took before."""
CONFIRMED_S = 5.0
"""How long it may take at least to say of what would help, once it is proven that nothing fits; else as long as that
took.
"""
MOST = 0.75
"""Of the time left, which it may take to say whether a plan fits that would be returned; the rest searches again."""
TRIES = 4
ABOVE = 0.1
"""How much more than is predicted hardly a plan takes: 8 of 226 drawn steps of 64 MiB and more take more."""
SLOWER = 0.05
"""How much longer a plan may take that fits even so, where the compiler did not say whether the best does."""
AFTER_ALL = "take this plan, which the compiler says to fit, though it is predicted not to"
UNSAID = 0.02
"""Of the limit: what a plan is taken to be above it where the compiler does not say by how much."""


class Compiler(Protocol):
    """What compiles plans for a machine that need not be here."""

    def absent(self, plan: Plan) -> str:
        """Why a plan's machine has no compiler that can be asked; empty where it has."""

    def peak(self, plan: Plan, clock: Clock) -> Said:
        """What a plan's program takes, within a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The compiler's word: the bytes of a device at the peak (None where it gives none), whether the chip has them.

    ``why`` it says nothing, then ``fits`` is None.
    """

    peak_bytes: int | None = None
    fits: bool | None = None
    why: str = ""


Search = Callable[[Plan, float], SearchResult]
"""Completes a plan, in so many seconds since the search began."""


def fitted(
    search: Search,
    compiler: Compiler,
    asked: Plan,
    machine: Machine,
    clock: Clock,
    on_progress: Callable[[Progress], None] | None = None,
) -> SearchResult:
    """The fastest plan that the compiler says to fit, where it is in doubt and can be asked in the time.

    One that takes more is searched again below a limit that is lower by as much as it took above; where no other plan
    is found so, those are asked about that were priced beside. The bound stays the first search's, of plans that are
    predicted to fit. Where none fits whether there is one is not known. What would help is compiled too.
    """
    limit_bytes, limit_of = memory_limit(machine, asked.limits.hbm_bytes)
    if limit_bytes is None:
        return search(asked, clock.elapsed_s + clock.left_s)
    limit = (limit_bytes, limit_of)
    fitting = _Fitting(
        search=search,
        compiler=compiler,
        machine=machine,
        limit=limit,
        clock=clock,
        on_progress=on_progress,
        asked=asked,
    )
    return fitting.result(asked)


@dataclass(slots=True, kw_only=True)
class _Fitting:
    """A search whose plans the compiler is asked about, and what it said."""

    search: Search
    compiler: Compiler
    machine: Machine
    limit: tuple[int, str]
    clock: Clock
    on_progress: Callable[[Progress], None] | None
    asked: Plan
    said: list[CompiledPeak] = field(default_factory=list)
    known: dict[Hashable, CompiledPeak] = field(default_factory=dict)
    beside: list[PricedPlan] = field(default_factory=list)
    refused: list[Remedy] = field(default_factory=list)

    def result(self, asked: Plan) -> SearchResult:
        """The answer."""
        is_tight = asked.limits.hbm_bytes is not None and not self.compiler.absent(asked)
        left_s = self.clock.left_s * (FOUND_FIRST if is_tight else 1)
        first = found = self.search(asked, self.clock.elapsed_s + left_s)
        self._keep(found)
        while (word := self._word(found)) is not None and word.fits is False:
            lower = word.predicted_bytes - self._above(word)
            again = None
            if lower > 0 and len(self.said) < TRIES and not self.clock.over:
                lowered = replace(asked, limits=Limits(hbm_bytes=lower))
                again = self.search(lowered, self.clock.elapsed_s + FOUND_FIRST * self.clock.left_s)
                self._keep(again)
            if again is None or again.plan is None:
                other = self._other(found, math.inf)
                if other is None:
                    return self._nothing(first, found, again.misfit if again else None)
                found = other
                break
            found = again
        if not self.said:
            return self._confirmed(found) if found.plan is None else found
        if found is not first and found.step_time_s is not None:
            found = self._other(found, found.step_time_s) or found
        if word is not None and word.fits is None and not self.compiler.absent(asked):
            found = self._safer(found)
        return self._told(asked, first, found)

    def _keep(self, found: SearchResult) -> None:
        """Keeps the plans that a search priced beside its answer, for when nothing else is found."""
        self.beside += [*found.alternatives, *found.frontier, *found.spares]
        if found.misfit is not None and found.misfit.least is not None:
            self.beside.append(found.misfit.least)

    def _other(self, found: SearchResult, below_s: float) -> SearchResult | None:
        """The fastest of the plans beside that take less than so many seconds and that the compiler says to fit, as the
        answer; as alternatives those that are slower.
        """
        limit, _ = self.limit
        beside = distinct_plans(one for one in self.beside if one.peak_bytes <= limit)
        beside.sort(key=lambda one: one.step_time_s)
        for number, one in enumerate(beside[:TRIES], 1):
            if one.step_time_s >= below_s or self.clock.over:
                return None
            word = self._asked(one.plan, one.estimate, found)
            if word is not None and word.fits:
                slower = tuple(beside[number : number + len(found.alternatives)])
                return replace(found, plan=one.plan, estimate=one.estimate, alternatives=slower, frontier=())
        return None

    def _safer(self, found: SearchResult) -> SearchResult:
        """What was found, of which the compiler did not say whether it fits; or the fastest of the plans beside that
        fit even if they take as much more than is predicted as hardly any does, where that is hardly slower.
        """
        limit, most_s = self.limit[0], (1 + SLOWER) * (found.step_time_s or 0.0)
        beside = (one for one in self.beside if one.peak_bytes * (1 + ABOVE) <= limit and one.step_time_s <= most_s)
        safe = min(beside, key=lambda one: (one.step_time_s, one.peak_bytes), default=None)
        if safe is None or found.frontier or (found.peak_bytes or 0) * (1 + ABOVE) <= limit:
            return found
        slower = tuple(one for one in found.alternatives if one.step_time_s >= safe.step_time_s and one is not safe)
        return replace(found, plan=safe.plan, estimate=safe.estimate, alternatives=slower)

    def _confirmed(self, found: SearchResult) -> SearchResult:
        """A result without a plan, with what the compiler says of what would help: what it says does not is left out,
        and of memory so much is said to be needed as it says, of this plan or one that it refused. Where it takes one
        that is predicted not to fit, nothing is infeasible.
        """
        if found.misfit is None:
            return found
        proven = found.status == "infeasible"
        until = self.clock.within(max(self.clock.elapsed_s, CONFIRMED_S)) if proven else None
        several = (self._confirm(one, until) for one in found.misfit.remedies)
        remedies = [one for one in several if one is not None]
        memory = [one for one in (*remedies, *self.refused) if one.is_memory]
        remedies = [*worth_more(sorted(memory, key=_needed)), *(one for one in remedies if not one.is_memory)]
        fits = any(one.change == AFTER_ALL for one in remedies)
        return replace(
            found,
            status="unknown" if fits else found.status,
            misfit=_needs(replace(found.misfit, remedies=tuple(remedies))),
            search_s=round(self.clock.elapsed_s, 3),
        )

    def _confirm(self, remedy: Remedy, until: Clock | None) -> Remedy | None:
        """What would help, as the compiler has it, which may take until a time; None where it does not."""
        limit, _ = self.limit
        if self.compiler.absent(remedy.plan) or (until or self.clock).over:
            return remedy
        said = self.compiler.peak(remedy.plan, until or self._patience())
        if said.fits is False and not remedy.is_memory:
            return None
        if said.peak_bytes is None:
            return remedy
        if not remedy.is_memory:
            return replace(remedy, compiled_bytes=said.peak_bytes) if said.peak_bytes <= limit else None
        if said.fits and said.peak_bytes <= limit:
            return replace(remedy, change=AFTER_ALL, compiled_bytes=said.peak_bytes)
        most_bytes = max(remedy.peak_bytes, said.peak_bytes)
        change, plan = more_memory(self.machine, most_bytes), within(remedy.plan, most_bytes)
        return replace(remedy, change=change, plan=plan, compiled_bytes=said.peak_bytes)

    def _word(self, found: SearchResult) -> CompiledPeak | None:
        """What the compiler says of the plan that was found; None where it is not asked, as of one given whole."""
        is_given = found.optimum is not None or found.misfit is not None
        if found.plan is None or found.estimate is None or is_given:
            return None
        return self._asked(found.plan, found.estimate, found)

    def _asked(self, plan: Plan, estimate: Estimate, found: SearchResult) -> CompiledPeak | None:
        """What the compiler says of a plan, which is asked once of each."""
        known = says(plan), plan.limits
        if known in self.known:
            return self.known[known]
        limit, _ = self.limit
        predicted_bytes = estimate.peak_bytes
        if not self._is_doubted(estimate):
            return None
        why = self.compiler.absent(plan) or late(self.clock)
        if not why:
            self._tell(f"asking the compiler whether {binary(predicted_bytes)} (predicted) fit", found)
        said = Said(why=why) if why else self.compiler.peak(plan, self._patience(MOST))
        fits = said.fits and (said.peak_bytes is None or said.peak_bytes <= limit)
        word = CompiledPeak(predicted_bytes=predicted_bytes, compiled_bytes=said.peak_bytes, fits=fits, why=said.why)
        self.said.append(word)
        self.known[known] = word
        if fits is False and said.peak_bytes is not None and said.peak_bytes > limit:
            most_bytes = max(said.peak_bytes, predicted_bytes)
            refused = Remedy(
                change=more_memory(self.machine, most_bytes),
                plan=within(replace(plan, limits=self.asked.limits), most_bytes),
                step_time_s=estimate.step_time_s,
                peak_bytes=predicted_bytes,
                compiled_bytes=said.peak_bytes,
                is_memory=True,
            )
            self.refused.append(refused)
        return word

    def _is_doubted(self, estimate: Estimate) -> bool:
        """Whether a plan is doubted: any that is near its limit, and all after one that was wrong."""
        if any(word.fits is False for word in self.said):
            return True
        return is_near(estimate, *self.limit)

    def _patience(self, least: float = 0.0) -> Clock:
        """The time that the compiler has, ``least`` of what is left: programs for thousands of devices take it minutes,
        and what it does not say of a plan that is returned nobody knows.
        """
        left_s = max(self.clock.left_s, 1e-9)
        return self.clock.part(min(max(PATIENCE_S / left_s, self.clock.elapsed_s / left_s, least), 1.0))

    def _above(self, word: CompiledPeak) -> int:
        """How much more than the limit a plan takes; the compiler's figure may be rounded down to that."""
        limit, _ = self.limit
        more_bytes = (word.compiled_bytes or 0) - limit
        return more_bytes if more_bytes > 0 else max(int(UNSAID * limit), 1)

    def _told(self, asked: Plan, first: SearchResult, found: SearchResult) -> SearchResult:
        """The result with the asked limits, the first search's bounds, and what the compiler said."""
        bound_s = _below(first.bound_s, found)
        status = status_of(found.step_time_s or 0.0, bound_s or 0.0)
        best = _finished(asked, found.plan, status, bound_s) if found.plan else None
        alternatives = self._fitting(asked, found, found.alternatives, bound_s)
        frontier = [replace(one, plan=best or one.plan) for one in found.frontier[:1]]
        return replace(
            found,
            plan=best,
            status=status,
            bound_s=bound_s,
            tried_bound_s=_below(first.tried_bound_s, found),
            alternatives=alternatives,
            frontier=(*frontier, *self._fitting(asked, found, found.frontier[1:], bound_s)),
            compiled=tuple(self.said),
            interrupted=self.clock.stopped,
            search_s=round(self.clock.elapsed_s, 3),
        )

    def _fitting(
        self, asked: Plan, found: SearchResult, plans: Iterable[PricedPlan], bound_s: float | None
    ) -> tuple[PricedPlan, ...]:
        """Those of other plans that the compiler does not say to take more than the limit."""
        kept = []
        for one in plans:
            word = self._asked(one.plan, one.estimate, found)
            if word is None or word.fits is not False:
                status = status_of(one.step_time_s, bound_s or 0.0)
                kept.append(replace(one, plan=_finished(asked, one.plan, status, bound_s)))
        return tuple(kept)

    def _nothing(self, first: SearchResult, found: SearchResult, lower: Misfit | None) -> SearchResult:
        """The result where every plan that was found takes more than it was predicted to: nothing, and why; ``lower``
        says why nothing fits within a lower limit.
        """
        limit, limit_of = self.limit
        least = min((word.compiled_bytes for word in self.said if word.compiled_bytes), default=None)
        memory = found.estimate.memory if found.estimate else None
        why = Misfit(
            limit_bytes=limit,
            limit_of=whose(self.asked.limits, limit_of),
            least_bytes=least,
            by_compiler=True,
            bytes_by_kind=dict(found.estimate.bytes_by_kind) if found.estimate else {},
            tensors=tuple((live.name, live.num_bytes) for live in memory.tensors[:LARGEST]) if memory else (),
            proven_bytes=lower.proven_bytes if lower else 0,
            remedies=lower.remedies if lower else (),
        )
        nothing = replace(
            found,
            plan=None,
            status="unknown",
            estimate=None,
            bound_s=first.bound_s,
            tried_bound_s=first.tried_bound_s,
            alternatives=(),
            frontier=(),
            misfit=why,
            compiled=tuple(self.said),
            interrupted=self.clock.stopped,
            search_s=round(self.clock.elapsed_s, 3),
        )
        return self._confirmed(nothing)

    def _tell(self, doing: str, found: SearchResult) -> None:
        if self.on_progress is not None:
            count = len(found.candidates)
            state = Progress(
                doing=doing,
                tried=count,
                total=count,
                best_s=found.step_time_s or math.inf,
                bound_s=found.bound_s or 0.0,
                elapsed_s=self.clock.elapsed_s,
                left_s=self.clock.left_s,
            )
            self.on_progress(state)


def late(clock: Clock) -> str:
    """Why there is no time to ask; empty where there is."""
    return "" if not clock.over else "the search was interrupted" if clock.stopped else "the time for it was over"


def _needed(remedy: Remedy) -> tuple[bool, int]:
    """How much memory a remedy asks for; first come those that were compiled."""
    return remedy.compiled_bytes is None, max(remedy.peak_bytes, remedy.compiled_bytes or 0)


def _needs(why: Misfit) -> Misfit:
    """A reason with so much memory as the least that is needed as the remedy of more memory, if it was compiled."""
    asked = next((one for one in why.remedies if one.is_memory and one.change != AFTER_ALL), None)
    if asked is None or asked.compiled_bytes is None:
        return why
    by_compiler = asked.compiled_bytes >= asked.peak_bytes
    return replace(why, least_bytes=max(asked.peak_bytes, asked.compiled_bytes), by_compiler=by_compiler)


def _below(bound_s: float | None, found: SearchResult) -> float | None:
    """A bound, which is not above what the plan takes."""
    return None if bound_s is None else min(bound_s, found.step_time_s or math.inf)


def _finished(asked: Plan, plan: Plan, status: Status, bound_s: float | None) -> Plan:
    """A plan with the limits that were asked for, and with what is proven of it."""
    result = plan.result
    if result is not None and result.step_time_s is not None:
        result = replace(result, status=status, bound_s=bound_s, gap=gap(result.step_time_s, bound_s))
    return replace(plan, limits=asked.limits, result=result)
