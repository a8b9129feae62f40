"""Sampling by language: shares by temperature, every pair in turn, the same for the same seed."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from meshwright.backends.jax.data.corpus import Pair
from meshwright.backends.jax.data.sampling import language_shares, sample_pairs, sample_without_repeats

COUNTS = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(1, 10**6), min_size=1, max_size=12)
PAIRS = [
    Pair(language, f"{language}{i}", str(i), "d")
    for language, n in {"big": 900, "small": 100}.items()
    for i in range(n)
]


@given(COUNTS, st.floats(1, 100))
def test_shares_sum_to_one_and_larger_languages_have_no_less(counts: dict[str, int], temperature: float) -> None:
    shares = language_shares(counts, temperature=temperature)
    assert sum(shares.values()) == pytest.approx(1)
    ordered = [shares[name] for name in sorted(counts, key=lambda name: counts[name])]
    assert ordered == sorted(ordered)


@given(COUNTS)
def test_temperature_one_keeps_the_corpus_shares(counts: dict[str, int]) -> None:
    shares = language_shares(counts, temperature=1)
    assert shares == pytest.approx({name: n / sum(counts.values()) for name, n in counts.items()})


@given(COUNTS, st.floats(1, 50))
def test_a_higher_temperature_helps_the_smallest_language(counts: dict[str, int], temperature: float) -> None:
    smallest = min(counts, key=lambda name: counts[name])
    before = language_shares(counts, temperature=temperature)[smallest]
    assert language_shares(counts, temperature=2 * temperature)[smallest] >= before - 1e-12


def test_temperature_five_is_the_fifth_root() -> None:
    shares = language_shares({"big": 32 * 7, "small": 7}, temperature=5)
    assert shares["big"] / shares["small"] == pytest.approx(2)


def test_draws_follow_the_shares() -> None:
    drawn = Counter(PAIRS[i].language for i in islice(sample_pairs(PAIRS, temperature=5, seed=3), 20_000))
    expected = language_shares({"big": 900, "small": 100}, temperature=5)
    assert drawn["small"] / 20_000 == pytest.approx(expected["small"], abs=0.02)


def test_the_same_seed_draws_the_same_and_another_seed_does_not() -> None:
    first, again, other = (list(islice(sample_pairs(PAIRS, temperature=5, seed=s), 500)) for s in (1, 1, 2))
    assert first == again != other


def test_no_pair_of_a_language_comes_twice_before_all_have_come() -> None:
    drawn = (i for i in sample_pairs(PAIRS, temperature=5, seed=0) if PAIRS[i].language == "small")
    first, second = list(islice(drawn, 100)), list(islice(drawn, 100))
    assert sorted(first) == sorted(second) == list(range(900, 1000))
    assert first != second


@given(st.integers(1, 2000), st.integers(0, 5))
def test_a_sample_without_repeats_has_none(at_most: int, seed: int) -> None:
    chosen = sample_without_repeats(PAIRS, temperature=5, seed=seed, at_most=at_most)
    assert len(chosen) == len(set(chosen)) <= at_most
    assert chosen == sorted(chosen)
    assert chosen == sample_without_repeats(PAIRS, temperature=5, seed=seed, at_most=at_most)
