"""``estimate``, ``explain``, ``calibrate`` and what ``diff`` says of costs, from the command line."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import meshwright.backends.jax.calibration as calibration_package
import pytest
from command_line import run
from meshwright.planner.compute import Calibration, dump, load
from meshwright.planner.compute.calibration import FitError
from meshwright.planner.compute.coefficients import Coefficients

F32 = 4
MODEL = """\
import jax

def model(width=64):
    shape = jax.ShapeDtypeStruct((width, width), "float32")
    return lambda params, batch: batch @ params, (shape, shape)
"""
TEXT = """\
meshwright: 1
name: small
model: mw_priced:model
topology: v5e:2x2
mesh: {data: 2, model: 2}
tensors:
  params: K@model N
  batch: B@data K@model
  out: B@data N
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mw_priced.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "plan.yaml"
    path.write_text(TEXT)
    return path


def test_the_command_answers_in_json_and_in_a_sentence(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("estimate", file, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["schema_version"], said["command"], said["what"], said["fits"]) == (1, "estimate", "predicted", True)
    assert said["step_time_s"] == pytest.approx(said["compute_s"] + said["comm_s"])
    assert said["collective_bytes"] == {"all-reduce": 32 * 64 * F32}
    assert "kernels" not in said
    assert run("estimate", file) == 0
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "small fits v5e:2x2: a device needs" in streams.err
    assert streams.err.strip().endswith("Predicted.")


def test_what_does_not_fit_is_1(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(TEXT + "limits: {hbm: 1 KiB}\n")
    assert run("estimate", file) == 1
    assert run("explain", file, "--json") == 1
    streams = capsys.readouterr()
    assert json.loads(streams.out)["fits"] is False
    assert "does not fit" in streams.err


def test_explain_shows_tables_and_writes_a_page(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = file.parent / "page.html"
    assert run("explain", file, "--html", page) == 0
    err = capsys.readouterr().err
    for title in ("Time of a step", "Operations that take longest", "Largest tensors", "Communication by source line"):
        assert title in err
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert run("explain", file, "--html", file.parent / "none" / "page.html") == 2
    assert "MW412" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["estimate", "explain"])
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("params: K@model N", "params: auto", "MW303"),
        ("v5e:2x2", "v99:2x2", "MW202"),
        ("topology: v5e:2x2\n", "", "MW410"),
        ("model: mw_priced:model\n", "", "MW301"),
        ("mw_priced:model", "mw_priced:models", "MW311"),
        ("batch: B@data", "batsh: B@data", "MW101"),
    ],
)
def test_what_cannot_be_priced_is_a_problem(
    command: str, old: str, new: str, said: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(TEXT.replace(old, new))
    assert run(command, file) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_is_not_there_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", tmp_path / "none.yaml", "--json") == 2
    streams = capsys.readouterr()
    assert json.loads(streams.out)["problems"][0]["code"] == "MW001"


def test_diff_says_what_a_change_costs(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = file.parent / "other.yaml"
    other.write_text(TEXT.replace("K@model N", "K N").replace("B@data K@model", "B@data K"))
    assert run("diff", file, other, "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert len(said["changes"]) == 2
    assert said["cost"]["collective_bytes"]["all-reduce"] == {"before": 8192, "after": 0, "change": -8192}
    assert said["cost"]["what"] == "predicted"
    assert said["no_cost_because"] is None
    assert run("diff", file, other) == 1
    streams = capsys.readouterr()
    assert streams.out.count("\n") == 2
    assert "What the change costs or saves, predicted" in streams.err
    assert "communicated: all-reduce" in streams.err
    assert run("diff", file, file) == 0
    assert capsys.readouterr().err == ""


def test_diff_says_why_a_change_has_no_price(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = file.parent / "other.yaml"
    other.write_text(TEXT.replace("params: K@model N", "params: auto"))
    assert run("diff", file, other, "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert said["cost"] is None
    assert "MW303" in said["no_cost_because"]


def learned() -> Calibration:
    """A table of a chip that is slow in everything."""
    return Calibration(
        jax_kind="TPU v5 lite",
        topology="v5e:2x2",
        compiler="a compiler of ours",
        programs=5,
        error=FitError(programs=2, median=0.07, p95=0.2),
        coefficients=Coefficients(**{each.name: 1e6 for each in dataclasses.fields(Coefficients)}),
    )


def test_a_calibration_of_ones_own_prices_compute(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = file.parent / "table.yaml"
    table.write_text(dump(learned()))
    said = []
    for more in ((), ("--calibration", table)):
        assert run("estimate", file, "--json", *more) == 0
        said.append(json.loads(capsys.readouterr().out))
    assert said[1]["compute_s"] > said[0]["compute_s"]
    assert "a compiler of ours" in said[1]["compute_source"]
    table.write_text("programs: many\n")
    assert run("estimate", file, "--calibration", table) == 2
    assert "MW411" in capsys.readouterr().err
    table.write_text(dump(dataclasses.replace(learned(), jax_kind="TPU v3")))
    assert run("estimate", file, "--calibration", table) == 2
    assert "MW415" in capsys.readouterr().err
    assert run("estimate", file, "--calibration", file.parent / "none") == 2
    assert "MW001" in capsys.readouterr().err


def test_calibrate_writes_a_table_and_says_how_well_it_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = learned()
    monkeypatch.setattr(calibration_package, "calibrate", lambda topology, progress: progress(1, 1) or made)
    assert run("calibrate", "v3:2x2", "--out", tmp_path / "table.yaml", "--json") == 0
    streams = capsys.readouterr()
    assert json.loads(streams.out)["error"]["median"] == 0.07
    assert "median error 7.0%" in streams.err
    assert load((tmp_path / "table.yaml").read_text()) == made
    assert run("calibrate", "v3:2x2") == 0
    assert load(capsys.readouterr().out) == made
    monkeypatch.setattr(calibration_package, "calibrate", lambda topology, progress: pytest.fail("begun"))
    for nowhere in (tmp_path, tmp_path / "no folder" / "table.yaml"):
        assert run("calibrate", "v3:2x2", "--out", nowhere) == 2
        assert "MW414" in capsys.readouterr().err
    for machine in ("cpu:8", "h100:8"):
        assert run("calibrate", machine) == 2
        assert "MW416" in capsys.readouterr().err
    assert run("calibrate", "v3:3x99") == 2
    assert "MW204" in capsys.readouterr().err
    assert run("calibrate", "nonsense") == 2
