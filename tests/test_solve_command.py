"""Problem files: read strictly, written back, priced independently; the command's exit codes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from choice_problems import price as price_of
from choice_problems import problems
from extent import examples
from hypothesis import given, settings
from meshwright import cli
from meshwright.dsl.errors import PlanError
from meshwright.planner.solver.checker import price
from meshwright.planner.solver.contest_reader import problem_of
from meshwright.planner.solver.contest_writer import document_of
from meshwright.planner.solver.problem import Problem


def small() -> dict[str, Any]:
    return {
        "problem": {
            "name": "small",
            "nodes": {
                "intervals": [[0, 3], [1, 4], [5, 5]],
                "costs": [[5, 1], [2, 4], [7]],
                "usages": [[1, 9], [2, 3], [0]],
            },
            "edges": {"nodes": [[0, 1], [1, 2]], "costs": [[0, 3, 10**18, 1], [6, 0]]},
            "usage_limit": 10,
        }
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(small()))
    return path


def run(*arguments: object) -> int:
    return cli.main(["solve", *map(str, arguments)])


def test_the_answer_is_printed_written_and_priced_alike(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "solution.json"
    assert run(file, "--json", "-o", out) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["status"], answer["cost"], answer["bound"], answer["gap"]) == ("optimal", 19, 19, 0)
    assert answer["reduction"]["before"]["nodes"] == 3
    written = json.loads(out.read_text())
    assert written["choices"] == answer["choices"]
    priced = price(small(), written["choices"])
    assert (priced.cost, priced.peak_usage, priced.wrong) == (19, answer["peak_usage"], ())


def test_people_are_told_in_a_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file) == 0
    assert "optimal: cost 19" in capsys.readouterr().err


def test_compressed_files_are_read(file: Path, tmp_path: Path) -> None:
    packed = tmp_path / "small.json.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert run(packed) == 0


def test_what_cannot_be_is_3(tmp_path: Path) -> None:
    document = small()
    document["problem"]["usage_limit"] = 2
    path = tmp_path / "tight.json"
    path.write_text(json.dumps(document))
    assert run(path) == 3


@pytest.mark.parametrize("arguments", [["--time-limit", "0"], ["--time-limit", "nan"], ["--seed", "-1"]])
def test_bad_options_are_2(file: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file, *arguments) == 2
    assert "MW812" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "MW802"),
        ("{", "MW802"),
        ('{"problem": NaN}', "MW802"),
        ('{"a": 1, "a": 2}', "MW802"),
        ("[" * 10**5, "MW802"),
    ],
)
def test_what_is_no_json_is_2(tmp_path: Path, text: str, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert run(path) == 2
    assert code in capsys.readouterr().err
    assert run(tmp_path / "absent.json") == 2
    assert "MW801" in capsys.readouterr().err


def codes_of(document: Any) -> list[str]:
    with pytest.raises(PlanError) as caught:
        problem_of(document)
    return sorted(p.code for p in caught.value.problems)


def test_every_mistake_is_reported_at_once() -> None:
    document = small()
    body = document["problem"]
    body["nodes"]["costs"][0][1] = 1.5
    body["edges"]["nodes"][0] = [0, 1, 2]
    body["colour"] = "red"
    del body["nodes"]["usages"]
    assert codes_of(document) == ["MW803", "MW804", "MW804", "MW806"]


def test_what_does_not_go_together_is_reported_at_once() -> None:
    document = small()
    body = document["problem"]
    body["nodes"]["intervals"][0] = [3, 1]
    body["nodes"]["usages"][1] = [1]
    body["edges"]["nodes"][0] = [0, 9]
    body["edges"]["costs"][1] = [1, 2, 3]
    assert codes_of(document) == ["MW805", "MW807", "MW808", "MW809"]


@pytest.mark.parametrize("document", [None, [], 3, {}, {"problem": None}, {"problem": {"nodes": [], "edges": 1}}])
def test_anything_else_is_a_problem_too(document: Any) -> None:
    assert codes_of(document)


def test_many_mistakes_are_counted() -> None:
    document = small()
    document["problem"]["nodes"]["costs"] = [["x"] * 50]
    assert codes_of(document).count("MW804") == 20


@settings(max_examples=examples(33, 100), deadline=None)
@given(problems(limited=True))
def test_a_problem_written_and_read_back_is_the_same(problem: Problem) -> None:
    try:
        document = document_of(problem)
    except PlanError:
        return
    again = problem_of(json.loads(json.dumps(document)))
    for name in ("choice_start", "costs", "ends", "table_start", "tables", "piece_nodes", "piece_rows", "usages"):
        assert np.array_equal(getattr(problem, name), getattr(again, name))


@settings(max_examples=examples(33, 100), deadline=None)
@given(problems(limited=True))
def test_the_checker_and_the_definition_agree(problem: Problem) -> None:
    try:
        document = document_of(problem)
    except PlanError:
        return
    choices = [0] * problem.nodes
    checked = price(document, choices)
    expected = price_of(problem, tuple(choices))
    assert bool(checked.wrong) == (expected == np.inf)
    assert checked.wrong or checked.cost == expected


def test_the_checker_refuses_choices_that_are_none() -> None:
    assert price(small(), [0, 0]).wrong
    assert price(small(), [0, 2, 0]).wrong
