"""What layouts of an MoE layer communicate comes out of the program as Switch's and Tutel's tables have it."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import meshwright as mw
import pytest

needs_libtpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")
BENCHMARKS = str(Path(__file__).parent.parent / "benchmarks")
NAMES = {
    "SWITCH": ("DP", "MP", "DP+MP", "EP+DP", "EP+MP+DP"),
    "TUTEL": ("DP (r=0)", "MP", "DP+MP", "EP", "EP+DP", "EP+MP", "EP+DP+MP (r=2)"),
}
EVERY = [(paper, name) for paper, names in NAMES.items() for name in names]
TOLERANCE = 0.1
"""The TPU compiler pads reduce-scatters to whole tiles."""


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that has the layouts, the papers' formulas and the layer's step."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("switch_layouts")


@pytest.mark.parametrize(("paper", "name"), EVERY)
def test_a_layout_moves_what_its_paper_says(benchmark: Any, paper: str, name: str) -> None:
    layout = getattr(benchmark, paper)[name]
    assert_same(benchmark, predicted(benchmark, layout), layout.expected)


@pytest.mark.parametrize(("paper", "name"), EVERY)
def test_and_so_it_does_at_other_sizes(benchmark: Any, paper: str, name: str) -> None:
    layout = getattr(benchmark, paper)[name]
    layout = replace(layout, sizes=replace(layout.sizes, tokens=1024, model_dim=512, hidden_dim=2048))
    assert_same(benchmark, predicted(benchmark, layout), layout.expected)


def test_every_layout_of_the_papers_is_there(benchmark: Any) -> None:
    assert {paper: tuple(getattr(benchmark, paper)) for paper in NAMES} == NAMES


def test_switch_sums_by_all_reduces_and_exchanges_by_all_to_alls_alone(benchmark: Any) -> None:
    for layout in benchmark.SWITCH.values():
        assert {c.kind for c in estimate(layout).collectives} <= {"all-reduce", "all-to-all"}


@needs_libtpu
@pytest.mark.tpu_compiler
@pytest.mark.parametrize(("paper", "name"), [("SWITCH", "EP+MP+DP"), ("TUTEL", "EP+DP+MP (r=2)")])
def test_the_compiler_makes_a_program_of_the_same_volumes(benchmark: Any, paper: str, name: str) -> None:
    layout = getattr(benchmark, paper)[name]
    step, args = step_of(layout)
    proof = mw.verify(layout.plan(), step, args)
    assert_same(benchmark, benchmark.volume_of(proof.compiled.collectives), layout.expected)


def assert_same(benchmark: Any, volume: dict[tuple[str, str], int], expected: dict[tuple[str, str], int]) -> None:
    moved = {key: num_bytes for key, num_bytes in volume.items() if key[0] != benchmark.SHIFTED}
    assert moved == pytest.approx(expected, rel=TOLERANCE)
    assert sum(volume.values()) - sum(moved.values()) <= TOLERANCE * sum(expected.values())


def predicted(benchmark: Any, layout: Any) -> Any:
    return benchmark.volume_of(estimate(layout).collectives)


def estimate(layout: Any) -> Any:
    return mw.estimate(layout.plan(), *step_of(layout))


def step_of(layout: Any) -> Any:
    return importlib.import_module("switch_layer").step_of(layout.sizes)
