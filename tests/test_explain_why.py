"""``explain`` on a searched plan: the reason of each choice; ``--why``: what forcing another layout costs."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from meshwright import cli
from meshwright.backends.jax.reasons import reasons, why
from meshwright.dsl.errors import PlanError
from meshwright.planner.explain.reason_table import reason_table, reasons_json, sentence

MODEL = """\
import jax
import jax.numpy as jnp

def loss(params, x):
    hidden = jax.nn.relu(x @ params["w"])
    return jnp.mean((hidden @ params["v"]) ** 2)

def step(params, batch):
    value, gradients = jax.value_and_grad(loss)(params, batch)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

def model(rows=8192, width=1024):
    shapes = {"w": (width, 4 * width), "v": (4 * width, width)}
    params = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    return step, (params, jax.ShapeDtypeStruct((rows, width), jnp.float32))
"""
SEARCHED = """\
meshwright: 1
name: searched
model: mw_why:model
topology: v5e:2x2
mesh: {data: 4}
tensors:
  params/**: replicate
  batch:     B@data C
result:
  status: optimal
  pins: [batch]
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mw_why.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "plan.yaml"
    path.write_text(SEARCHED)
    return path


def explain(*arguments: object) -> int:
    return cli.main(["explain", *map(str, arguments)])


def loss(params: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.sum((x @ params) ** 2)


def step(params: jax.Array, batch: jax.Array) -> jax.Array:
    return params - jax.grad(loss)(params, batch)


ARGS = (jax.ShapeDtypeStruct((512, 512), jnp.float32), jax.ShapeDtypeStruct((262144, 512), jnp.float32))


def plan(params: str = "replicate", batch: str = "B@data K", more: str = "") -> mw.Plan:
    text = f"tensors: {{params: {params}, batch: {batch}}}\n{more}"
    return mw.loads(f"meshwright: 1\ntopology: v5e:2x2\nmesh: {{data: 4}}\n{text}")


def test_a_searched_plan_is_explained_with_reasons(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(file, "--json") == 0
    said = {one["choice"]: one for one in json.loads(capsys.readouterr().out)["reasons"]}
    assert list(said) == ["params/**: replicate", "batch: B@data C", "the whole plan"]
    batch = said["batch: B@data C"]
    assert batch["pinned"]
    assert {other["instead"] for other in batch["alternatives"]} == {"left to propagation", "replicated"}
    assert all(other["step_time_s"] > 0 for other in batch["alternatives"])
    assert explain(file) == 0
    shown = capsys.readouterr().err
    assert "Why each choice" in shown
    assert "pinned; saves" in shown


def test_a_hand_written_plan_is_explained_so_on_request(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(SEARCHED.partition("result:")[0])
    assert explain(file, "--json") == 0
    assert "reasons" not in json.loads(capsys.readouterr().out)
    assert explain(file, "--json", "--reasons") == 0
    assert json.loads(capsys.readouterr().out)["reasons"]


def test_reasons_are_prices_of_the_changed_plans() -> None:
    own = mw.estimate(plan(), step, ARGS)
    found = {reason.choice: reason for reason in reasons(plan(), step, ARGS)}
    batch = {other.what: other.estimate for other in found["batch: B@data K"].alternatives}
    whole = mw.estimate(plan(batch="replicate"), step, ARGS)
    assert batch["replicated"].step_time_s == whole.step_time_s
    assert sentence(found["batch: B@data K"], own).startswith("saves ")
    rows = reason_table(list(found.values()), own).rows
    assert rows[0][0] == "params: replicate"
    assert {row[1] for row in rows} >= {"left to propagation", "replicated", "data parallelism by hand"}


def test_on_several_axes_the_state_over_one_of_them_is_a_way_by_hand_too() -> None:
    several = mw.loads(
        "meshwright: 1\ntopology: v5e:2x2\nmesh: {data: 2, model: 2}\ntensors: {params: replicate, batch: B@data K}\n"
    )
    whole = reasons(several, step, ARGS)[-1]
    assert [other.what for other in whole.alternatives] == [
        "data parallelism by hand",
        "FSDP by hand",
        "data and tensor parallelism by hand",
        "all replicated",
    ]
    assert all(other.estimate for other in whole.alternatives)


def test_what_fits_only_so_is_said_so() -> None:
    own = mw.estimate(plan(), step, ARGS)
    tight = plan(more=f"limits: {{hbm: {own.peak_bytes}}}\n")
    found = {one["choice"]: one for one in reasons_json(reasons(tight, step, ARGS), own)}
    assert "does not fit" in found["batch: B@data K"]["reason"]


def test_the_time_ends_reasons() -> None:
    found = reasons(plan(), step, ARGS, stop=lambda: True)
    assert {sentence(one, mw.estimate(plan(), step, ARGS)) for one in found} == {"not priced: the time was over"}


def test_why_solves_again_and_says_where(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(file, "--why", "params/w=_ H@data", "--json") == 0
    said = json.loads(capsys.readouterr().out)["why"]
    assert said["forced"] == "params/w: _ H@data"
    found = mw.loads(said["solved"]["plan"])
    assert (found.rules[0].pattern, found.mesh.sizes) == ("params/w", {"data": 4})
    assert found.result.pins == ("mesh", "params/w", "batch")
    cost = said["cost"]["time_s"]["step"]
    assert cost["after"] == said["solved"]["step_time_s"]
    by_line = sum(change["time_s"]["change"] for change in said["changes"])
    assert by_line == pytest.approx(cost["change"], abs=1e-9)
    assert any("mw_why.py" in change["source"] for change in said["changes"])
    assert any("params/w" in one["paths"] for one in said["layouts"])
    assert explain(file, "--why", "params/w=_ H@data") == 0
    shown = capsys.readouterr().err
    assert "With params/w: _ H@data a step takes" in shown
    assert "Where it costs or saves" in shown


def test_why_solves_no_worse_than_the_change_alone() -> None:
    found = why(plan(), step, ARGS, {"batch": "B K@data"})
    assert found.alone.step_time_s >= found.solved.step_time_s
    assert found.before.step_time_s == mw.estimate(plan(), step, ARGS).step_time_s
    assert found.text == "batch: B K@data"


def test_why_says_that_nothing_fits(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(SEARCHED + "limits: {hbm: 40 MiB}\n")
    assert explain(file, "--why", "params/**=replicate", "--time-limit", 10) == 3
    assert "no plan fits, which is proven" in capsys.readouterr().err


MISTAKES = [
    ("junk", "MW560"),
    ("=replicate", "MW560"),
    ("params/w=", "MW560"),
    ("params/w=auto", "MW561"),
    ("params/w=like batch", "MW561"),
    ("params/[w=replicate", "MW055"),
    ("params/w=A@ B", "MW049"),
    ("params/nope=replicate", "MW101"),
    ("params/w=A B C", "MW104"),
    ("params/w=A@model B", "MW106"),
]


def test_every_mistake_is_said_at_once(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [word for text, _ in MISTAKES for word in ("--why", text)]
    assert explain(file, *asked, "--json") == 2
    found = json.loads(capsys.readouterr().out)["problems"]
    said = {(one["line"], one["code"]) for one in found}
    assert said >= {(line, code) for line, (_, code) in enumerate(MISTAKES, 1)}
    assert all(one["file"] == "--why" and one["remedy"] for one in found)


def test_the_same_tensor_twice_is_a_mistake() -> None:
    with pytest.raises(PlanError, match="MW562"):
        why(plan(), step, ARGS, ["batch=replicate", "batch=B@data K"])


def test_a_dim_that_does_not_divide_is_a_mistake() -> None:
    odd = (ARGS[0], jax.ShapeDtypeStruct((262146, 512), jnp.float32))
    with pytest.raises(PlanError, match="MW105"):
        why(plan(batch="replicate"), step, odd, {"batch": "B@data K"})


def test_a_plan_with_holes_has_no_reasons_yet(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PlanError, match="MW563"):
        why(plan(params="auto"), step, ARGS, {"batch": "replicate"})
    file.write_text(SEARCHED.replace("params/**: replicate", "params/**: auto"))
    assert explain(file, "--why", "batch=replicate") == 2
    assert "MW563" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--html", "page.html"], ["--calibration", "table.yaml"]])
def test_options_that_say_nothing_beside_why_are_refused(
    file: Path, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(file, "--why", "batch=replicate", *option) == 2
    assert "MW564" in capsys.readouterr().err
