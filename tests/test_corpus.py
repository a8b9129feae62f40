"""The corpus: every pair of the catalogs once, in a fixed order, and a held-out split without leaks."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import pytest
from meshwright.backends.jax.data.corpus import Corpus, Pair, data_package, read_corpus, split_of
from meshwright.dsl.errors import PlanError


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return read_corpus()


def test_the_catalogs_hold_hundreds_of_thousands_of_pairs_in_scores_of_languages(corpus: Corpus) -> None:
    assert len(corpus.pairs) > 300_000
    assert len(corpus.languages) > 140
    counts = list(corpus.languages.values())
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 100 * counts[-1]


def test_no_pair_is_empty_or_a_header_or_english(corpus: Corpus) -> None:
    assert all(pair.source and pair.target for pair in corpus.pairs)
    assert not any(pair.source.startswith("Project-Id-Version") for pair in corpus.pairs)
    assert "en" not in corpus.languages


def test_the_same_pair_of_texts_comes_once_in_a_language(corpus: Corpus) -> None:
    assert len({pair[:3] for pair in corpus.pairs}) == len(corpus.pairs)
    assert corpus.num_doubles > 0


def test_reading_twice_gives_the_same_pairs_in_the_same_order(corpus: Corpus) -> None:
    assert read_corpus() == corpus


def test_a_country_is_translated_from_several_languages(corpus: Corpus) -> None:
    found = {(pair.language, pair.source) for pair in corpus.pairs if pair.target == "Germany"}
    assert {("de", "Deutschland"), ("fr", "Allemagne"), ("fi", "Saksa")} <= found
    assert {pair.domain for pair in corpus.pairs if pair.target == "Germany"} >= {"iso3166-1"}


def test_no_english_text_is_in_both_splits(corpus: Corpus) -> None:
    train = {pair.target.casefold() for pair in corpus.split("train").pairs}
    held_out = {pair.target.casefold() for pair in corpus.split("held-out").pairs}
    assert not train & held_out


def test_the_splits_are_the_whole_corpus_and_a_fiftieth_is_held_out(corpus: Corpus) -> None:
    train, held_out = corpus.split("train"), corpus.split("held-out")
    assert len(train.pairs) + len(held_out.pairs) == len(corpus.pairs)
    assert 0.01 < len(held_out.pairs) / len(corpus.pairs) < 0.03


def test_the_split_hangs_on_the_english_text_alone() -> None:
    assert split_of("Germany") == split_of(" germany ")
    one, other = Pair("de", "Deutschland", "Germany", "iso3166-1"), Pair("fr", "Allemagne", "Germany", "iso3166-1")
    corpus = Corpus(pairs=(one, other), version="0")
    assert {len(corpus.split(name).pairs) for name in ("train", "held-out")} == {0, 2}


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise ModuleNotFoundError(f"No module named '{name}'")

    stand_in: Callable[[str], None] = refuse
    monkeypatch.setattr(importlib.import_module(data_package.__module__), "import_module", stand_in)
    with pytest.raises(PlanError, match=r"MW501[\s\S]*pip install 'meshwright\[data\]'"):
        read_corpus()
