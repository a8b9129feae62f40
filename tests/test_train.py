"""Running a plan: the loss falls, every record is kept, and what cannot run says why."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from meshwright.backends.jax.training.interrupt import ASKED, Interrupt
from meshwright.backends.jax.training.metrics import RunSummary, plain
from meshwright.backends.jax.training.runnable import compile_step
from meshwright.backends.jax.training.train import run
from meshwright.cli import main
from meshwright.dsl.errors import PlanError
from meshwright.dsl.plan import Axis, Dim, Dims, Mesh, Plan, Replicate, Rest, Rule, Topology
from meshwright.dsl.reader import load

TESTS = Path(__file__).parent


@pytest.fixture(autouse=True)
def _toy_is_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TESTS))


def toy_plan(kind: str = "cpu", dims: tuple[int, ...] = (8,), model: str = "toy:workload", **parts: str) -> Plan:
    split = Dims(dims=(Dim(name="B", axes=("data",)), Rest()))
    return Plan(
        name="toy",
        model=model,
        settings=parts,
        topology=Topology(kind=kind, dims=dims),
        mesh=Mesh(axes=(Axis(name="data", size=8),)),
        rules=(Rule(pattern="batch/**", assignment=split), Rule(pattern="**", assignment=Replicate())),
    )


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def losses(path: Path, kind: str = "step") -> list[float]:
    return [record["loss"] for record in records(path) if record["kind"] == kind]


def test_the_loss_falls_on_training_and_on_held_out_batches() -> None:
    summary = run(toy_plan(), steps=40)
    assert summary.status == "finished"
    assert summary.exit_code == 0
    assert summary.first_loss is not None
    assert summary.last_loss is not None
    assert summary.last_loss < summary.first_loss / 3
    assert summary.held_out_loss_before is not None
    assert summary.held_out_loss_after is not None
    assert summary.held_out_loss_after < summary.held_out_loss_before / 3


def test_every_line_of_the_metrics_file_is_a_record(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    summary = run(toy_plan(), steps=6, seed=5, metrics_path=path, eval_every=2)
    kinds = [record["kind"] for record in records(path)]
    one_round = ["step", "step", "held-out"]
    assert kinds == ["run", "held-out", *one_round * 3, "summary"]
    first, *_, last = records(path)
    assert (first["seed"], first["mesh"], first["devices"]["count"]) == (5, {"data": 8}, 8)
    assert {"jax", "meshwright"} <= set(first["versions"])
    assert last == {"kind": "summary", **summary.as_json()}
    step = next(record for record in records(path) if record["kind"] == "step")
    assert (step["step"], step["tokens"], step["expert_load"]) == (1, 32, [0, 1, 2, 3])
    assert step["tokens_per_s"] == pytest.approx(32 / step["step_time_s"])


def test_held_out_loss_is_taken_once_at_the_end_where_the_last_step_is_due_anyway(tmp_path: Path) -> None:
    run(toy_plan(), steps=4, metrics_path=tmp_path / "run.jsonl", eval_every=4)
    assert len(losses(tmp_path / "run.jsonl", "held-out")) == 2


def test_the_same_seed_gives_the_same_losses_and_another_does_not(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    for path, seed in zip(paths, (1, 1, 2), strict=True):
        run(toy_plan(), steps=5, seed=seed, metrics_path=path)
    first, again, other = map(losses, paths)
    assert first == again
    assert first != other


def test_the_layout_does_not_change_the_losses(tmp_path: Path) -> None:
    whole = Plan(
        model="toy:workload",
        mesh=Mesh(axes=(Axis(name="data", size=8),)),
        topology=Topology(kind="cpu", dims=(8,)),
        rules=(Rule(pattern="**", assignment=Replicate()),),
    )
    run(toy_plan(), steps=5, metrics_path=tmp_path / "split")
    run(whole, steps=5, metrics_path=tmp_path / "whole")
    assert losses(tmp_path / "split") == pytest.approx(losses(tmp_path / "whole"), rel=1e-5)


def test_an_init_that_cannot_be_traced_gives_the_same_run(tmp_path: Path) -> None:
    run(toy_plan(), steps=3, metrics_path=tmp_path / "a")
    run(toy_plan(init="untraceable_init"), steps=3, metrics_path=tmp_path / "b")
    assert losses(tmp_path / "a") == losses(tmp_path / "b")


def test_a_workload_without_evaluate_has_no_held_out_loss(tmp_path: Path) -> None:
    summary = run(toy_plan(evaluate="none"), steps=2, metrics_path=tmp_path / "run.jsonl")
    assert summary.held_out_loss_before is summary.held_out_loss_after is None
    assert losses(tmp_path / "run.jsonl", "held-out") == []


def test_a_loss_that_is_not_a_number_ends_the_run_with_a_negative_answer(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    summary = run(toy_plan(step="diverging_step"), steps=40, metrics_path=path)
    assert (summary.status, summary.exit_code, summary.steps) == ("diverged", 1, 4)
    assert math.isnan(summary.last_loss or 0)
    *_, step, end = records(path)
    assert step["loss"] == end["last_loss"] == "nan"


@pytest.mark.parametrize(
    ("plan", "code", "words"),
    [
        (toy_plan("v3", (32, 32)), "MW507", "v3:32x32 .2048 devices.* 8 x cpu"),
        (toy_plan("cpu", (16,)), "MW507", "cpu:16 .16 devices.* 8 x cpu"),
        (toy_plan(model="toy:pair"), "MW508", "init.*batches"),
        (toy_plan(batches="none"), "MW508", "batches"),
        (toy_plan(step="loss_only_step"), "MW509", "3 arguments and returns 1"),
        (toy_plan(step="bare_loss_step"), "MW509", "loss"),
        (toy_plan(step="nested_loss_step"), "MW509", "its loss is a dict, not a scalar"),
        (toy_plan(step="widening_step"), "MW509", r"0/w is float32\[16,16\] instead of float32\[8,16\]"),
        (toy_plan(batches="three_batches"), "MW513", "after 3 train batches; 5 are"),
        (toy_plan(batches="no_held_out_batches"), "MW513", "after 0 held-out batches"),
        (toy_plan(evaluate="evaluate_without_loss"), "MW514", "has no 'loss'"),
        (toy_plan(step="failing_step"), "MW315", "dot_general"),
        (toy_plan(init="failing_init"), "MW515", "'init' of toy:workload fails: FileNotFoundError: no weights.bin"),
        (toy_plan(batches="failing_batches"), "MW515", "'batches' of toy:workload fails: FileNotFoundError"),
        (toy_plan(batches="float64_batches"), "MW510", r"x is float64\[32,8\] instead of float32\[32,8\]"),
    ],
)
def test_what_cannot_run_says_why(plan: Plan, code: str, words: str) -> None:
    with pytest.raises(PlanError, match=words) as caught:
        run(plan, steps=5)
    assert [problem.code for problem in caught.value.problems] == [code]
    assert caught.value.problems[0].remedy


def test_a_step_need_not_use_all_that_it_is_given() -> None:
    assert run(toy_plan(step="indifferent_step"), steps=2).status == "finished"


def test_a_finite_set_of_batches_may_last_exactly_as_long_as_the_run() -> None:
    assert run(toy_plan(batches="three_batches"), steps=3).steps == 3


def test_a_workload_that_cannot_run_shows_how_to_return_one_that_can() -> None:
    with pytest.raises(PlanError, match=r"mw\.Workload\(step, args, init=lambda seed"):
        run(toy_plan(model="toy:pair"), steps=1)


def test_options_out_of_range_are_told_together() -> None:
    with pytest.raises(PlanError, match=r"--steps is 0[\s\S]*--eval-every is -1"):
        run(toy_plan(), steps=0, eval_every=-1)


def test_a_seed_that_jax_cannot_tell_from_another_is_refused() -> None:
    with pytest.raises(PlanError, match=r"MW512 --seed is 4294967296[\s\S]*from 0 to 4294967295"):
        run(toy_plan(), steps=1, seed=2**32)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_disk_that_fills_up_is_told_as_a_problem() -> None:
    with pytest.raises(PlanError, match=r"MW511 .*No space left"):
        run(toy_plan(), steps=1, metrics_path="/dev/full")


def test_a_metrics_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"MW511 .*none/run.jsonl"):
        run(toy_plan(), steps=1, metrics_path=tmp_path / "none" / "run.jsonl")


def test_numbers_that_json_lacks_become_words() -> None:
    assert plain({"a": float("nan"), "b": (1.0, float("-inf"))}) == {"a": "nan", "b": [1.0, "-inf"]}


def test_a_summary_is_json_and_knows_its_exit_code() -> None:
    summary = RunSummary(
        plan="p", status="interrupted", steps=3, seed=0, num_devices=8, compile_time_s=1, wall_time_s=2
    )
    assert json.loads(json.dumps(summary.as_json()))["status"] == "interrupted"
    assert summary.exit_code == 130


def test_a_small_moe_transformer_learns_to_translate_real_text(
    tmp_path: Path, learnt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESHWRIGHT_CACHE", str(learnt))
    plan = load(TESTS.parent / "plans" / "gshard-tiny.yaml")
    summary = run(plan, steps=6, metrics_path=tmp_path / "run.jsonl")
    assert summary.first_loss is not None
    assert summary.last_loss is not None
    assert summary.last_loss < summary.first_loss - 1
    assert (summary.held_out_loss_after or 99) < (summary.held_out_loss_before or 0) - 1
    assert summary.inputs["source_efficiency"] > 0.9
    assert all(0 <= record["dropped"] < 1 for record in records(tmp_path / "run.jsonl") if record["kind"] == "step")


PLAN_TEXT = """\
meshwright: 1
name: toy
model: toy:workload
topology: cpu:8
mesh: {data: 8}
tensors:
  batch/**: B@data ...
  "**": replicate
"""


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(PLAN_TEXT)
    return path


def test_the_command_prints_a_summary_as_json(
    plan_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XLA_FLAGS", os.environ["XLA_FLAGS"])
    assert main(["run", str(plan_file), "--steps", "3", "--seed", "4", "--json"]) == 0
    told = capsys.readouterr()
    summary = json.loads(told.out)
    assert (summary["command"], summary["schema_version"], summary["steps"], summary["seed"]) == ("run", 1, 3, 4)
    assert f"meshwright verify {plan_file}" in told.err


def test_the_command_makes_as_many_devices_as_the_plan_says(plan_file: Path) -> None:
    plan_file.write_text(PLAN_TEXT.replace("cpu:8", "cpu:4").replace("data: 8", "data: 4"))
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-m", "meshwright.cli", "run", str(plan_file), "--steps", "2", "--json"]
    done = subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["num_devices"] == 4


def has_lines(path: Path, count: int) -> bool:
    return path.exists() and path.read_text().count("\n") >= count


def endless_run(plan_file: Path, path: Path) -> subprocess.Popen[str]:
    """A run by the command, once it has taken some steps."""
    command = [sys.executable, "-m", "meshwright.cli", "run", str(plan_file), "--steps", "1000000000", "--json"]
    process = subprocess.Popen([*command, "--metrics", str(path)], cwd=TESTS, stdout=PIPE, stderr=PIPE, text=True)
    deadline_s = time.monotonic() + 60
    while process.poll() is None and not has_lines(path, 20) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return process


def test_ctrl_c_finishes_the_step_and_keeps_every_record(plan_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    process = endless_run(plan_file, path)
    process.send_signal(signal.SIGINT)
    told, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Ctrl-C again kills" in said
    *steps, summary = records(path)[2:]
    assert json.loads(told)["steps"] == len(steps)
    assert [record["step"] for record in steps] == list(range(1, len(steps) + 1))
    assert (summary["status"], summary["steps"]) == ("interrupted", len(steps))


def test_the_first_ctrl_c_asks_and_then_the_old_handler_is_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupt() as interrupt:
        assert not interrupt.asked
        signal.raise_signal(signal.SIGINT)
        deadline_s = time.monotonic() + 10
        while not interrupt.asked and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert interrupt.asked
    assert signal.getsignal(signal.SIGINT) is before


def test_a_programs_own_handler_hears_the_second_ctrl_c() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        with Interrupt() as interrupt:
            signal.raise_signal(signal.SIGINT)
            assert interrupt.asked
            assert heard == []
            signal.raise_signal(signal.SIGINT)
            assert heard == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


COMPILING = """\
import hashlib
from meshwright.backends.jax.training.interrupt import ASKED, Interrupt
with Interrupt():
    print("compiling", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""


@pytest.mark.parametrize("inherited", [signal.SIG_DFL, signal.SIG_IGN], ids=["foreground", "background"])
def test_ctrl_c_is_heard_at_once_where_python_does_not_run(inherited: signal.Handlers) -> None:
    """A long call of C, which lets other threads run, stands for a compilation. A script's jobs may ignore SIGINT."""
    inherit = f"import signal; signal.signal(signal.SIGINT, signal.{inherited.name})\n"
    inherit += "if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:\n"
    inherit += "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    with subprocess.Popen([sys.executable, "-c", inherit + COMPILING], stdout=PIPE, stderr=PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert process.stderr.readline() + process.stderr.readline() == ASKED
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == 130
        finally:
            process.kill()


def test_ctrl_c_before_the_first_step_reads_no_data(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def compile_and_be_interrupted(*args: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        while "Ctrl-C" not in capfd.readouterr().err:
            time.sleep(0.01)
        return compile_step(*args)

    monkeypatch.setattr("meshwright.backends.jax.training.train.compile_step", compile_and_be_interrupted)
    summary = run(toy_plan(batches="three_batches"), steps=5)
    assert (summary.status, summary.steps, summary.held_out_loss_before) == ("interrupted", 0, None)
