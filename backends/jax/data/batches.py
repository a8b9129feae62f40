"""Batches of translations into English, ready for a training step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from ....dsl.errors import PlanError, problem
from .corpus import SPLITS, Corpus, read_corpus
from .packing import Batch, PackingStats, TokenPair, pack
from .sampling import PROPORTIONAL, TRAIN_TEMPERATURE, sample_pairs
from .vocabulary import Vocabulary, load_vocabulary

PAIRS_AT_ONCE = 512


class TranslationBatches(Iterator[Batch]):
    """Packed batches without end (see ``packing.pack`` for the arrays), the same ones for the same seed.

    ``source`` and ``target`` are the vocabularies, ``report()`` what has been packed so far.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        source: Vocabulary,
        target: Vocabulary,
        batch: int,
        length: int,
        seed: int,
        temperature: float,
    ):
        self.source = source
        self.target = target
        self.stats = PackingStats()
        self._corpus = corpus
        self._order = sample_pairs(corpus.pairs, temperature=temperature, seed=seed)
        self._length = length
        self._batches = pack(self._encoded(), batch=batch, length=length, stats=self.stats)

    def __next__(self) -> Batch:
        return next(self._batches)

    def report(self) -> Mapping[str, Any]:
        """Pairs packed and pairs too long for a row, the share of places that hold a token, sizes of vocabularies."""
        return {
            **self.stats.as_json(),
            "source_pieces": self.source.num_pieces,
            "target_pieces": self.target.num_pieces,
            "languages": len(self._corpus.languages),
        }

    def _encoded(self) -> Iterator[TokenPair]:
        while True:
            pairs = [self._corpus.pairs[position] for position in islice(self._order, PAIRS_AT_ONCE)]
            sources = self.source.encode([pair.source for pair in pairs])
            targets = self.target.encode([pair.target for pair in pairs])
            tokens = list(zip(sources, targets, strict=True))
            if min(max(map(len, pair)) for pair in tokens) > self._length:
                raise PlanError([problem("MW505", length=self._length, pairs=len(tokens))])
            yield from tokens


def translation_batches(
    *,
    batch: int,
    length: int,
    source_vocab: int,
    target_vocab: int,
    seed: int = 0,
    split: str = "train",
    folder: Path | None = None,
) -> TranslationBatches:
    """Batches of ``batch`` rows of ``length`` tokens a side, from ``train`` or ``held-out``, both without end.

    Training pairs are sampled by temperature (T = 5), held-out ones in proportion to each language's size, so that
    their loss is that of the held-out text as it is. The vocabularies have at most ``source_vocab`` and
    ``target_vocab`` ids; they come from ``folder`` (the user's cache by default) or are learnt first.

    Raises ``PlanError``: MW501 without the ``data`` extra, MW502 for a vocabulary too small, MW505 where no pair fits
    a row, MW506 for a split that there is not.
    """
    if split not in SPLITS:
        raise PlanError([problem("MW506", split=split)])
    corpus = read_corpus()
    return TranslationBatches(
        corpus.split(split),
        source=load_vocabulary(corpus, side="source", pieces=source_vocab, folder=folder),
        target=load_vocabulary(corpus, side="target", pieces=target_vocab, folder=folder),
        batch=batch,
        length=length,
        seed=seed,
        temperature=TRAIN_TEMPERATURE if split == "train" else PROPORTIONAL,
    )
