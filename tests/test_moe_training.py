"""The small plans that learn to translate names, and what their benchmark makes of their runs."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import meshwright as mw
import pytest
from meshwright.backends.jax.loading import trace_workload
from meshwright.dsl.checks import check

ROOT = Path(__file__).parent.parent
NAMES = sorted((ROOT / "plans" / "names").glob("*.yaml"))


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("moe_training")


@pytest.mark.parametrize("path", NAMES, ids=lambda path: path.stem)
def test_they_are_legal_canonical_and_say_what_they_are(path: Path) -> None:
    plan = mw.load(path)
    assert check(plan, trace_workload(plan).tensors) == ()
    assert mw.dumps(plan) == path.read_text()
    assert path.read_text().startswith("# ")
    assert plan.name == path.stem


def test_the_dense_model_has_the_mixtures_operations_a_token(benchmark: Any) -> None:
    active, every = benchmark.active_weights(benchmark.plan_of("mixture").settings)
    dense, all_of_it = benchmark.active_weights(benchmark.plan_of("dense").settings)
    assert dense == all_of_it
    assert active == pytest.approx(dense, rel=0.01)
    assert every > 1.9 * active


def a_run(benchmark: Any, losses: list[float]) -> Any:
    records = [{"step": i, "loss": loss} for i, loss in enumerate(losses, start=1)]
    return benchmark.Trained(settings={}, steps=records, held_out={})


def test_a_loss_is_reached_where_the_mean_of_the_steps_before_is_no_higher(benchmark: Any) -> None:
    falling = a_run(benchmark, [100.0 - i for i in range(60)])
    assert falling.loss_at(60) == pytest.approx(sum(range(41, 61)) / 20)
    assert falling.reaches(falling.loss_at(45)) == 45
    assert falling.reaches(falling.loss_at(45) + 0.5) == 45
    assert falling.reaches(0.0) is None


def test_a_run_is_ahead_of_another_on_the_same_batches(benchmark: Any) -> None:
    noise, lead = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0], [1.0, 1.0, 1.0, 2.0, 3.0, 4.0]
    worse, better = a_run(benchmark, noise), a_run(benchmark, [x - y for x, y in zip(noise, lead, strict=True)])
    assert better.ahead_of(worse, 0, 3) == (pytest.approx(1.0), pytest.approx(0.0))
    assert better.ahead_of(worse, 3, 6) == (pytest.approx(3.0), pytest.approx(3**-0.5))


def test_the_run_without_auxiliary_loss_has_none_whatever_is_set(benchmark: Any) -> None:
    given = benchmark.arguments(["--steps", "4", "--set", "aux_weight=0.5", "experts=16"])
    balanced, dense, unbalanced = (plan.settings for plan in benchmark.plans_of(dict(given.set)))
    assert (balanced["aux_weight"], unbalanced["aux_weight"]) == (0.5, 0.0)
    assert balanced["experts"] == unbalanced["experts"] == 16
    assert dense == benchmark.plan_of("dense").settings


@pytest.mark.parametrize("wrong", [["--set", "experts"], ["--set", "=3"], ["--set", "a=["], ["--steps", "3"]])
def test_what_it_cannot_run_is_wrong_usage(benchmark: Any, wrong: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit, match="2"):
        benchmark.arguments(wrong)
    assert "error: argument" in capsys.readouterr().err
