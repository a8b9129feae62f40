"""The catalogue's figures of GPUs come out of what is kept of them, and estimates are near to that."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from meshwright.planner.catalogue import catalogue

BENCHMARKS = str(Path(__file__).parent.parent / "benchmarks")
CARDS = [name for name, chip in catalogue().items() if chip.measured]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("gpu_measured")


def test_every_card_of_whose_measure_the_catalogue_tells_is_kept(benchmark: Any) -> None:
    assert benchmark.cards() == CARDS


@pytest.mark.parametrize("card", CARDS)
def test_the_catalogue_has_what_the_programs_of_one_kernel_teach(benchmark: Any, card: str) -> None:
    measured = benchmark.kept(card)
    assert measured.topology == card
    chip = catalogue()[card]
    assert measured.device == chip.jax_kind
    assert benchmark.fitted(measured) == chip.measured.model_dump()
    for said in (measured.date, measured.jax, measured.driver):
        assert said in chip.sources["measured"]


@pytest.mark.parametrize("card", CARDS)
def test_everything_that_is_exported_was_measured(benchmark: Any, card: str) -> None:
    names = [case.name for case in (*benchmark.small(), *benchmark.whole(), *benchmark.unseen())]
    assert sorted(names) == sorted(benchmark.kept(card).programs)


@pytest.mark.parametrize("card", CARDS)
def test_estimates_of_a_card_are_near_what_was_measured_of_it(benchmark: Any, card: str) -> None:
    """Of a few steps, the quickest to estimate: time within a fifth, memory within 15 %; kept figures, no clock."""
    cases = {case.name: case for case in benchmark.whole()}
    some = ("mlp f32", "mlp bf16 gated, 4 layers", "wide mlp f32", "moe layer f32", "convolutions bf16")
    for row in benchmark.rows([cases[name] for name in some], benchmark.kept(card), of_kernels=False):
        assert abs(row.time_error) < 0.2, row
        assert abs(row.memory_error) < 0.15, row
