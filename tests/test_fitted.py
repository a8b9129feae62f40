"""Plans near their limit are compiled, and searched again where they take more than was predicted."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import meshwright as mw
import pytest
import small_steps
from in_process import search
from meshwright.backends.jax.compiled_ahead import Ahead
from meshwright.dsl.plan import Limits, Plan, Remat, Result
from meshwright.planner.search.fitted import CONFIRMED_S, PATIENCE_S, Said, fitted
from meshwright.planner.search.progress import Clock, Progress
from meshwright.planner.search.report import headline, notes
from meshwright.planner.search.result import MeshCount, Misfit, PricedPlan, Remedy, SearchResult
from meshwright.planner.search.task import Status

MIB = 2**20
ASKED = mw.loads("meshwright: 1\ntopology: v3:2x2\nmesh: {a: 8}\nlimits: {hbm: 100MiB}\n")
MACHINE = mw.topology("v3:2x2").machine
NO_LIBTPU = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")


def predicted(limit: int, bound_s: float = 0.9, label: str = "dot_general", num_bytes: int = 0) -> SearchResult:
    """What a search gives that finds a plan just within each limit, the slower the lower; none below 50 MiB."""
    count = MeshCount(distinct=1, covered=0, impossible=0, tried=1, left_out=0)
    if limit < 40 * MIB:
        return SearchResult(
            plan=None, status="unknown", estimate=None, bound_s=1.0, tried_bound_s=1.0, meshes=count, search_s=0.0
        )
    step_s = 200 * MIB / limit
    estimate: Any = SimpleNamespace(
        step_time_s=step_s,
        peak_bytes=limit,
        bytes_by_kind={"weights": limit},
        memory=SimpleNamespace(tensors=()),
        kernels=(SimpleNamespace(label=label, num_bytes=num_bytes),),
    )
    result = Result(status="feasible", step_time_s=step_s, bound_s=step_s * bound_s, gap=1 - bound_s)
    plan = replace(ASKED, limits=Limits(hbm_bytes=limit), result=result)
    return SearchResult(
        plan=plan,
        status="feasible",
        estimate=estimate,
        bound_s=step_s * bound_s,
        tried_bound_s=step_s * bound_s,
        meshes=count,
        search_s=0.0,
    )


class Taking:
    """A compiler whose programs take so much more than their limit says."""

    def __init__(self, said: Callable[[int], Said]) -> None:
        self._said = said

    def absent(self, plan: Plan) -> str:
        return ""

    def peak(self, plan: Plan, clock: Clock) -> Said:
        assert plan.limits.hbm_bytes is not None
        return self._said(plan.limits.hbm_bytes)


class Absent(Taking):
    """No compiler."""

    def __init__(self, why: str) -> None:
        super().__init__(lambda limit: pytest.fail("nobody is there to be asked"))
        self._why = why

    def absent(self, plan: Plan) -> str:
        return self._why


def more(num_bytes: int) -> Taking:
    return Taking(lambda limit: Said(peak_bytes=limit + num_bytes, fits=True))


def fit(compiler: Taking, asked: Plan = ASKED) -> tuple[SearchResult, list[int]]:
    """The answer, and the limits that were searched."""
    limits: list[int] = []

    def find(plan: Plan, time_limit_s: float) -> SearchResult:
        limits.append(plan.limits.hbm_bytes or 16 * 2**30)
        return predicted(limits[-1])

    told: list[Progress] = []
    result = fitted(find, compiler, asked, MACHINE, Clock(60), told.append)
    assert len(told) >= len(result.compiled)
    return result, limits


def test_a_plan_that_fits_is_returned() -> None:
    result, limits = fit(more(0))
    assert limits == [100 * MIB]
    assert [(one.compiled_bytes, one.fits) for one in result.compiled] == [(100 * MIB, True)]
    assert "100.00 MiB predicted, 100.00 MiB compiled: it fits" in " ".join(notes(result))


def test_a_plan_given_whole_that_does_not_fit_stays_so() -> None:
    """Nobody is asked about it, and nothing is searched again: what it says is priced, and its price is the answer."""
    tight = Misfit(limit_bytes=100 * MIB, limit_of="the plan", least_bytes=101 * MIB)
    own = replace(predicted(100 * MIB), status="infeasible", misfit=tight)
    result = fitted(lambda *_: own, Absent("nobody"), ASKED, MACHINE, Clock(60.0))
    assert result is own
    assert headline(result).startswith("infeasible")


def test_a_plan_that_takes_more_is_searched_again_below_by_as_much() -> None:
    result, limits = fit(more(5 * MIB))
    assert limits == [100 * MIB, 95 * MIB]
    assert result.plan is not None
    assert result.plan.result is not None
    assert [one.fits for one in result.compiled] == [False, True]
    assert result.peak_bytes == 95 * MIB
    assert result.plan.limits == ASKED.limits  # what was asked, not what was searched
    first = predicted(100 * MIB)
    assert result.bound_s == first.bound_s  # what the plans that were given up took is a bound no more of others
    assert result.gap == pytest.approx(1 - 0.9 * 95 / 100)
    assert (result.plan.result.bound_s, result.plan.result.gap) == (result.bound_s, result.gap)


@pytest.mark.parametrize(
    "compiler",
    [
        more(70 * MIB),
        Taking(lambda limit: Said(fits=False)),
        Taking(lambda limit: Said(peak_bytes=101 * MIB, fits=True)),
    ],
    ids=["nothing below", "it does not say by how much", "always a little above"],
)
def test_where_all_that_is_found_takes_more_nothing_is_returned(compiler: Taking) -> None:
    result, limits = fit(compiler)
    assert (result.plan, result.status) == (None, "unknown")
    assert limits == sorted(limits, reverse=True)
    assert result.bound_s == predicted(100 * MIB).bound_s
    assert result.misfit is not None
    assert result.misfit.limit_bytes == 100 * MIB
    assert not any(one.fits for one in result.compiled)
    assert "nothing was found" in headline(result)
    known = [one.compiled_bytes for one in result.compiled if one.compiled_bytes]
    assert result.misfit.least_bytes == (min(known) if known else None)
    said = f"compiled, is {min(known) - 100 * MIB:,} bytes more" if known else "did not say by how much"
    assert said in " ".join(notes(result))
    changes = [remedy.change for remedy in result.misfit.remedies]
    assert changes == ([f"give a device {min(known) / MIB:.2f} MiB of memory ({min(known):,} bytes)"] if known else [])


def test_a_figure_that_is_rounded_down_to_the_limit_is_taken_as_none() -> None:
    compiler = Taking(lambda limit: Said(peak_bytes=100 * MIB, fits=limit < 99 * MIB))
    result, limits = fit(compiler)
    assert limits == [100 * MIB, 98 * MIB]
    assert [one.fits for one in result.compiled] == [False, True]


def test_the_compiler_has_most_of_what_is_left_to_say_whether_a_plan_fits_at_least_a_little() -> None:
    """A plan that it had said nothing of after 20 of 45 s took 550 MiB of 540, with 15 s left."""
    had: list[float] = []

    class Slow(Taking):
        def peak(self, plan: Plan, clock: Clock) -> Said:
            had.append(clock.left_s)
            return Said(peak_bytes=0, fits=True)

    for limit_s, elapsed_s in ((1000.0, 100.0), (25.0, 0.0), (30.0, 20.0)):
        clock = Clock(limit_s, begin_s=time.monotonic() - elapsed_s)
        fitted(lambda plan, seconds: predicted(100 * MIB), Slow(lambda limit: Said()), ASKED, MACHINE, clock)
    assert had == [pytest.approx(seconds, abs=1) for seconds in (0.75 * 900, PATIENCE_S, 10)]


def test_a_plan_far_below_the_limit_is_not_asked_about() -> None:
    far, limited = predicted(60 * MIB), replace(ASKED, limits=Limits(hbm_bytes=101 * MIB))
    assert fitted(lambda plan, seconds: far, more(80 * MIB), limited, MACHINE, Clock(60)) is far
    near = fitted(lambda plan, seconds: far, more(0), ASKED, MACHINE, Clock(60))
    assert [one.fits for one in near.compiled] == [True]


@pytest.mark.parametrize(
    ("label", "num_bytes", "is_asked"),
    [("sort", 8 * MIB, True), ("sort", MIB, False), ("dot_general", 8 * MIB, False)],
)
def test_large_kernels_of_which_little_is_known_are_asked_about_below_the_limit(
    label: str, num_bytes: int, is_asked: bool
) -> None:
    """A decomposition of 2 MiB was predicted at half of what it was compiled to (qr of f32[1024,512], v5e)."""
    first = predicted(40 * MIB, label=label, num_bytes=num_bytes)
    found = fitted(lambda plan, seconds: first, more(0), ASKED, MACHINE, Clock(60))
    assert [one.fits for one in found.compiled] == [True] * is_asked


def test_where_one_took_more_the_next_is_asked_about_however_low() -> None:
    result, limits = fit(more(55 * MIB))
    assert limits == [100 * MIB, 45 * MIB]
    assert [one.fits for one in result.compiled] == [False, True]


def test_the_chips_own_limit_is_trusted_farther() -> None:
    open_plan = replace(ASKED, limits=Limits())
    assert MACHINE.hbm_bytes is not None
    for part, asked in ((0.7, 0), (0.9, 1)):
        found = predicted(int(part * MACHINE.hbm_bytes))
        result = fitted(lambda plan, seconds, found=found: found, more(0), open_plan, MACHINE, Clock(60))  # type: ignore[misc]
        assert len(result.compiled) == asked


def test_why_the_compiler_was_not_asked_is_said() -> None:
    result, _ = fit(Taking(lambda limit: Said(why="the time for it was over")))
    assert result.plan is not None
    assert [one.fits for one in result.compiled] == [None]
    assert "the compiler said nothing: the time for it was over" in " ".join(notes(result))


@pytest.mark.parametrize(
    ("spare_mib", "step_s", "why", "taken_mib"),
    [
        (90, 2.0 * 1.04, "the time for it was over", 90),
        (90, 2.0 * 1.06, "the time for it was over", 100),
        (92, 2.0 * 1.04, "the time for it was over", 100),
        (90, 2.0 * 1.04, "", 100),
    ],
    ids=["hardly slower", "slower", "hardly lower", "it says that the best fits"],
)
def test_where_the_compiler_says_nothing_a_plan_well_below_the_limit_is_taken_that_is_hardly_slower(
    spare_mib: int, step_s: float, why: str, taken_mib: int
) -> None:
    """One predicted at 84.09 MB was compiled to 86.13, of 86.87, which nobody was told in time."""
    spare = priced(predicted(spare_mib * MIB))
    spare.estimate.step_time_s = step_s  # type: ignore[misc]
    first = replace(predicted(100 * MIB), spares=(spare,))
    compiler = Taking(lambda limit: Said(why=why) if why else Said(peak_bytes=limit, fits=True))
    result = fitted(lambda plan, seconds: first, compiler, ASKED, MACHINE, Clock(60))
    assert result.plan is not None
    assert (result.peak_bytes, result.plan.limits) == (taken_mib * MIB, ASKED.limits)
    told = " ".join(notes(result))
    assert ("further below and hardly slower, was taken" in told) == (taken_mib == spare_mib)
    assert ("a tenth more than is predicted" in told) == bool(why)
    bound_s = first.bound_s or 0.0
    assert result.gap == pytest.approx(1 - bound_s / (result.step_time_s or 0.0))


def test_other_plans_that_take_more_are_left_out() -> None:
    near, far = predicted(90 * MIB), predicted(60 * MIB - 1)
    first = replace(predicted(100 * MIB), alternatives=tuple(map(priced, (near, far))))
    compiler = Taking(lambda limit: Said(peak_bytes=limit + 11 * MIB * (limit == 90 * MIB), fits=True))
    result = fitted(lambda plan, seconds: first, compiler, ASKED, MACHINE, Clock(60))
    assert [one.peak_bytes for one in result.alternatives] == [far.peak_bytes]
    assert [one.fits for one in result.compiled] == [True, False, True]


def test_where_nothing_lower_is_found_plans_priced_beside_are_asked_about() -> None:
    slow, slower = (
        replace(one, plan=replace(one.plan, remat=Remat(policy=policy)))
        for one, policy in ((priced(predicted(80 * MIB)), "full"), (priced(predicted(70 * MIB)), "dots"))
    )
    first = replace(predicted(100 * MIB), spares=(slower, slow))
    compiler = Taking(lambda limit: Said(peak_bytes=limit + 65 * MIB * (limit == 100 * MIB), fits=True))
    found = {100 * MIB: first}
    result = fitted(
        lambda plan, seconds: found.get(plan.limits.hbm_bytes or 0, predicted(0)), compiler, ASKED, MACHINE, Clock(60)
    )
    assert (result.peak_bytes, result.status) == (80 * MIB, "feasible")
    assert [(one.predicted_bytes, one.fits) for one in result.compiled] == [(100 * MIB, False), (80 * MIB, True)]


def test_of_plans_beside_one_that_takes_more_the_faster_is_the_answer_and_the_slower_are_alternatives() -> None:
    """The best takes 5 MiB more and is searched again below; an alternative that is faster than what is found fits."""
    best, beside, slower = (priced(predicted(size * MIB)) for size in (100, 98, 70))
    several = tuple(
        replace(one, plan=replace(one.plan, remat=Remat(policy=policy)))
        for one, policy in ((beside, "full"), (slower, "dots"))
    )
    first = replace(predicted(100 * MIB), alternatives=several)
    compiler = Taking(lambda limit: Said(peak_bytes=limit + 5 * MIB * (limit == 100 * MIB), fits=True))
    found = {100 * MIB: first, 95 * MIB: replace(predicted(95 * MIB), alternatives=several[1:])}
    result = fitted(lambda plan, seconds: found[plan.limits.hbm_bytes or 0], compiler, ASKED, MACHINE, Clock(60))
    assert result.peak_bytes == beside.peak_bytes < best.peak_bytes
    assert [one.peak_bytes for one in result.alternatives] == [slower.peak_bytes]
    assert [one.fits for one in result.compiled] == [False, True, True, True]


def test_what_would_help_is_compiled_too() -> None:
    """More memory is as much as the compiler says; what does not help by its word is left out."""
    one = predicted(90 * MIB)
    assert one.plan is not None
    named = [("more", 110, True), ("helps", 90, False), ("does not", 80, False)]
    remedies = [
        Remedy(
            change=change,
            plan=replace(one.plan, limits=Limits(hbm_bytes=size * MIB)),
            step_time_s=1.0,
            peak_bytes=size * MIB,
            is_memory=is_memory,
        )
        for change, size, is_memory in named
    ]
    why = Misfit(limit_bytes=100 * MIB, limit_of="the plan", least_bytes=110 * MIB, remedies=tuple(remedies))
    first = replace(predicted(0), status="infeasible", misfit=why)
    compiler = Taking(lambda limit: Said(peak_bytes=105 * MIB if limit == 80 * MIB else limit + 5 * MIB, fits=True))
    result = fitted(lambda plan, seconds: first, compiler, ASKED, MACHINE, Clock(60))
    assert (result.status, result.misfit is not None) == ("infeasible", True)
    assert result.misfit is not None
    more_memory, helps = result.misfit.remedies
    assert more_memory.change.startswith("give a device 115.00 MiB")
    assert (result.misfit.least_bytes, result.misfit.missing_bytes) == (115 * MIB, 15 * MIB)  # as the remedy says
    assert "compiled, is 15,728,640 bytes more" in " ".join(notes(result))
    assert (helps.change, helps.compiled_bytes) == ("helps", 95 * MIB)


@pytest.mark.parametrize(("status", "is_short"), [("infeasible", True), ("unknown", False)])
def test_of_what_is_proven_not_to_fit_the_compiler_is_asked_for_seconds_what_would_help(
    status: Status, is_short: bool
) -> None:
    one = predicted(90 * MIB)
    assert one.plan is not None
    remedy = Remedy(change="more", plan=one.plan, step_time_s=1.0, peak_bytes=110 * MIB, is_memory=True)
    why = Misfit(limit_bytes=100 * MIB, limit_of="the plan", least_bytes=110 * MIB, remedies=(remedy,))
    first, given = replace(predicted(0), status=status, misfit=why), list[float]()

    class Timed(Taking):
        def peak(self, plan: Plan, clock: Clock) -> Said:
            given.append(clock.left_s)
            return super().peak(plan, clock)

    fitted(lambda plan, seconds: first, Timed(lambda limit: Said()), ASKED, MACHINE, Clock(600))
    assert [seconds <= CONFIRMED_S for seconds in given] == [is_short]


@pytest.mark.parametrize(("said", "status"), [(95, "unknown"), (105, "infeasible")])
def test_nothing_is_infeasible_where_the_compiler_takes_a_plan_that_is_predicted_not_to_fit(
    said: int, status: str
) -> None:
    one = predicted(110 * MIB)
    assert one.plan is not None
    remedies = [
        Remedy(change="more", plan=one.plan, step_time_s=1.0, peak_bytes=110 * MIB, is_memory=True),
        Remedy(change="refused", plan=one.plan, step_time_s=1.0, peak_bytes=90 * MIB),
    ]
    why = Misfit(limit_bytes=100 * MIB, limit_of="the plan", least_bytes=110 * MIB, remedies=tuple(remedies))
    first = replace(predicted(0), status="infeasible", misfit=why)
    compiler = Taking(lambda limit: Said(peak_bytes=said * MIB, fits=True))
    result = fitted(lambda plan, seconds: first, compiler, ASKED, MACHINE, Clock(60))
    assert result.misfit is not None
    assert (result.status, len(result.misfit.remedies)) == (status, 2 if said <= 100 else 1)
    assert result.misfit.remedies[0].change.startswith("take this plan" if said <= 100 else "give a device 110.00 MiB")


def test_what_does_not_fit_by_a_word_without_a_figure_does_not_help() -> None:
    one = predicted(90 * MIB)
    assert one.plan is not None
    remedy = Remedy(change="does not", plan=one.plan, step_time_s=1.0, peak_bytes=80 * MIB)
    why = Misfit(limit_bytes=100 * MIB, limit_of="the plan", least_bytes=110 * MIB, remedies=(remedy,))
    first = replace(predicted(0), status="infeasible", misfit=why)
    result = fitted(lambda plan, seconds: first, Taking(lambda limit: Said(fits=False)), ASKED, MACHINE, Clock(60))
    assert result.misfit is not None
    assert not result.misfit.remedies


def test_no_plan_is_compiled_twice() -> None:
    """Neither beside another nor as an alternative of it."""
    asked: list[int] = []

    def said(limit: int) -> Said:
        asked.append(limit // MIB)
        return Said(peak_bytes=limit + 65 * MIB * (limit >= 97 * MIB), fits=True)

    beside = tuple(priced(predicted(size * MIB)) for size in (98, 97, 96))
    policies = ("full", "dots", "nothing_saveable")
    spares = tuple(
        replace(each, plan=replace(each.plan, remat=Remat(policy=policy)))
        for each, policy in zip(beside, policies, strict=True)
    )
    first = replace(predicted(100 * MIB), spares=spares)
    found = {100 * MIB: first}
    result = fitted(
        lambda plan, seconds: found.get(plan.limits.hbm_bytes or 0, predicted(0)),
        Taking(said),
        ASKED,
        MACHINE,
        Clock(60),
    )
    assert result.peak_bytes == 96 * MIB
    assert asked == [100, 98, 97, 96]


def priced(result: SearchResult) -> PricedPlan:
    assert result.plan is not None
    assert result.estimate is not None
    return PricedPlan(plan=result.plan, estimate=result.estimate)


def test_other_machines_have_no_compiler_ahead_of_time() -> None:
    ahead = Ahead(lambda plan: (small_steps.mlp()[0], (), None))
    why = ahead.absent(mw.loads("meshwright: 1\ntopology: cpu:8\n"))
    assert "cpu:8" in why
    result = fitted(lambda plan, seconds: predicted(100 * MIB), Absent(why), ASKED, MACHINE, Clock(60))
    assert why in " ".join(notes(result))
    assert result.plan is not None


@pytest.mark.tpu_compiler
@NO_LIBTPU
def test_the_compiler_says_what_verify_says() -> None:
    step, args = small_steps.mlp(512, 256, 512)
    found = search(step, args, topology="v3:2x2", mesh={"a": 4, "b": 2}, ask_compiler=False)
    ahead = Ahead(lambda plan: (step, args, None))
    said = ahead.peak(found.plan, Clock(120))
    assert said == Said(peak_bytes=mw.verify(found.plan, step, args).compiled.peak_bytes, fits=True)
    assert ahead.peak(found.plan, Clock(1e-9)).why == "the time for it was over"
    assert ahead.peak(found.plan, Clock(60, lambda: True)).why == "the search was interrupted"


@pytest.mark.tpu_compiler
@NO_LIBTPU
def test_a_program_that_does_not_fit_the_chip_is_an_answer() -> None:
    step, args = small_steps.mlp(2**20, 1024, 4096)
    plan = mw.loads("meshwright: 1\ntopology: v5e:2x2\nmesh: {a: 4}\ntensors: {'**': replicate}\n")
    said = Ahead(lambda plan: (step, args, None)).peak(plan, Clock(120))
    assert said.fits is False
    assert said.peak_bytes is not None
    assert said.peak_bytes > 16 * 2**30
