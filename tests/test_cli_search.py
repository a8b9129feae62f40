"""``meshwright search``: what is written where, exit codes, wrong arguments."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import meshwright as mw
import pytest
from in_process import here
from meshwright import cli
from meshwright.planner.search.progress import Progress
from meshwright.search_display import SearchDisplay, figures
from rich.console import Console

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _beside_the_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE)


def search(*arguments: object) -> int:
    """The command's exit code; it solves in this process, but for where it is asked to stop."""
    with here():
        return cli.main(["search", *map(str, arguments)])


def test_the_plan_goes_to_the_output_and_all_else_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert search("toy:workload", "--topology", "v5e:2x2", "--mesh", "a=2,b=2") == 0
    captured = capsys.readouterr()
    plan = mw.loads(captured.out)
    assert plan.mesh.sizes == {"a": 2, "b": 2}
    assert (plan.model, plan.result.pins) == ("toy:workload", ("mesh",))
    assert "gap" in captured.err
    assert "solving a=2 b=2" in captured.err


def test_json_has_it_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert search("toy:workload", "--topology", "cpu:2", "--json", "--seed", 3) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["schema_version"], answer["command"]) == (1, "search")
    assert answer["bound_s"] <= answer["step_time_s"]
    by_hand = [row for row in answer["candidates"] if "by hand" in row["why"]]
    assert answer["meshes"]["tried"] == len(answer["candidates"]) - len(by_hand)
    assert mw.loads(answer["plan"]).result.seed == 3


def test_a_partial_plan_is_completed_and_its_file_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, out = tmp_path / "given.yaml", tmp_path / "plan.yaml"
    text = (
        "meshwright: 1\nmodel: toy:workload\ntopology: v5e:2x2\nmesh: {a: auto, b: 2}\ntensors: {batch/**: N@a ...}\n"
    )
    given.write_text(text)
    assert search(given, "-o", out, "--limit", "1 GiB", "--time-limit", 100) == 0
    assert given.read_text() == text
    assert capsys.readouterr().out == ""
    plan = mw.load(out)
    assert plan.mesh.sizes == {"a": 2, "b": 2}
    assert plan.rules[0].pattern == "batch/**"
    assert plan.result.pins == ("mesh.b", "batch/**")
    assert plan.limits.hbm_bytes == 2**30


def test_writing_over_the_given_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = tmp_path / "given.yaml"
    given.write_text("meshwright: 1\nmodel: toy:workload\ntopology: cpu:2\n")
    assert search(given, "-o", given) == 2
    assert "MW555" in capsys.readouterr().err


def test_what_cannot_fit_is_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert search("toy:workload", "--topology", "v5e:2x2", "--mesh", "a=4", "--limit", "512B", "--time-limit", 30) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "infeasible" in captured.err
    assert "bytes more" in captured.err
    assert "(512 bytes, of --limit)" in captured.err  # and of no plan


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["toy:workload"], "MW550"),
        (["toy"], "MW558"),
        (["no_such.yaml", "--topology", "cpu:2"], "MW001"),
        (["toy:workload", "--topology", "cpu:2", "--mesh", "a=b"], "--mesh: MW554"),
        (["toy:workload", "--topology", "cpu:2", "--mesh", "a=2,a=1"], "--mesh: MW554"),
        (["toy:workload", "--topology", "cpu:2", "--mesh", "a=3"], "--mesh: MW210"),
        (["toy:workload", "--topology", "cpu:2", "--set", "layers"], "--set: MW556"),
        (["toy:workload", "--topology", "cpu:2", "--set", "layers=[1"], "--set layers: MW013"),
        (["toy:workload", "--topology", "cpu:2", "--set", "layers=3, rows: 4"], "--set layers: MW013"),
        (["toy:workload", "--topology", "cpu:2", "--set", "rows=1", "--set", "rows=2"], "--set rows: MW577"),
        (
            ["toy:workload", "--topology", "cpu:2", "--set", "rows=1", "--set", "rows=2"],
            "one value: 1 and 2.",
        ),
        (["toy:workload", "--topology", "cpu:2", "--limit", "12 apples"], "--limit: MW025 '12 apples'"),
        (["toy:workload", "--topology", "cpu:2", "--limit", "5GiB, x: 3"], "--limit: MW024"),
        (["toy:workload", "--topology", "cpu:2", "--limit", ""], "--limit: MW024"),
        (["toy:workload", "--topology", "cpu:2", "--time-limit", "0"], "MW553"),
        (["toy:workload", "--topology", "v9:2"], "--topology: MW202"),
    ],
)
def test_wrong_arguments_are_2(arguments: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert search(*arguments) == 2
    assert code in capsys.readouterr().err


def test_all_wrong_arguments_are_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("meshwright: 1\nmodle: toy:workload\n")
    wrong = (
        f"-o {tmp_path} --topology v9:2x2 --mesh a=2,b=x --limit 12foo --set layers --time-limit -3 --top-k 0 --seed -1"
    )
    assert search(plan, *wrong.split()) == 2
    said = capsys.readouterr().err
    codes = sorted(line.split("MW")[1][:3] for line in said.splitlines() if "MW" in line)
    assert codes == ["011", "025", "062", "202", "553", "553", "553", "554", "556"]


@pytest.mark.parametrize(
    ("options", "codes"),
    [("", {"015", "101", "106", "210"}), ("--mesh a=2,b=auto", {"015", "101"}), ("--mesh a=2,b=x", {"015", "554"})],
)
def test_what_is_wrong_for_the_step_is_told_beside_what_cannot_be_read(
    options: str, codes: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What options say stands in the place of the plan's own there too."""
    plan = tmp_path / "plan.yaml"
    rules = "{params/zz: replicate, batch/x: B@b D}"
    plan.write_text(
        f"meshwright: 1\nmodel: toy:workload\ntopology: cpu:2\nmesh: {{a: 3}}\nremat: some\ntensors: {rules}\n"
    )
    assert search(plan, *options.split()) == 2
    assert codes <= {line.split("MW")[1][:3] for line in capsys.readouterr().err.splitlines() if "MW" in line}


def test_help_brings_no_jax() -> None:
    code = "import sys; from meshwright import cli\ntry: cli.main(['search', '--help'])\nexcept SystemExit: pass\n"
    check = "assert not {'jax', 'numba', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code + check], check=True, capture_output=True)


def test_ctrl_c_keeps_the_best_plan(tmp_path: Path) -> None:
    out = tmp_path / "plan.yaml"
    command = [sys.executable, "-m", "meshwright.cli", "search", "toy:workload", "--topology", "v3:4x4", "-o", str(out)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=HERE, env=environment) as process:
        for line in process.stderr:
            if " solved " in line and "best -" not in line:
                process.send_signal(signal.SIGINT)
                break
        begin = time.monotonic()
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert time.monotonic() - begin < 30
    assert mw.load(out).result.gap is not None


def state(**more: float) -> Progress:
    given = {"tried": 1, "total": 4, "best_s": 0.002, "bound_s": 0.001, "elapsed_s": 3.0, "left_s": 57.0}
    return Progress(doing="solving x=4", **{**given, **more})


def test_the_display_says_what_is_known() -> None:
    assert figures(state()) == "best 2.000 ms  bound 1.000 ms  gap 50.0%  57 s left"
    assert figures(state(best_s=float("inf"))) == "best -  bound 1.000 ms  57 s left"


@pytest.mark.parametrize("terminal", [True, False])
def test_the_display_is_live_on_a_terminal_and_lines_elsewhere(terminal: bool, tmp_path: Path) -> None:
    with open(tmp_path / "screen", "w+") as screen:
        console = Console(file=screen, force_terminal=terminal, width=100)
        with SearchDisplay(console) as display:
            display(state())
        screen.seek(0)
        shown = screen.read()
    assert "solving x=4" in shown
    assert ("\x1b" in shown) == terminal
