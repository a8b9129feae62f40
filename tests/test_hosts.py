"""Two processes that run one plan together do what one does, and one of them speaks."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
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


def has_lines(path: Path, count: int) -> bool:
    return path.exists() and path.read_text().count("\n") >= count


def test_two_processes_train_and_keep_what_one_does_until_one_hears_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XLA_FLAGS", os.environ["XLA_FLAGS"])
    monkeypatch.syspath_prepend(str(TESTS))
    plan_file, port = tmp_path / "plan.yaml", a_free_port()
    plan_file.write_text(PLAN)
    command = [sys.executable, "-m", "meshwright.cli", "run", str(plan_file), "--steps", "1000000", "--json"]
    kept = ["--save", str(tmp_path / "kept")]
    started = [
        subprocess.Popen(
            [*command, *kept, "--process", f"{i}/2@localhost:{port}", "--metrics", str(tmp_path / f"{i}.jsonl")],
            cwd=TESTS,
            stdout=PIPE,
            stderr=PIPE,
            text=True,
        )
        for i in range(2)
    ]
    deadline_s = time.monotonic() + 120
    while started[0].poll() is None and not has_lines(tmp_path / "0.jsonl", 8) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    started[1].send_signal(signal.SIGINT)
    told = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [130, 130], told
    summary = json.loads(told[0][0])
    assert (summary["num_devices"], summary["status"]) == (8, "interrupted")
    assert told[1][0] == ""
    assert "interrupted after" in told[0][1]
    assert "interrupted after" not in told[1][1]
    assert not (tmp_path / "1.jsonl").exists()
    assert main(["run", str(plan_file), "--steps", "4", "--metrics", str(tmp_path / "alone.jsonl")]) == 0
    assert losses(tmp_path / "0.jsonl")[:4] == pytest.approx(losses(tmp_path / "alone.jsonl"), rel=1e-5)
    capsys.readouterr()
    assert main(["run", str(plan_file), "--steps", "1", "--resume", str(tmp_path / "kept"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps_before"] == summary["steps"]
