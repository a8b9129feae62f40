"""Settings that a plan leaves open: how they are written, read and refused; which combination is looked at next."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import meshwright as mw
import numpy as np
import open_models
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from meshwright import cli
from meshwright.backends.jax.loading import load_workload, trace_workload
from meshwright.backends.jax.open_settings import open_settings
from meshwright.dsl.diff import diff
from meshwright.dsl.errors import PlanError, problem
from meshwright.dsl.holes import holes
from meshwright.dsl.plan import ArgumentPrint, AtRunTime, Axis, Fingerprint, Mesh, Plan, Result
from meshwright.dsl.schema import json_schema
from meshwright.planner.estimate.figures import Estimate
from meshwright.planner.search.choosing import Choosing
from meshwright.planner.search.combination import Combination, rows_of
from meshwright.planner.search.progress import Clock, Progress
from meshwright.planner.search.result import MeshCount, PricedPlan, SearchResult
from meshwright.planner.search.run_time import table_of

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _beside_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE)


def codes_of(make: Callable[[], object]) -> list[str]:
    with pytest.raises(PlanError) as caught:
        make()
    return [found.code for found in caught.value.problems]


def plan_of(settings: str, model: str = "open_models:deep", more: str = "") -> Plan:
    return mw.loads(f"meshwright: 1\nmodel: {model}\nwith: {{{settings}}}\ntopology: cpu:4\nmesh: {{a: 4}}\n{more}")


# how they are written


def test_open_settings_are_written_as_they_are_read() -> None:
    text = "meshwright: 1\nmodel: a:b\nwith: {depth: auto, width: {auto: [64, null, wide]}, rows: 3}\nmesh: auto\n"
    plan = mw.loads(text)
    assert mw.dumps(plan) == text
    assert holes(plan) == ("with.width", "mesh", "tensors")
    assert [str(c) for c in diff(plan, replace(plan, settings={**plan.settings, "width": 64}))] == [
        "~ with.width: {auto: [64, null, wide]} -> 64"
    ]


@pytest.mark.parametrize(
    ("written", "code"),
    [("{auto: []}", "MW058"), ("{auto: 3}", "MW058"), ("{auto: null}", "MW058"), ("{auto: [1, 2, 1]}", "MW059")],
)
def test_values_to_choose_from_are_listed_once_each(written: str, code: str) -> None:
    assert codes_of(lambda: mw.loads(f"meshwright: 1\nwith: {{depth: {written}}}\n")) == [code]


def test_a_setting_may_be_a_mapping_of_the_models_own() -> None:
    assert mw.loads("meshwright: 1\nwith: {a: {auto: 1, b: 2}, b: {b: []}}\n").settings == {
        "a": {"auto": 1, "b": 2},
        "b": {"b": []},
    }


def test_the_schema_knows_them() -> None:
    forms = json_schema()["properties"]["with"]["additionalProperties"]["anyOf"]
    assert forms[0]["properties"]["auto"]["type"] == "array"


ENTRY = AtRunTime(when={"rows": 32}, settings={"depth": 3}, step_time_s=0.5, peak_bytes=7, without=("ops/a",))
TABLE = (ENTRY, AtRunTime(when={"rows": 64}, settings={"depth": 1}, step_time_s=0.75, peak_bytes=9))


def with_table(table: tuple[AtRunTime, ...] = TABLE) -> Plan:
    prints = Fingerprint(arguments={"w": ArgumentPrint(tensors=1, elements=2, digest="ab")}, dims={"B": 64})
    result = Result(status="optimal", step_time_s=0.75, fingerprint=prints, at_run_time=table)
    return replace(plan_of("depth: 1", more="tensors: {w: replicate, ops/a: replicate}\n"), result=result)


def test_the_table_is_written_as_it_is_read() -> None:
    text = mw.dumps(with_table())
    assert mw.loads(text) == with_table()
    assert mw.dumps(mw.loads(text)) == text
    assert "\n    - {when: {rows: 64}, with: {depth: 1}, step_time_s: 0.75, peak_bytes: 9}\n" in text
    changed = diff(with_table(), with_table((replace(ENTRY, step_time_s=0.25), TABLE[1])))
    assert [change.key for change in changed] == ["result.at_run_time.{rows: 32}"]


@pytest.mark.parametrize(("rows", "depth"), [(1, 3), (32, 3), (32.5, 1), (64, 1)])
def test_adapt_takes_the_least_entry_with_room(rows: float, depth: int) -> None:
    adapted = mw.adapt(with_table(), rows=rows)
    assert adapted.settings["depth"] == depth
    assert adapted.settings["rows"] == (32 if depth == 3 else 64)
    assert [rule.pattern for rule in adapted.rules] == (["w"] if depth == 3 else ["w", "ops/a"])
    assert adapted.result is not None
    assert adapted.result.fingerprint == Fingerprint(arguments=with_table().result.fingerprint.arguments, dims={})
    assert mw.loads(mw.dumps(adapted)) == adapted


def test_adapt_refuses_what_the_table_has_not() -> None:
    assert codes_of(lambda: mw.adapt(with_table(), rows=65)) == ["MW570"]
    assert codes_of(lambda: mw.adapt(with_table(), depth=1)) == ["MW569"]
    assert codes_of(lambda: mw.adapt(plan_of("depth: 1"), rows=1)) == ["MW569"]
    for wrong in ("wide", None, True, [32], float("nan")):
        assert codes_of(partial(mw.adapt, with_table(), rows=wrong)) == ["MW574"]
    assert mw.adapt(with_table(), rows=np.int32(32)) == mw.adapt(with_table(), rows=32)


def test_a_table_has_one_entry_for_an_amount() -> None:
    text = mw.dumps(with_table())
    assert text.count("rows: 64") == 1
    assert codes_of(lambda: mw.loads(text.replace("rows: 64", "rows: 32.0"))) == ["MW575"]


# what is open


def test_what_the_model_declares_or_the_plan_lists_is_open() -> None:
    left = open_settings(plan_of("depth: auto, width: {auto: [64, 48]}, rows: auto, mode: auto, scale: {auto: [2.0]}"))
    assert (left.names, left.by, left.at_run_time) == (("width", "depth", "scale"), "rows", ("depth",))
    assert left.amounts == (32, 64)
    found = list(left.combinations(left.names, {**left.decided, **left.largest}))
    own = [(one["width"], one["depth"]) for one in found]
    assert own == [(64, 1), (64, 2), (64, 3), (48, 1)]  # with 48 the model declares one depth alone


def test_a_plan_with_open_settings_has_no_step() -> None:
    assert codes_of(lambda: load_workload(plan_of("depth: auto, rows: {auto: [32]}"))) == ["MW565"]
    assert codes_of(lambda: load_workload(plan_of("x: {auto: [1]}", "open_models:plain"))) == ["MW565"]


def test_auto_is_a_word_where_the_model_declares_nothing() -> None:
    load_workload(plan_of("mode: auto"))
    assert codes_of(lambda: trace_workload(plan_of("x: auto", "open_models:plain"))) == ["MW315", "MW566"]
    gshard = "meshwright.backends.jax.models:gshard"
    assert codes_of(lambda: load_workload(plan_of("member: tiny, layers: auto", gshard))) == ["MW566"]
    load_workload(plan_of("member: tiny, dispatch: sorted, kernel: auto", gshard))


CHOICES: dict[str, Any] = {
    "Choices": {"width": [1, 2]},
    "a mapping": mw.Choices(values=cast(Any, None)),
    "a sequence of values": mw.Choices(values={"width": cast(Any, 4)}),
    "1 once": mw.Choices(values={"width": (1, 2, 1)}),
    "values that a plan can hold": mw.Choices(values={"width": (1, object())}),
    "at_run_time": mw.Choices(values={"width": (1, 2)}, at_run_time="width"),
    "axes": mw.Choices(values={"width": (1, 2)}, axes=cast(Any, (3,))),
    "a name, or None": mw.Choices(values={"width": (1, 2)}, by=cast(Any, 3)),
}


@pytest.mark.parametrize("said", CHOICES)
def test_a_declaration_that_cannot_be_used_is_a_problem(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_models.deep, "meshwright_choices", lambda settings, mesh: CHOICES[said])
    with pytest.raises(PlanError, match=said) as caught:
        load_workload(plan_of("width: auto"))
    assert [(found.code, found.place is not None) for found in caught.value.problems] == [("MW573", True)]


def test_values_of_what_changes_are_numbers() -> None:
    assert codes_of(lambda: open_settings(plan_of("rows: {auto: [1, wide]}")).amounts) == ["MW571"]


@pytest.mark.parametrize("command", ["estimate", "explain", "verify", "run", "diff"])
def test_commands_say_that_the_plan_is_to_be_searched(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(mw.dumps(plan_of("depth: auto")))
    other = [str(tmp_path / "other.yaml")] if command == "diff" else []
    for name in other:
        Path(name).write_text(mw.dumps(plan_of("depth: 1")))
    assert cli.main([command, str(path), *other]) == (1 if other else 2)
    assert "MW565" in capsys.readouterr().err


def test_check_tells_what_is_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(mw.dumps(plan_of("width: auto, depth: auto, rows: auto", more="tensors: {'**': replicate}\n")))
    assert cli.main(["check", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["holes"] == ["with.width", "with.depth", "with.rows"]
    assert answer["total_argument_bytes"] > 0
    path.write_text(mw.dumps(plan_of("depth: {auto: [2]}, mode: loud")))
    assert cli.main(["check", str(path)]) == 2
    assert "MW567" in capsys.readouterr().err


def refusals(plan: Plan) -> list[str]:
    try:
        load_workload(plan)
    except PlanError as error:
        return [found.code for found in error.problems]
    return []


@pytest.mark.parametrize(
    "said", ["gate: auto", "dispatch: auto, exchange: auto", "groups: auto", "exchange_chunks: auto, gate: auto"]
)
def test_the_family_declares_values_that_it_takes_or_refuses_with_a_reason(said: str) -> None:
    left = open_settings(plan_of(f"member: tiny, {said}", "meshwright.backends.jax.models:moe_step"))
    accepted = 0
    for values in left.combinations(left.names, left.decided):
        refused = refusals(left.filled(values))
        assert all(code.startswith("MW6") for code in refused)
        accepted += not refused
    assert accepted > 1


def test_the_familys_r_are_the_products_of_minor_hidden_axes() -> None:
    said = "member: tiny, exchange: manual, exchange_axes: x, hidden_axes: a+b, expert_shards: auto"
    mesh = "meshwright: 1\nmodel: meshwright.backends.jax.models:gshard\nmesh: {x: 4, a: 3, b: 2}\n"
    left = open_settings(mw.loads(f"{mesh}with: {{{said}}}\n"))
    assert [values["expert_shards"] for values in left.combinations(left.names, left.decided)] == [0, 1, 2, 6]
    other = left.on(Mesh(axes=tuple(Axis(name=name, size=2) for name in ("x", "a", "b"))))
    assert [values["expert_shards"] for values in other.combinations(other.names, other.decided)] == [0, 1, 2, 4]


# which is chosen

PLAIN = Plan(mesh=Mesh(axes=()))
Prices = Mapping[int, tuple[int, int]]
"""Seconds as searched and as priced with another's layouts, of each combination."""


def priced(seconds: float, peak_bytes: int = 1) -> PricedPlan:
    return PricedPlan(plan=PLAIN, estimate=cast(Estimate, SimpleNamespace(step_time_s=seconds, peak_bytes=peak_bytes)))


class Fake:
    """Steps with known prices: ``refused`` ones, those whose plans are ``whole``, and floors."""

    def __init__(
        self, prices: Prices, refused: set[int], *, whole: Container[int], peaks: Mapping[int, int] | None = None
    ):
        self.prices, self.refused, self.whole, self.peaks = prices, refused, whole, peaks or {}
        self.searched: list[int] = []

    def same_as(self, one: Combination) -> Combination | None:
        if one.index in self.refused:
            raise PlanError([problem("MW310", state="it", reason="so")])
        return None

    def leaves_nothing(self, one: Combination) -> bool:
        return one.index in self.whole

    def priced(self, one: Combination, like: Plan | None) -> PricedPlan:
        assert (like is None) <= (one.index in self.whole)
        return priced(sum(self.prices[one.index]) / 1e3, self.peaks.get(one.index, 1))

    def floor_s(self, one: Combination, priced: PricedPlan) -> float:
        return self.prices[one.index][0] / 2e3

    def search(self, one: Combination, clock: Clock, tell: Callable[[Progress], None] | None) -> SearchResult:
        self.searched.append(one.index)
        best = priced(self.prices[one.index][0] / 1e3)
        return SearchResult(
            plan=best.plan,
            status="optimal",
            estimate=best.estimate,
            bound_s=best.step_time_s,
            tried_bound_s=best.step_time_s,
            meshes=MeshCount(distinct=1, covered=0, impossible=0, tried=1, left_out=0),
            search_s=0.0,
        )


def combinations(count: int) -> list[Combination]:
    return [Combination(index=i, settings={"a": i % 3, "b": i // 3}, plan=PLAIN) for i in range(count)]


drawn = st.integers(1, 9).flatmap(
    lambda count: st.tuples(
        st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=count, max_size=count),
        st.sets(st.integers(0, count - 1)),
        st.one_of(st.just(set()), st.just(set(range(count))), st.sets(st.integers(0, count - 1))),
    )
)


@given(drawn)
@settings(deadline=None)
def test_the_choice_equals_exhaustive_evaluation(drawn: tuple[list[tuple[int, int]], set[int], set[int]]) -> None:
    prices, refused, whole = drawn
    steps = Fake(dict(enumerate(prices)), refused, whole=whole)
    choosing = Choosing(combinations(len(prices)), steps, limit_bytes=None, clock=Clock(1e6))
    choosing.run()
    alone = {i: (sum(p) if i in whole else p[0]) / 1e3 for i, p in enumerate(prices) if i not in refused}
    if not alone:
        assert choosing.best is None
        return
    assert choosing.best is not None
    assert choosing.best_s == pytest.approx(min(alone.values()), rel=2e-3)
    assert choosing.bound_s <= min(alone.values())
    if whole >= alone.keys():
        assert (choosing.bound_s, steps.searched) == (min(alone.values()), [])
    assert not whole.intersection(steps.searched)
    told = rows_of(choosing.every)
    assert {row.settings["a"] + 3 * row.settings["b"] for row in told.rows if "it cannot be placed" in row.why} == (
        refused
        if len(whole) == len(prices) or told.not_looked_at == 0
        else refused & {one.index for one in choosing.every if one.seen}
    )


def test_what_cannot_win_is_not_searched() -> None:
    steps = Fake({0: (10, 0), 1: (40, 0), 2: (41, 9)}, set(), whole=())
    choosing = Choosing(combinations(3), steps, limit_bytes=None, clock=Clock(1e6))
    choosing.run()
    assert steps.searched == [0]
    assert choosing.bound_s == choosing.best_s == 0.01


def test_what_does_not_fit_is_not_chosen() -> None:
    steps = Fake({0: (10, 0), 1: (4, 0), 2: (5, 0)}, set(), whole=range(9), peaks={1: 100})
    choosing = Choosing(combinations(3), steps, limit_bytes=50, clock=Clock(1e6))
    choosing.run()
    assert choosing.best is choosing.every[2]
    assert "50 B more than the limit" in choosing.every[1].why


def test_what_nobody_reads_is_not_proven() -> None:
    """Meshes that are left out: while nothing is known of them, no bound holds for all, nothing is infeasible."""
    for refused in (set(), {0, 1}):
        steps = Fake({0: (10, 0), 1: (20, 0), 2: (1, 0)}, refused, whole=())
        every = [*combinations(2), Combination(index=2, settings={}, plan=PLAIN, on="7 others", others=7)]
        choosing = Choosing(every, steps, limit_bytes=None, clock=Clock(1e6))
        choosing.run()
        assert steps.searched == ([] if refused else [0])
        assert (choosing.bound_s, every[2].seen, every[2].is_out) == (0.0, False, False)
        assert rows_of(every).not_looked_at == 7


class Contrary(Fake):
    """Steps whose searches, but for the first, say that nothing fits, although others' layouts do."""

    def search(self, one: Combination, clock: Clock, tell: Callable[[Progress], None] | None) -> SearchResult:
        found = super().search(one, clock, tell)
        return found if one.index == 0 else replace(found, plan=None, estimate=None, status="infeasible", bound_s=None)


def test_a_plan_that_is_known_outweighs_a_proof_that_there_is_none() -> None:
    steps = Contrary({0: (10, 0), 1: (4, 1)}, set(), whole=())
    choosing = Choosing(combinations(2), steps, limit_bytes=None, clock=Clock(1e6))
    choosing.run()
    assert steps.searched == [0, 1]
    assert choosing.best is choosing.every[1]
    assert (choosing.best_s, choosing.bound_s, choosing.every[1].why) == (0.005, 0.002, "")


class Excluding(Fake):
    """Steps whose search finds what pricing had found too large."""

    def priced(self, one: Combination, like: Plan | None) -> PricedPlan:
        return priced(self.prices[one.index][0] / 1e3, peak_bytes=100)


def test_why_a_price_was_none_is_forgotten_with_a_plan() -> None:
    one = Combination(index=0, settings={}, plan=PLAIN, why="priced with another's layouts, it takes more")
    one.take(priced(1.0))
    assert one.why == ""
    choosing = Choosing(
        combinations(2), Excluding({0: (10, 0), 1: (4, 0)}, set(), whole=()), limit_bytes=9, clock=Clock(1e6)
    )
    choosing.run()
    assert [row.why for row in rows_of(choosing.every).rows] == ["", ""]


def test_nothing_goes_on_long_past_the_limit() -> None:
    """Where none has a plan when the time is over, one more is looked at, and no more."""
    for refused in (set(), set(range(9))):
        steps = Fake(dict.fromkeys(range(9), (9, 0)), refused, whole=range(9), peaks=dict.fromkeys(range(9), 100))
        choosing = Choosing(combinations(9), steps, limit_bytes=9, clock=Clock(0.0))
        choosing.run()
        assert rows_of(choosing.every).not_looked_at == 8
        assert choosing.best is None
        assert choosing.bound_s == 0.0


def test_whoever_stops_it_gets_the_best_so_far() -> None:
    steps = Fake({i: (9 - i, 0) for i in range(9)}, set(), whole=range(9))
    choosing = Choosing(combinations(9), steps, limit_bytes=None, clock=Clock(1e6, stop=lambda: bool(seen() >= 4)))

    def seen() -> int:
        return sum(one.seen for one in choosing.every)

    choosing.run()
    assert (seen(), rows_of(choosing.every).not_looked_at) == (4, 5)
    assert choosing.best is not None
    assert choosing.bound_s == 0.0  # nothing is known of the others


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=6, max_size=6), st.sets(st.integers(0, 5)))
@settings(deadline=None)
def test_the_table_has_the_best_for_each_amount(prices: list[tuple[int, int]], refused: set[int]) -> None:
    every = [Combination(index=i, settings={"rows": i // 3, "r": i % 3}, plan=PLAIN) for i in range(6)]
    steps = Fake(dict(enumerate(prices)), refused, whole=())
    said: list[str] = []
    table = table_of(PLAIN, "rows", every, steps, limit_bytes=None, clock=Clock(1e6), tell=said.append)
    best: dict[int, float] = {}
    for i, both in enumerate(prices):
        if i not in refused:
            best[i // 3] = min(best.get(i // 3, 1.0), sum(both) / 1e3)
    assert {one.when["rows"]: one.step_time_s for one in table.entries} == best
    assert (table.looked_at, len(said)) == (6, 6)
    for one in table.entries:
        chosen: Any = one.settings["r"]
        assert sum(prices[3 * one.when["rows"] + chosen]) / 1e3 == one.step_time_s
