"""Which language the next training pair is from: temperature sampling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from .corpus import Pair

TRAIN_TEMPERATURE = 5.0
PROPORTIONAL = 1.0
DRAWS_AT_ONCE = 4096


def language_shares(counts: Mapping[str, int], *, temperature: float) -> dict[str, float]:
    """The probability of each language: p_l proportional to (n_l / N) ^ (1 / T).

    T = 1 keeps the corpus' own shares, a large T approaches equal ones; T = 5 is what the line of work that GShard
    continues found best. Source: Arivazhagan et al. 2019 (arXiv:1907.05019, GShard's reference 14), on data sampling.
    """
    total = sum(counts.values())
    weights = {language: (count / total) ** (1 / temperature) for language, count in counts.items()}
    norm = sum(weights.values())
    return {language: weight / norm for language, weight in weights.items()}


def sample_pairs(pairs: Sequence[Pair], *, temperature: float, seed: int) -> Iterator[int]:
    """Positions in ``pairs`` without end, the same ones for the same seed.

    Each draw takes a language by its share, then that language's next pair; a language's pairs come in a new random
    order each time round, and none comes twice before all have come.
    """
    members = _by_language(pairs)
    shares = language_shares({name: len(found) for name, found in members.items()}, temperature=temperature)
    root = np.random.SeedSequence(seed)
    draws, *own = (np.random.default_rng(child) for child in root.spawn(1 + len(members)))
    decks = [_endless(found, rng) for found, rng in zip(members.values(), own, strict=True)]
    probabilities = np.array(list(shares.values()))
    while True:
        for language in draws.choice(len(decks), size=DRAWS_AT_ONCE, p=probabilities).tolist():
            yield next(decks[language])


def sample_without_repeats(pairs: Sequence[Pair], *, temperature: float, seed: int, at_most: int) -> list[int]:
    """At most ``at_most`` positions in ``pairs``, ascending, none twice: each language's share by temperature, or all
    that it has where that is less.
    """
    members = _by_language(pairs)
    shares = language_shares({name: len(found) for name, found in members.items()}, temperature=temperature)
    rng = np.random.default_rng(seed)
    quotas = {name: min(len(found), max(1, int(shares[name] * at_most))) for name, found in members.items()}
    chosen = [rng.choice(found, size=quotas[name], replace=False) for name, found in members.items()]
    return sorted(np.concatenate(chosen).tolist()[:at_most])


def _by_language(pairs: Sequence[Pair]) -> dict[str, NDArray[np.int64]]:
    members: dict[str, list[int]] = {}
    for position, pair in enumerate(pairs):
        members.setdefault(pair.language, []).append(position)
    return {name: np.array(members[name], dtype=np.int64) for name in sorted(members)}


def _endless(members: NDArray[np.int64], rng: np.random.Generator) -> Iterator[int]:
    while True:
        yield from rng.permutation(members).tolist()
