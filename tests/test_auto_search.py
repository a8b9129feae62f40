"""Plans with open settings, searched: the choice against exhaustive evaluation, the table, what runs of it."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
import pytest
from in_process import search_plan
from meshwright import cli
from meshwright.backends.jax.loading import load_workload
from meshwright.backends.jax.model_steps import ModelSteps
from meshwright.backends.jax.open_settings import open_settings
from meshwright.backends.jax.search import machine_of
from meshwright.backends.jax.short_search import searched_short
from meshwright.dsl.errors import PlanError
from meshwright.dsl.plan import Plan
from meshwright.planner.search.combination import Combination
from meshwright.planner.search.pool import Here

HERE = Path(__file__).parent
SHARDS, DEGREES, FACTORS = (0, 1, 2, 4), (1, 2), (1.0, 4.0)
LAYER = """
meshwright: 1
model: open_models:layer
with: {{{settings}}}
topology: {topology}
mesh: {{expert: 2, a: 2, b: 2}}
tensors:
  params/wi: E@expert M H@a+b
  params/wo: E@expert H@a+b M
  x:         G@expert+a+b S M
"""


@pytest.fixture(autouse=True)
def _beside_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE)


def price(plan: Plan) -> float:
    """A plan's price, by the estimate alone."""
    workload = load_workload(plan)
    return mw.estimate(plan, workload.step, workload.args).step_time_s


def layer(topology: str, **settings: Any) -> Plan:
    return mw.loads(LAYER.format(topology=topology, settings=", ".join(f"{k}: {v}" for k, v in settings.items())))


@pytest.mark.parametrize("topology", ["cpu:8", "v5e:2x4", "h100:8x1"])
def test_the_choice_of_r_equals_exhaustive_evaluation(topology: str) -> None:
    amounts = f"{{auto: {list(FACTORS)}}}"
    asked = layer(topology, r="auto", chunks=f"{{auto: {list(DEGREES)}}}", capacity_factor=amounts)
    found = search_plan(asked)
    alone: dict[float, dict[tuple[int, int], float]] = {factor: {} for factor in FACTORS}
    for factor, r, degree in itertools.product(FACTORS, SHARDS, DEGREES):
        if r > 0 or degree == 1:
            said = {"r": r, "chunks": degree, "capacity_factor": factor}
            alone[factor][r, degree] = price(layer(topology, **said))
    assert found.plan is not None
    chosen = found.plan.settings
    assert chosen["capacity_factor"] == 4.0  # the largest: what fits there fits at the others
    assert alone[4.0][chosen["r"], chosen["chunks"]] == min(alone[4.0].values())
    assert found.step_time_s == found.bound_s == min(alone[4.0].values())
    assert found.status == "optimal"
    assert found.plan.result is not None
    table = {one.when["capacity_factor"]: one for one in found.plan.result.at_run_time}
    assert {factor: one.step_time_s for factor, one in table.items()} == {f: min(alone[f].values()) for f in FACTORS}
    for factor, one in table.items():
        adapted = mw.adapt(found.plan, capacity_factor=factor)
        assert adapted.rules == found.plan.rules
        assert price(adapted) == alone[factor][one.settings["r"], one.settings["chunks"]]
    assert found.settings is not None
    refused = [row for row in found.settings.rows if row.why]
    assert [row.settings for row in refused] == [{"r": 0, "chunks": 2}]
    assert "in chunks even less" in refused[0].why


def test_r_changes_between_steps_and_nothing_moves() -> None:
    """Tutel's adaptive parallelism: the state of a step of one entry is what a step of another one is called with."""
    amounts = f"{{auto: {list(FACTORS)}}}"
    plan = search_plan(layer("cpu:8", r="{auto: [1]}", capacity_factor=amounts)).plan
    assert plan is not None
    generator = np.random.default_rng(0)

    def first_values(spec: jax.ShapeDtypeStruct) -> jax.Array:
        return jnp.asarray(generator.normal(size=spec.shape) * 0.3, spec.dtype)

    adapted = mw.adapt(plan, capacity_factor=4.0)
    entries = {r: replace(adapted, settings={**adapted.settings, "r": r}) for r in (0, 1, 4)}
    workloads = {r: load_workload(one) for r, one in entries.items()}
    steps = {r: mw.apply(one, workloads[r].step, workloads[r].args) for r, one in entries.items()}
    params, x = jax.tree.map(first_values, workloads[1].args)
    by_turns, alone = ({name: jnp.array(value) for name, value in params.items()} for _ in range(2))
    places = None
    for r in (1, 4, 0, 1):
        by_turns, _ = steps[r](by_turns, x)  # an argument that lies otherwise than the plan says would be refused
        assert places in (None, {name: value.sharding for name, value in by_turns.items()})
        places = {name: value.sharding for name, value in by_turns.items()}
        alone, _ = steps[1](alone, x)
    for name, value in alone.items():
        np.testing.assert_allclose(np.asarray(by_turns[name]), np.asarray(value), atol=1e-5)


DEEP = "meshwright: 1\nmodel: open_models:deep\nwith: {{{settings}}}\ntopology: {topology}\nmesh: {mesh}\n"


def test_open_layouts_and_settings_are_chosen_together() -> None:
    topology, mesh = "v5e:2x2", "{a: 4}"
    found = search_plan(mw.loads(DEEP.format(settings="width: auto, depth: auto", topology=topology, mesh=mesh)))
    alone = {}
    for width, depth in ((64, 1), (64, 3), (48, 1)):
        said = f"width: {width}, depth: {depth}"
        decided = mw.loads(DEEP.format(settings=said, topology=topology, mesh=mesh))
        alone[width, depth] = search_plan(decided).step_time_s
    assert found.plan is not None
    assert found.plan.result is not None
    assert found.step_time_s <= min(alone.values())
    assert found.bound_s <= found.step_time_s
    chosen = found.plan.settings
    assert alone[chosen["width"], chosen["depth"]] == min(alone.values())
    assert price(found.plan) == found.step_time_s
    assert found.plan.result.pins == ("mesh",)
    assert mw.loads(mw.dumps(found.plan)) == found.plan
    assert [row.settings for row in found.settings.rows if row.bound_s is None] == [{"width": 64, "depth": 2}]


def test_a_step_that_names_axes_is_searched_on_each_open_mesh() -> None:
    text = "meshwright: 1\nmodel: open_models:by_hand\nwith: {chunks: {auto: [1, 2]}}\ntopology: v5e:2x4\nmesh: auto\n"
    found = search_plan(mw.loads(text))
    assert found.plan is not None
    assert found.plan.mesh.sizes["data"] >= 4
    assert found.plan.result.pins == ()
    sizes = {row.settings["mesh"]: row.why for row in found.settings.rows}
    assert any("four along data are wanted" in why for why in sizes.values())
    assert price(found.plan) == found.step_time_s
    said = search_plan(mw.loads(text.replace("{auto: [1, 2]}", "1")))  # nothing but the mesh is open
    assert said.step_time_s >= found.step_time_s


def test_the_same_step_is_looked_at_once() -> None:
    text = "meshwright: 1\nmodel: open_models:deep\nwith: {scale: {auto: [1.0, 1]}}\ntopology: cpu:2\nmesh: {a: 2}\n"
    rows = search_plan(mw.loads(text)).settings.rows
    assert [row.why for row in rows] == ["", "the same step as scale: 1.0"]


def test_layers_that_repeat_are_searched_once_where_settings_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []

    def noted(*args: Any, **options: Any) -> Any:
        found.append(searched_short(*args, **options))
        return found[-1]

    monkeypatch.setattr("meshwright.backends.jax.short_search.LONG", 0)
    monkeypatch.setattr("meshwright.backends.jax.model_steps.searched_short", noted)
    text = "meshwright: 1\nmodel: open_models:layered\nwith: {scale: {auto: [1.0, 2.0]}}\n"
    result = search_plan(mw.loads(f"{text}topology: v5e:2x2\nmesh: {{x: 4}}\n"))
    assert found
    assert None not in found
    assert result.step_time_s == pytest.approx(price(result.plan), rel=1e-9)


def test_steps_that_differ_in_an_inner_constant_are_not_the_same() -> None:
    text = "meshwright: 1\nmodel: open_models:shifted\nwith: {by: {auto: [1, 2]}}\ntopology: cpu:2\nmesh: {a: 2}\n"
    assert [row.why for row in search_plan(mw.loads(text)).settings.rows] == ["", ""]


def test_alternatives_are_of_other_settings() -> None:
    text = DEEP.format(settings="width: auto, depth: auto", topology="cpu:4", mesh="{a: 4}")
    found = search_plan(mw.loads(text), top_k=2, pareto=True)
    assert len(found.alternatives) == 1
    assert found.alternatives[0].plan.settings != found.plan.settings
    assert found.alternatives[0].step_time_s >= found.step_time_s
    assert found.frontier[0].plan == found.plan
    peaks = [point.peak_bytes for point in found.frontier]
    assert peaks == sorted(peaks, reverse=True)


def test_settings_that_the_model_refuses_together_are_a_problem() -> None:
    text = DEEP.format(settings="width: 64, depth: {auto: [2]}", topology="cpu:4", mesh="{a: 4}")
    with pytest.raises(PlanError) as caught:
        search_plan(mw.loads(text))
    assert [found.code for found in caught.value.problems] == ["MW567"]
    assert "two of 64 are one too many" in str(caught.value)


def test_pins_that_no_combination_can_have_are_a_problem() -> None:
    text = DEEP.format(settings="depth: {auto: [1, 3]}", topology="cpu:4", mesh="{a: 4}")
    with pytest.raises(PlanError) as caught:
        search_plan(mw.loads(f"{text}tensors: {{nothing: replicate}}\n"))
    assert "nothing" in str(caught.value)


def test_what_no_combination_decides_is_said_as_it_is() -> None:
    """The same problems, all of them and at their places, as without an open setting."""
    pins = "tensors: {nothing: replicate, neither: replicate}\n"
    told = []
    for depth in ("1", "{auto: [1]}", "{auto: [1, 3]}"):
        with pytest.raises(PlanError) as caught:
            search_plan(mw.loads(DEEP.format(settings=f"depth: {depth}", topology="cpu:4", mesh="{a: 4}") + pins))
        told.append([(found.code, found.place) for found in caught.value.problems])
    assert len(told[0]) == 2
    assert told[0] == told[1] == told[2]


def test_more_combinations_than_anyone_looks_at_are_a_problem() -> None:
    many = f"{{auto: {list(range(1, 70))}}}"
    with pytest.raises(PlanError) as caught:
        search_plan(mw.loads(DEEP.format(settings=f"scale: {many}, width: {many}", topology="cpu:4", mesh="{a: 4}")))
    assert [(found.code, found.place.line) for found in caught.value.problems] == [("MW568", 3)]


def test_the_order_of_the_values_does_not_matter() -> None:
    """One combination has a tensor of which the plan says nothing: it is searched, not refused."""
    told = []
    for values in ("[false, true]", "[true, false]"):
        text = f"meshwright: 1\nmodel: open_models:biased\nwith: {{bias: {{auto: {values}}}}}\n"
        text += "topology: cpu:4\nmesh: {a: 4}\ntensors: {params/w: replicate, x: B@a W}\n"
        found = search_plan(mw.loads(text))
        assert {row.settings["bias"]: row.why for row in found.settings.rows} == {False: "", True: ""}
        told.append((found.plan.settings["bias"], found.step_time_s))
    assert told[0] == told[1]


def test_a_floor_holds_for_all_remat_policies() -> None:
    """Also where it was priced with another's policy, under which products are computed twice."""
    text = "meshwright: 1\nmodel: open_models:blocks\nwith: {{depth: {depth}}}\ntopology: v5e:2x2\nmesh: {{a: 4}}\n"
    text += "tensors: {{x: B@a W, '**': infer}}\nremat: {remat}\n"
    own = mw.loads(text.format(depth=3, remat="auto"))
    steps = ModelSteps(machine_of(own), Here(lambda: False), seed=0, exact=False)
    one = Combination(index=0, settings={"depth": 3}, plan=own)
    others = [steps.priced(one, mw.loads(text.format(depth=2, remat=remat))) for remat in ("none", "full")]
    least, more = (steps.floor_s(one, other) for other in others)
    assert 0 < least == pytest.approx(more)
    fixed = replace(one, plan=mw.loads(text.format(depth=3, remat="full")))
    assert steps.floor_s(fixed, others[1]) > 1.2 * least  # what the plan has it compute again counts


def test_a_mesh_that_the_model_refuses_everywhere_is_a_problem() -> None:
    text = "meshwright: 1\nmodel: open_models:by_hand\nwith: {chunks: 1}\ntopology: cpu:2\nmesh: auto\n"
    asked = mw.loads(text)
    for refuse in (search_plan, lambda plan: open_settings(plan).first_accepted(machine_of(plan))):
        with pytest.raises(PlanError, match="four along data are wanted"):
            refuse(asked)


def test_nothing_fits_where_no_combination_does() -> None:
    text = DEEP.format(settings="width: auto, depth: 1", topology="cpu:2", mesh="{a: 2}")
    found = search_plan(mw.loads(f"{text}tensors: {{'**': replicate}}\n"), limits={"hbm": "4 KiB"})
    assert (found.plan, found.status) == (None, "infeasible")
    assert all("more than the limit" in row.why for row in found.settings.rows)


def test_the_command_completes_a_plan_and_shows_what_it_chose_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, out = tmp_path / "given.yaml", tmp_path / "out.yaml"
    text = DEEP.format(settings="width: auto, depth: auto, rows: auto", topology="cpu:4", mesh="{a: 4}")
    given.write_text(f"{text}tensors: {{params: replicate, x: B@a W}}\n")
    assert cli.main(["search", str(given), "-o", str(out)]) == 0
    told = capsys.readouterr().err
    for said in ("Settings looked at, predicted", "Best at run time", "predicted time alone; width may change"):
        assert said in told
    assert mw.load(out).settings["rows"] == 64
    assert [one.when["rows"] for one in mw.load(out).result.at_run_time] == [32, 64]
    assert cli.main(["check", str(out)]) == 0
    assert cli.main(["fmt", "--check", str(out)]) == 0
    capsys.readouterr()
    assert cli.main(["search", str(given), "--json", "--set", "width=48", "--set", "rows={auto: [32]}"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["settings"]["not_looked_at"] == 0
    assert [row["settings"] for row in answer["settings"]["tried"]] == [{"depth": 1}]
