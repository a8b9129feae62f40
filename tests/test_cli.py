"""The command line: exit codes, what goes to which stream, and that nothing a user does ends in a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import LEGAL, run
from meshwright import cli
from meshwright.commands import check, plan_file
from meshwright.dsl.errors import Problem
from meshwright.dsl.plan import Plan
from meshwright.dsl.tensors import Tensor


def give_tensors(monkeypatch: pytest.MonkeyPatch, *tensors: Tensor) -> None:
    def table(plan: Plan, machine: object) -> tuple[list[Tensor], tuple[Problem, ...]]:
        return list(tensors), ()

    monkeypatch.setattr(check, "tensors_of", table)


def tensor(path: str, *shape: int) -> Tensor:
    return Tensor(path=path, shape=shape, dtype="float32", role="argument")


def test_help_is_instant_and_brings_neither_jax_nor_pydantic_nor_rich() -> None:
    heavy = ("jax", "pydantic", "rich", "yaml", "numpy")
    code = (
        "import sys\nfrom meshwright.cli import main\n"
        f"try: main(['--help'])\nfinally: print([m for m in {heavy} if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip().endswith("[]")
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "meshwright", "--help"], capture_output=True, check=True)
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize("arguments", [[], ["chekc"], ["check"], ["check", "a", "b"], ["check", "a", "--jsn"], ["fmt"]])
def test_bad_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().out == ""


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("meshwright ")


def test_a_legal_plan_is_0(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", plan) == 0
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err == f"{plan}: legal, complete\n"


def test_a_plan_with_holes_is_legal_and_not_complete(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan.write_text(LEGAL + "  opt/**: auto\n")
    assert run("check", plan, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["schema_version"], answer["legal"], answer["complete"]) == (1, True, False)
    assert answer["holes"] == ["tensors.opt/**"]


def test_every_problem_is_a_line_with_its_place(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan.write_text("meshwright: 1\nmehs: auto\nremat: ful\n")
    assert run("check", plan) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        f"{plan}:2:1: MW011 'mehs' is not a key of a plan.",
        f"{plan}:3:8: MW015 'remat' must be 'none', 'full', 'dots' or 'auto', not 'ful'.",
    ]
    assert run("check", plan, "--json") == 2
    answer = json.loads(capsys.readouterr().out)
    assert [(p["code"], p["line"], p["column"]) for p in answer["problems"]] == [("MW011", 2, 1), ("MW015", 3, 8)]


@pytest.mark.parametrize("command", ["check", "fmt"])
def test_a_file_that_is_not_there_is_2(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command, tmp_path / "none.yaml") == 2
    assert run(command, tmp_path) == 2
    assert capsys.readouterr().err.count("MW001") == 2


def test_the_models_tensors_are_checked(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan.write_text(LEGAL + "model: some.where:model\n")
    give_tensors(monkeypatch, tensor("params/w", 6), tensor("opt/w", 6))
    assert run("check", plan) == 2
    err = capsys.readouterr().err
    assert f"{plan}:4:3: MW105" in err
    assert f"{plan}:3:1: MW103" in err
    assert err.endswith(f"{plan}: not legal\n")  # nobody can say whether it is complete


def test_a_plan_whose_arguments_do_not_fit_is_1(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan.write_text(LEGAL + "model: some.where:model\nlimits: {hbm: 1 MiB}\n")
    give_tensors(monkeypatch, tensor("params/w", 2**20))
    assert run("check", plan, "--json") == 0
    assert json.loads(capsys.readouterr().out)["argument_bytes"] == {"params": 2**20}
    give_tensors(monkeypatch, tensor("params/w", 2**20 + 4))
    assert run("check", plan, "--json") == 1
    streams = capsys.readouterr()
    assert json.loads(streams.out)["fits"] is False
    assert "MW122" in streams.err
    assert "1,048,580 bytes" in streams.err


def test_a_model_that_cannot_be_loaded_does_not_hide_other_problems(
    plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan.write_text(LEGAL + "  b: M@y\nmodel: some.where:model\ntopology: v99:4\n")
    assert run("check", plan) == 2
    err = capsys.readouterr().err
    assert f"{plan}:5:3: MW106" in err
    assert f"{plan}:6:1: MW311" in err
    assert f"{plan}:7:1: MW202" in err


def test_a_mistake_in_the_writing_does_not_hide_those_in_what_is_said(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give_tensors(monkeypatch, tensor("params/w", 6, 4), tensor("params/b", 6), tensor("opt/b", 6))
    plan.write_text(
        "meshwright: 1\nnmae: a\ntopology: cpu:8\nmesh: {x: 4}\nmodel: some.where:model\nlimits: {hbm: 15}\ntensors:\n"
        "  params/w: M@z N\n  params/b: M@x!pd\n  'pramas/[': M\n  out/b: M@x\n"
    )
    assert run("check", plan) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith(" ")]
    assert [tuple(line.removeprefix(f"{plan}:").split()[:2]) for line in lines] == [
        ("2:1:", "MW011"),
        ("4:1:", "MW210"),
        ("6:15:", "MW025"),
        ("8:3:", "MW106"),
        ("9:16:", "MW047"),
        ("10:11:", "MW055"),
        ("11:3:", "MW101"),
    ]


@pytest.mark.parametrize(
    "mistake",
    [
        "mesh: {x: 3, y: 0}\ntopology: cpu:8",
        "topology: cpu8\nmesh: {x: {size: 4, over: [device]}}",
        "with: {a: 1, a: 2}",
        "tensors: {params/w: M@x}\ntensors: {opt/b: M}",
        "tensors: {params/w: {split: {dim: 0}}, opt/b: M}",
        "tensors: {params/w: M@x, params/w: M, opt/b: M}",
        "mesh: {x: 4}\ntensors: {params/w: M@x M, '[': M}",
    ],
)
def test_a_mistake_makes_nothing_else_seem_wrong(
    mistake: str, plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give_tensors(monkeypatch, tensor("params/w", 4), tensor("opt/b", 4))
    plan.write_text(f"meshwright: 1\nmodel: some.where:model\n{mistake}\n")
    assert run("check", plan) == 2
    err = capsys.readouterr().err
    assert "MW1" not in err
    assert "MW2" not in err


MODELS = """\
import sys
import jax

shape = jax.ShapeDtypeStruct((8, 8), "float32")

def model():
    print("hello")
    return lambda params: params * 2, (shape,)

def leaves(): sys.exit(0)
def gone(): raise BaseException("out of here.")
def pair(): return (shape, 3)
def out(): return lambda out: out, (shape,)
def untraceable(): return lambda params: sys.exit(0), (shape,)
def __getattr__(name): raise RuntimeError(f"no {name}")
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("leaves", "MW313 The model 'mw_models:leaves' fails with these settings: SystemExit: 0."),
        ("gone", "MW313 The model 'mw_models:gone' fails with these settings: BaseException: out of here."),
        ("pair", "MW314 The model 'mw_models:pair' returns a tuple of 2 (ShapeDtypeStruct, int), not"),
        ("out", "MW302 The step has an argument called out,"),
        ("untraceable", "MW315 Tracing the step fails: SystemExit: 0."),
        ("missing", "MW311 The model 'mw_models:missing' cannot be imported: RuntimeError: no missing."),
    ],
)
def test_whatever_a_model_does_is_a_problem_at_its_line(
    name: str, message: str, plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (plan.parent / "mw_models.py").write_text(MODELS)
    monkeypatch.chdir(plan.parent)
    sys.modules.pop("mw_models", None)
    plan.write_text(f"{LEGAL}model: mw_models:{name}\n")
    assert run("check", plan) == 2
    assert f"{plan}:5:1: {message}" in capsys.readouterr().err


def test_what_a_model_prints_does_not_mix_with_the_answer(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (plan.parent / "mw_models.py").write_text(MODELS)
    monkeypatch.chdir(plan.parent)
    sys.modules.pop("mw_models", None)
    plan.write_text(LEGAL.replace("M@x", "M@x N") + "model: mw_models:model\n")
    assert run("check", plan, "--json") == 0
    streams = capsys.readouterr()
    assert json.loads(streams.out)["argument_bytes"] == {"params": 64}
    assert "hello" in streams.err


def test_a_wrong_setting_of_a_model_stands_where_it_was_set(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan.write_text(
        "meshwright: 1\nmodel: meshwright.backends.jax.models:gshard\nwith:\n  layers: 3\n  expert: 8\n  seed: '1'\n"
    )
    assert run("check", plan) == 2
    err = capsys.readouterr().err
    assert f"{plan}:5:3: MW601" in err
    assert f"{plan}:6:3: MW602" in err
    plan.write_text("meshwright: 1\nmodel: meshwright.backends.jax.models:gshard\nwith:\n  layers: 3\n")
    assert run("check", plan) == 2
    assert f"{plan}:4:3: MW605" in capsys.readouterr().err


def test_check_refuses_what_could_not_be_applied(plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (plan.parent / "mw_models.py").write_text(MODELS)
    monkeypatch.chdir(plan.parent)
    sys.modules.pop("mw_models", None)
    plan.write_text(
        "meshwright: 1\nmodel: mw_models:model\nmesh: {x: 4}\nremat: full\n"
        "tensors:\n  params: {shard: {device_assignment: [[3, 2, 1, 0]]}}\n"
        "result: {status: optimal, fingerprint: {arguments: {weights: {tensors: 1, elements: 2, digest: a}}}}\n"
    )
    assert run("check", plan) == 2
    err = capsys.readouterr().err
    assert [line.split()[1] for line in err.splitlines() if line.startswith(f"{plan}:") and "MW" in line] == [
        "MW304",
        "MW224",
        "MW307",
    ]


def test_fmt_writes_in_place_and_then_has_nothing_to_do(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan.write_text("mesh: {x:   4} # four\nmeshwright: 1\n")
    assert run("fmt", "--check", plan) == 1
    assert "not canonical" in capsys.readouterr().err
    assert run("fmt", "--stdout", plan) == 0
    assert capsys.readouterr().out == "meshwright: 1\nmesh: {x: 4}  # four\n"
    assert run("fmt", plan) == 0
    assert plan.read_text() == "meshwright: 1\nmesh: {x: 4}  # four\n"
    assert run("fmt", "--check", plan) == 0


def test_fmt_goes_on_after_a_file_that_is_no_plan(plan: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("plan")
    plan.write_text("mesh:   auto\nmeshwright: 1\n")
    assert run("fmt", bad, plan) == 2
    assert plan.read_text() == "meshwright: 1\nmesh: auto\n"
    assert bad.read_text() == "plan"


def test_diff_is_1_where_plans_differ(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(LEGAL.replace("4", "8"))
    assert run("diff", plan, plan) == 0
    assert run("diff", plan, other) == 1
    assert capsys.readouterr().out == "~ mesh.x: 4 -> 8\n"
    assert run("diff", plan, other, "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["changes"] == [{"kind": "changed", "key": "mesh.x", "before": "4", "after": "8"}]
    assert run("diff", "-", "-") == 2


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("schema") == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Meshwright plan"


def test_control_c_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(path: str) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(plan_file, "text", interrupted)
    assert run("check", "plan.yaml") == 130
    assert capsys.readouterr().err == "meshwright: interrupted\n"


def test_a_narrow_screen_hides_no_figure(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    plan.write_text(LEGAL + "model: some.where:model\n")
    give_tensors(monkeypatch, tensor("params/w", 2**30))
    assert run("check", plan) == 0
    assert "1,073,741,824" in capsys.readouterr().err


def test_a_model_told_its_sizes_one_by_one_is_the_member_of_its_family(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = (Path(__file__).parent.parent / "plans" / "gshard-600b.yaml").read_text()
    by_sizes = tmp_path / "sizes.yaml"
    by_sizes.write_text(shipped.replace("{member: moe-2048e-36l}", "{experts: 2048, layers: 36}"))
    assert by_sizes.read_text() != shipped
    assert run("check", by_sizes) == 0
    assert "legal, complete, its arguments fit" in capsys.readouterr().err


def test_a_step_that_cannot_be_traced_is_a_problem_of_every_command(tmp_path: Path) -> None:
    (tmp_path / "mistaken.py").write_text(
        "import jax\n"
        "def model():\n"
        "    shape = jax.ShapeDtypeStruct((8, 8), 'float32')\n"
        "    return lambda params, batch: params @ batch['nope'], (shape, {'x': shape})\n"
    )
    text = "meshwright: 1\nmodel: mistaken:model\ntopology: cpu:8\nmesh: {a: 8}\ntensors: {'**': replicate}\n"
    (tmp_path / "plan.yaml").write_text(text)
    for command in ("check", "verify"):
        line = [sys.executable, "-m", "meshwright.cli", command, "plan.yaml"]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "plan.yaml:2:1: MW315" in done.stderr
        assert "Traceback" not in done.stderr
