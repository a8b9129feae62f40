"""What a workload needs besides its step to translate, and how the MoE Transformer does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp

from ..data.corpus import Corpus, read_corpus
from ..data.vocabulary import load_vocabulary
from ..models.config import EOS, TransformerConfig
from ..models.parameters import Params
from ..models.transformer import Batch
from .beam import BeamSearch, Found, PyTree, flat_beam_search
from .incremental import decode_step, empty_cache, read_source


class Codec(Protocol):
    """Text as ids of pieces, and back."""

    @property
    def fingerprint(self) -> str:
        """Tells it from another: parameters learnt with one are of no use with another."""

    @property
    def num_pieces(self) -> int:
        """Ids in use."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, with EOS at its end."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids; padding, BOS and EOS say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """How a workload translates. Its batches are those of its step: of each row ``source``, ``source_segments`` and
    ``source_positions`` are read, one text a row.

    ``decode(search)`` is a function like the step: some of the step's arguments, by name, and the batch. It returns
    ``Found``.
    """

    source: Codec
    target: Codec
    corpus: Corpus
    """What it learns from, and the held-out pairs that it is scored on."""
    decode: Callable[[BeamSearch], Callable[..., Found]]


def transformer_translation(config: TransformerConfig) -> Translation:
    """How the MoE Transformer with its data's vocabularies translates.

    Raises ``PlanError``: MW501 without the ``data`` extra, and all that ``load_vocabulary`` raises.
    """
    corpus = read_corpus()
    source = load_vocabulary(corpus, side="source", pieces=config.source_vocab)
    target = load_vocabulary(corpus, side="target", pieces=config.target_vocab)

    def decode(search: BeamSearch) -> Callable[..., Found]:
        def translate(params: Params, batch: Batch) -> Found:
            return translate_rows(config, search, params, batch, num_pieces=target.num_pieces)

        return translate

    return Translation(source=source, target=target, corpus=corpus, decode=decode)


def translate_rows(
    config: TransformerConfig, search: BeamSearch, params: Params, batch: Batch, *, num_pieces: int
) -> Found:
    """The best translations of each row's source. A row of padding has none.

    No translation has a special id in it but its EOS, nor an id from ``num_pieces`` on: no piece of text has those.
    """
    rows = batch["source"].shape[0]
    ids = jnp.arange(config.target_vocab)
    says = (ids == EOS) | ((ids >= SPECIAL) & (ids < num_pieces))
    source = read_source(config, params, batch)

    def step(tokens: jax.Array, index: jax.Array, visible: jax.Array, cache: PyTree) -> tuple[jax.Array, PyTree]:
        logits, cache = decode_step(config, params, source, tokens, index, visible, cache)
        return jnp.where(says, jax.nn.log_softmax(logits), -jnp.inf), cache

    cache = empty_cache(config, rows=rows, places=search.max_tokens * search.beams)
    return flat_beam_search(search, step, cache, source.mask.any(axis=1))


SPECIAL = 4
"""Ids below are PAD, BOS, EOS and UNK."""
