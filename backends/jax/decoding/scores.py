"""How good translations of held-out text are: BLEU and chrF (sacrebleu) by language, from rich to poor.

As the papers show their systems (GShard, Figure 6): languages ordered by how much text there is to learn from, and
beside each score its difference to a baseline's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ....dsl.errors import PlanError, problem
from ..data.corpus import Corpus, Pair, data_package, package_version
from ..workload import PyTree
from .texts import Translated, Translator

SEED = 0
EXAMPLES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageScore:
    """One language: the pairs to learn from, the held-out pairs that were scored, corpus BLEU and chrF of these, and
    what their sources would score if nothing were translated: names are often the same in two languages.
    """

    language: str
    train_pairs: int
    pairs: int
    bleu: float
    chrf: float
    copied_bleu: float
    copied_chrf: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Corpus BLEU and chrF over all pairs; by language, the richest first; some translations to look at.

    ``too_long_pairs`` have a source longer than a row: they are not scored.
    """

    bleu: float
    chrf: float
    copied_bleu: float
    copied_chrf: float
    pairs: int
    too_long_pairs: int
    languages: tuple[LanguageScore, ...]
    examples: tuple[Mapping[str, str], ...]
    sacrebleu: str

    def as_json(self) -> dict[str, Any]:
        """The scores as plain JSON values."""
        return asdict(self)


def score(
    translator: Translator,
    state: Sequence[PyTree],
    corpus: Corpus,
    *,
    pairs_a_language: int,
    stop: Callable[[], bool] = lambda: False,
) -> Scores | None:
    """Translates held-out pairs, at most so many a language, and scores them; None where ``stop`` says so before.

    The same corpus and number give the same pairs. Raises ``PlanError`` (MW501) without sacrebleu.
    """
    data_package("sacrebleu")
    chosen = sample(corpus.split("held-out"), pairs_a_language)
    pairs = [pair for pair in chosen if translator.fits(pair.source)]
    told: dict[int, Translated] = {}
    for found in translator.batches(state, [pair.source for pair in pairs]):
        told |= found
        if stop():
            return None
    texts = [told[at].text for at in range(len(pairs))]
    return scores_of(pairs, texts, corpus.split("train").languages, too_long_pairs=len(chosen) - len(pairs))


def sample(corpus: Corpus, pairs_a_language: int) -> list[Pair]:
    """At most so many pairs of each language, drawn at random and always the same."""
    members: dict[str, list[Pair]] = {}
    for pair in corpus.pairs:
        members.setdefault(pair.language, []).append(pair)
    rng = np.random.default_rng(SEED)
    drawn = (rng.permutation(len(pairs))[:pairs_a_language] for pairs in members.values())
    return [pairs[at] for pairs, order in zip(members.values(), drawn, strict=True) for at in sorted(order)]


def scores_of(
    pairs: Sequence[Pair], texts: Sequence[str], train_pairs: Mapping[str, int], *, too_long_pairs: int = 0
) -> Scores:
    """The scores of ``texts``, one translation a pair."""
    by_language: dict[str, list[int]] = {}
    for at, pair in enumerate(pairs):
        by_language.setdefault(pair.language, []).append(at)
    richest = sorted(by_language, key=lambda name: (-train_pairs.get(name, 0), name))
    sources = [pair.source for pair in pairs]
    languages = []
    for name in richest:
        places = by_language[name]
        (bleu, chrf), (copied_bleu, copied_chrf) = (_bleu_and_chrf(pairs, said, places) for said in (texts, sources))
        languages.append(
            LanguageScore(
                language=name,
                train_pairs=train_pairs.get(name, 0),
                pairs=len(places),
                bleu=bleu,
                chrf=chrf,
                copied_bleu=copied_bleu,
                copied_chrf=copied_chrf,
            )
        )
    everywhere = range(len(pairs))
    (bleu, chrf), (copied_bleu, copied_chrf) = (_bleu_and_chrf(pairs, said, everywhere) for said in (texts, sources))
    shown = [by_language[name][0] for name in richest[:: max(1, len(richest) // EXAMPLES)]][:EXAMPLES]
    return Scores(
        bleu=bleu,
        chrf=chrf,
        copied_bleu=copied_bleu,
        copied_chrf=copied_chrf,
        pairs=len(pairs),
        too_long_pairs=too_long_pairs,
        languages=tuple(languages),
        examples=tuple(_example(pairs[at], texts[at]) for at in shown),
        sacrebleu=package_version("sacrebleu"),
    )


def kept_scores(path: str | Path) -> dict[str, Any]:
    """The last scores that a run wrote to its metrics file. Raises ``PlanError`` (MW526) where there are none."""
    try:
        records = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
        found = [record for record in records if record.get("kind") == "scores"]
    except (OSError, ValueError, AttributeError) as error:
        reason = getattr(error, "strerror", None) or "it is no metrics file"
        raise PlanError([problem("MW526", path=path, reason=reason)]) from error
    if not found:
        raise PlanError([problem("MW526", path=path, reason="there are none in it")])
    last: dict[str, Any] = found[-1]
    return last


def _bleu_and_chrf(pairs: Sequence[Pair], texts: Sequence[str], places: Sequence[int]) -> tuple[float, float]:
    sacrebleu = data_package("sacrebleu")
    if not places:
        return 0.0, 0.0
    told, wanted = [texts[at] for at in places], [[pairs[at].target for at in places]]
    return float(sacrebleu.corpus_bleu(told, wanted).score), float(sacrebleu.corpus_chrf(told, wanted).score)


def _example(pair: Pair, text: str) -> dict[str, str]:
    return {"language": pair.language, "source": pair.source, "translation": text, "reference": pair.target}
