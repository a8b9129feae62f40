"""The command line's streams: closed, full or empty ones, any encoding, and what may not reach a terminal."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import LEGAL, run


def test_a_plan_is_read_from_the_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"meshwright: 3\n")))
    assert run("check", "-") == 2
    assert "<stdin>:1:13: MW016" in capsys.readouterr().err


def test_a_closed_pipe_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run([sys.executable, "-m", "meshwright.cli", "schema"], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert process.returncode == 0
    assert process.stderr == b""


def test_any_encoding_of_the_terminal_will_do(plan: Path) -> None:
    plan.write_text(LEGAL + "name: 'é→'\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "meshwright.cli", "fmt", "--stdout", str(plan)]
    process = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert "é→" in process.stdout.decode("utf-8")


def test_a_file_cannot_send_escape_sequences_to_the_terminal(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan.write_text('meshwright: 1\n"\\e[31mname": a\n')
    assert run("check", plan) == 2
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert "\\x1b[31mname" in err


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("check {plan} >&-", 0, "legal"),
        ("check {plan} --json >&-", 0, ""),
        ("fmt --stdout {plan} >&-", 0, ""),
        ("check {plan} 2>&-", 0, ""),
        ("check - <&-", 2, "<stdin>:1:1: MW001"),
        ("schema >/dev/full", 2, "MW071"),
        ("fmt --stdout {plan} >/dev/full", 2, "MW071"),
        ("check pipe", 2, "pipe:1:1: MW021"),
        ("diff {plan} other.yaml | true; exit ${{PIPESTATUS[0]}}", 1, ""),
    ],
)
def test_streams_that_are_closed_full_or_empty_are_no_traceback(command: str, code: int, said: str, plan: Path) -> None:
    os.mkfifo(plan.parent / "pipe")
    (plan.parent / "other.yaml").write_text(LEGAL.replace("4", "8"))
    line = f"{sys.executable} -m meshwright.cli {command.format(plan=plan)}"
    process = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=plan.parent, timeout=60)
    assert process.returncode == code
    assert said in process.stderr
    assert "Traceback" not in process.stderr
