"""Packing: nothing lost, nothing split, nothing over the edge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from meshwright.backends.jax.data.batches import TranslationBatches, translation_batches
from meshwright.backends.jax.data.corpus import Corpus, Pair
from meshwright.backends.jax.data.packing import Batch, PackingStats, TokenPair, pack
from meshwright.backends.jax.data.vocabulary import load_vocabulary
from meshwright.dsl.errors import PlanError

TOKENS = st.lists(st.integers(1, 99), min_size=1, max_size=14).map(tuple)
PAIRS = st.lists(st.tuples(TOKENS, TOKENS), max_size=80)
SHAPES = {"batch": st.integers(1, 5), "length": st.integers(1, 20)}


def packed(pairs: Sequence[TokenPair], batch: int, length: int) -> tuple[list[Batch], PackingStats]:
    stats = PackingStats()
    return list(pack(pairs, batch=batch, length=length, stats=stats)), stats


def unpacked(batches: list[Batch]) -> list[TokenPair]:
    return [pair for batch in batches for row in range(len(batch["source"])) for pair in row_pairs(batch, row)]


def row_pairs(batch: Batch, row: int) -> list[TokenPair]:
    last = int(batch["source_segments"][row].max())
    return [
        (segment_tokens(batch, "source", row, s), segment_tokens(batch, "target", row, s)) for s in range(1, last + 1)
    ]


def segment_tokens(batch: Batch, side: str, row: int, segment: int) -> tuple[int, ...]:
    return tuple(batch[side][row][batch[f"{side}_segments"][row] == segment].tolist())


@given(pairs=PAIRS, **SHAPES)
def test_every_pair_that_fits_is_packed_once_with_its_tokens_in_order(
    pairs: list[TokenPair], batch: int, length: int
) -> None:
    batches, stats = packed(pairs, batch, length)
    fitting = [pair for pair in pairs if max(map(len, pair)) <= length]
    assert Counter(unpacked(batches)) == Counter(fitting)
    assert stats.pairs == len(fitting)
    assert stats.too_long_pairs == len(pairs) - len(fitting)


@given(pairs=PAIRS, **SHAPES)
def test_every_array_is_a_full_batch_of_int32(pairs: list[TokenPair], batch: int, length: int) -> None:
    for arrays in packed(pairs, batch, length)[0]:
        assert {(array.shape, array.dtype) for array in arrays.values()} == {((batch, length), np.dtype(np.int32))}


@given(pairs=PAIRS, **SHAPES)
def test_positions_count_from_zero_in_each_segment_and_padding_is_zero(
    pairs: list[TokenPair], batch: int, length: int
) -> None:
    for arrays in packed(pairs, batch, length)[0]:
        for side in ("source", "target"):
            segments, positions = arrays[f"{side}_segments"], arrays[f"{side}_positions"]
            starts = np.diff(segments, axis=1, prepend=-1) != 0
            expected = np.where(starts | (segments == 0), 0, np.roll(positions, 1, axis=1) + 1)
            assert np.array_equal(positions, expected)
            assert not arrays[side][segments == 0].any()


@given(pairs=PAIRS, **SHAPES)
def test_segments_are_contiguous_and_padding_comes_last(pairs: list[TokenPair], batch: int, length: int) -> None:
    for arrays in packed(pairs, batch, length)[0]:
        for row in np.concatenate([arrays["source_segments"], arrays["target_segments"]]):
            filled = row[row > 0]
            assert np.array_equal(row[: len(filled)], filled)
            assert filled.tolist() == sorted(filled.tolist())
            assert set(filled.tolist()) == set(range(1, len(set(filled.tolist())) + 1))


@given(pairs=PAIRS, **SHAPES)
def test_efficiency_is_the_share_of_places_that_hold_a_token(pairs: list[TokenPair], batch: int, length: int) -> None:
    batches, stats = packed(pairs, batch, length)
    if batches:
        held = np.mean([np.mean(arrays["source_segments"] > 0) for arrays in batches])
        assert stats.source_efficiency == pytest.approx(float(held))


def test_short_pairs_fill_rows_nearly_whole() -> None:
    rng = np.random.default_rng(0)
    pairs = [((1,) * int(n), (1,) * int(n)) for n in rng.integers(3, 12, size=5000)]
    _, stats = packed(pairs, 8, 64)
    assert stats.source_efficiency > 0.95


NAMES = tuple(Pair(f"l{i % 3}", f"Ort Nummer {i}", f"place number {i}", "names") for i in range(3000))


def batches_of(corpus: Corpus, folder: Path, seed: int = 0, length: int = 32) -> TranslationBatches:
    source = load_vocabulary(corpus, side="source", pieces=80, folder=folder)
    target = load_vocabulary(corpus, side="target", pieces=80, folder=folder)
    return TranslationBatches(corpus, source=source, target=target, batch=4, length=length, seed=seed, temperature=5)


def test_the_same_seed_gives_the_same_batches(tmp_path: Path) -> None:
    corpus = Corpus(pairs=NAMES, version="1")
    first, again, other = (next(batches_of(corpus, tmp_path, seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["source"], other["source"])


def test_batches_go_on_past_the_end_of_the_corpus(tmp_path: Path) -> None:
    batches = batches_of(Corpus(pairs=NAMES[:50], version="1"), tmp_path)
    assert len(list(islice(batches, 20))) == 20
    assert batches.report()["pairs"] > 50


def test_a_row_says_the_same_on_both_sides(tmp_path: Path) -> None:
    batches = batches_of(Corpus(pairs=NAMES, version="1"), tmp_path)
    for source, target in row_pairs(next(batches), 0):
        assert batches.source.decode(source).split()[-1] == batches.target.decode(target).split()[-1]


def test_a_length_that_no_pair_fits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"MW505 .* 2 tokens"):
        next(batches_of(Corpus(pairs=NAMES, version="1"), tmp_path, length=2))


def test_a_split_that_there_is_not_is_refused() -> None:
    with pytest.raises(PlanError, match=r"MW506 .*'test'[\s\S]*held-out"):
        translation_batches(batch=1, length=8, source_vocab=64, target_vocab=64, split="test")


def test_real_text_comes_in_batches_from_both_splits(learnt: Path) -> None:
    def make(split: str) -> TranslationBatches:
        return translation_batches(
            batch=4, length=48, source_vocab=2000, target_vocab=1000, seed=0, split=split, folder=learnt
        )

    train, held_out = make("train"), make("held-out")
    assert next(train)["source"].max() < 2000
    assert next(held_out)["target"].max() < 1000
    assert train.report()["languages"] > held_out.report()["languages"] > 100
