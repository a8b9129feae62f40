"""What GShard says of its scaling comes out of the model: the benchmark's figures, without their tables."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = str(Path(__file__).parent.parent / "benchmarks")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of the benchmark."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return lambda name: importlib.import_module(f"gshard.{name}")


def test_every_operator_of_table_4_grows_as_the_paper_says(module: Any) -> None:
    table_4 = module("table_4")
    for operator in table_4.OPERATORS:
        at = {partitions: table_4.predicted(operator, partitions) for partitions in table_4.MACHINES}
        assert list(table_4.differences(operator, at)) == []


def test_operators_communicate_by_the_papers_primitives(module: Any) -> None:
    """On 512 cores: on 128 the compiler gathers 16 MiB by a sum, as it does all that is no larger."""
    short = {"all-reduce": "AR", "all-gather": "AG", "collective-permute": "CP", "all-to-all": "AA"}
    table_4 = module("table_4")
    for operator in table_4.OPERATORS:
        made = {short[kind] for kind in table_4.predicted(operator, 512).bytes_by_kind}
        assert made <= set(operator.by.split(" or "))
        assert bool(made) == bool(operator.by)


def test_a_block_spends_more_on_what_grows_and_as_much_on_the_rest(module: Any) -> None:
    """Figure 8: dense layers cost the same with 2048 experts; all-to-alls about the root of 16 times as much."""
    parts, breakdown = module("parts"), module("breakdown")
    small, large = breakdown.breakdown(128), breakdown.breakdown(2048)
    for part in (parts.FFN, parts.PROJECTIONS, parts.ATTENTION, parts.EXPERTS):
        assert large.predicted_s[part] == pytest.approx(small.predicted_s[part], rel=0.05)
    assert large.predicted_s[parts.EXCHANGE] / small.predicted_s[parts.EXCHANGE] == pytest.approx(3.75, rel=0.1)
    assert 1.5 < large.predicted_s[parts.EINSUMS] / small.predicted_s[parts.EINSUMS] < 2.5
    assert small.share(parts.GATING) < 0.02
    assert large.share(parts.GATING) < 0.1
    assert sum(small.predicted_s.values()) > sum(small.roofline_s.values())


def test_all_to_all_grows_nine_times_and_all_reduce_does_not(module: Any) -> None:
    figure_9 = module("figure_9")
    placed = [figure_9.whole(f"v3:{shape}") for shape in figure_9.SHAPES]
    exchanged, reduced = (figure_9.seconds(kind, 32, placed) for kind in ("all-to-all", "all-reduce"))
    assert exchanged[-1] / exchanged[0] == pytest.approx(9, rel=0.15)
    assert max(reduced) / min(reduced) < 1.25


def test_a_record_tells_what_was_kept_and_asks_only_when_told(module: Any, tmp_path: Path) -> None:
    record = module("record")
    path = tmp_path / "kept.json"
    assert record.Record(ask=False, path=path).get("q", lambda: {"seconds": 1}) is None
    asked = record.Record(ask=True, path=path)
    assert asked.get("q", lambda: {"seconds": 1})["seconds"] == 1
    assert asked.get("q", lambda: {"seconds": 2})["seconds"] == 1
    assert record.Record(ask=False, path=path).get("q", lambda: {"seconds": 3})["seconds"] == 1
