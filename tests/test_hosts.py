"""Two processes that run one plan together do what one does, and one of them speaks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
from meshwright.backends.jax.hosts import Process, parse_process
from meshwright.cli import main
from meshwright.dsl.errors import PlanError

TESTS = Path(__file__).parent
PLAN = """\
meshwright: 1
name: toy
model: toy:workload
topology: cpu:8
mesh: {data: 8}
tensors:
  batch/**: B@data ...
  "**": replicate
"""


def test_a_process_is_written_as_one_of_many_at_an_address() -> None:
    assert parse_process("1/4@10.0.0.1:1234") == Process(index=1, count=4, address="10.0.0.1:1234")
    assert parse_process("auto") == Process()


@pytest.mark.parametrize("text", ["", "2/2@a:1", "0/0@a:1", "0/2", "0/2@a", "-1/2@a:1", "0/2@a:b"])
def test_what_names_no_process_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match=r"MW528[\s\S]*0/2@10.0.0.1:1234"):
        parse_process(text)


def test_devices_that_do_not_divide_over_processes_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XLA_FLAGS", os.environ["XLA_FLAGS"])
    plan_file = tmp_path / "plan.yaml"
    plan_file.write_text(PLAN)
    assert main(["run", str(plan_file), "--process", "0/3@localhost:1"]) == 2
    assert "MW529" in capsys.readouterr().err


def a_free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port: int = found.getsockname()[1]
    return port


def losses(path: Path) -> list[float]:
    return [record["loss"] for record in map(json.loads, path.read_text().splitlines()) if record["kind"] == "step"]


def test_two_processes_train_and_keep_what_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XLA_FLAGS", os.environ["XLA_FLAGS"])
    monkeypatch.syspath_prepend(str(TESTS))
    plan_file, port = tmp_path / "plan.yaml", a_free_port()
    plan_file.write_text(PLAN)
    command = [sys.executable, "-m", "meshwright.cli", "run", str(plan_file), "--steps", "4", "--json"]
    started = [
        subprocess.Popen(
            [
                *(*command, "--process", f"{index}/2@localhost:{port}"),
                *("--metrics", str(tmp_path / f"{index}.jsonl"), "--save", str(tmp_path / "kept")),
            ],
            cwd=TESTS,
            stdout=PIPE,
            stderr=PIPE,
            text=True,
        )
        for index in range(2)
    ]
    told = [process.communicate(timeout=240) for process in started]
    assert [process.returncode for process in started] == [0, 0], told
    assert json.loads(told[0][0])["num_devices"] == 8
    assert told[1][0] == ""
    assert "finished after 4 steps" in told[0][1]
    assert "finished" not in told[1][1]
    assert not (tmp_path / "1.jsonl").exists()
    alone = ["run", str(plan_file), "--steps", "4", "--metrics", str(tmp_path / "alone.jsonl")]
    assert main(alone) == 0
    assert losses(tmp_path / "0.jsonl") == pytest.approx(losses(tmp_path / "alone.jsonl"), rel=1e-5)
    again = ["run", str(plan_file), "--steps", "1", "--resume", str(tmp_path / "kept"), "--json"]
    capsys.readouterr()
    assert main(again) == 0
    assert json.loads(capsys.readouterr().out)["steps_before"] == 4
