"""Flat beam search (GShard appendix A.1): k hypotheses a row, interleaved in one sequence of k tokens a step.

What a hypothesis is made of is a 0/1 mask over that sequence. When hypotheses branch and end, masks alone are
reordered: tokens, and the keys and values that a model keeps for them, stay where they were written. In exchange,
attention is over k times as many keys.

Dims: B rows, K beams (k), T steps (tokens of a translation, EOS included), S = T·K places of the flat sequence, in
which step t's token of beam j stands at t·K + j; vocabulary V.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..models.config import BOS, EOS, PAD

PyTree = Any
Step = Callable[[jax.Array, jax.Array, jax.Array, PyTree], tuple[jax.Array, PyTree]]
"""``step(tokens, index, visible, cache)``: log-probabilities [B, K, V] float32 of what follows ``tokens`` [B, K], the
tokens of step ``index``, where hypothesis j has seen the places ``visible[:, j]`` ([B, K, S] bool, earlier steps alone)
and its own token; and the cache with this step's tokens in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSearch:
    """How translations are searched for. A hypothesis that ends leaves the beam, which is one narrower from then on
    (Sutskever et al. 2014, section 3.2); so one beam is greedy search.

    An ended hypothesis is worth its log-probability over ((5 + tokens)/6)^``length_penalty`` (GShard's reference 61,
    Wu et al. 2016, equation 14), its EOS counted as a token. Ties go to the better beam, then to the lower token; of
    ended ones to the one that ended first.
    """

    beams: int = 4
    """k."""
    max_tokens: int = 64
    """T: what has not ended before ends with this token."""
    length_penalty: float = 0.6
    """α of Wu et al.; 0 ranks by probability alone."""
    only_best: bool = True
    """Drops what can no longer become better than the best that has ended: the best stays the same, fewer steps."""


class Found(NamedTuple):
    """Translations of B rows, the best first. Where there are fewer than K, tokens are PAD and scores -inf."""

    tokens: jax.Array
    """[B, K, T] int32: with EOS, PAD after it."""
    scores: jax.Array
    """[B, K] float32: log-probability over the length penalty."""


class _Beams(NamedTuple):
    """Where the search stands. Never reordered: ``tokens`` and ``cache``."""

    turn: jax.Array
    """int32: the step to take next."""
    tokens: jax.Array
    """[B, S + K] int32: what each beam was fed at each step, BOS at step 0; and what the last step chose."""
    visible: jax.Array
    """[B, K, S] bool: the places of each open hypothesis, its last token left out."""
    scores: jax.Array
    """[B, K] float32: log-probability of each open hypothesis; -inf where there is none."""
    ended: jax.Array
    """[B, K] float32: what each ended hypothesis is worth, the best first; -inf where there is none."""
    ended_visible: jax.Array
    """[B, K, S] bool: the places of each ended hypothesis, BOS among them; its EOS is in none."""
    cache: PyTree


def flat_beam_search(search: BeamSearch, step: Step, cache: PyTree, rows: jax.Array) -> Found:
    """The best translations, beginning with an empty ``cache``. ``rows`` [B] bool says which rows ask for one."""
    begun = _beginning(search, cache, rows)
    done = jax.lax.while_loop(_goes_on, lambda beams: _advance(search, step, beams), begun)
    return _read(search, done)


def length_penalty(search: BeamSearch, tokens: jax.Array | int) -> jax.Array:
    """((5 + tokens)/6)^α (Wu et al. 2016, equation 14)."""
    return ((5.0 + jnp.asarray(tokens, jnp.float32)) / 6.0) ** search.length_penalty


def _beginning(search: BeamSearch, cache: PyTree, rows: jax.Array) -> _Beams:
    B, K, S = rows.shape[0], search.beams, search.max_tokens * search.beams
    first = rows[:, None] & (jnp.arange(K) == 0)
    none, places = jnp.full((B, K), -jnp.inf, jnp.float32), jnp.zeros((B, K, S), bool)
    return _Beams(
        turn=jnp.int32(0),
        tokens=jnp.full((B, S + K), PAD, jnp.int32).at[:, :K].set(BOS),
        visible=places,
        scores=jnp.where(first, 0.0, none),
        ended=none,
        ended_visible=places,
        cache=cache,
    )


def _goes_on(beams: _Beams) -> jax.Array:
    return jnp.any(beams.scores > -jnp.inf)


def _advance(search: BeamSearch, step: Step, beams: _Beams) -> _Beams:
    """One step: every open hypothesis branches, the best branches stay, those with EOS end."""
    K = search.beams
    fed = jax.lax.dynamic_slice_in_dim(beams.tokens, beams.turn * K, K, axis=1)
    log_probs, cache = step(fed, beams.turn, beams.visible, beams.cache)
    scores, parent, token = _branch(search, beams, log_probs)
    own = jnp.arange(search.max_tokens * K) == beams.turn * K + jnp.arange(K)[:, None]
    visible = jnp.take_along_axis(beams.visible | own, parent[..., None], axis=1)
    ends = (token == EOS) & (scores > -jnp.inf)
    worth = jnp.where(ends, scores / length_penalty(search, beams.turn + 1), -jnp.inf)
    ended, kept = jax.lax.top_k(jnp.concatenate([beams.ended, worth], axis=1), K)
    both = jnp.concatenate([beams.ended_visible, visible], axis=1)
    open_ = jnp.where(ends, -jnp.inf, scores)
    if search.only_best:  # no log-probability is above 0, so none becomes worth more than it would be at full length
        open_ = jnp.where(open_ / length_penalty(search, search.max_tokens) > ended[:, :1], open_, -jnp.inf)
    return _Beams(
        turn=beams.turn + 1,
        tokens=jax.lax.dynamic_update_slice_in_dim(beams.tokens, token, (beams.turn + 1) * K, axis=1),
        visible=visible,
        scores=open_,
        ended=ended,
        ended_visible=jnp.take_along_axis(both, kept[..., None], axis=1),
        cache=cache,
    )


def _branch(search: BeamSearch, beams: _Beams, log_probs: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The best branches, as many as hypotheses have not ended: score (-inf beyond), parent and token, [B, K] each."""
    V = log_probs.shape[-1]
    last = beams.turn == search.max_tokens - 1
    legal = jnp.where(last & (jnp.arange(V) != EOS), -jnp.inf, log_probs)
    totals = beams.scores[..., None] + legal
    best, at = jax.lax.top_k(totals.reshape(totals.shape[0], -1), search.beams)
    places = search.beams - jnp.sum(beams.ended > -jnp.inf, axis=1, keepdims=True)
    return jnp.where(jnp.arange(search.beams) < places, best, -jnp.inf), at // V, (at % V).astype(jnp.int32)


def _read(search: BeamSearch, beams: _Beams) -> Found:
    """The tokens of the ended hypotheses: at each step the one that the mask shows, then EOS in the place of BOS."""
    B, K, T = *beams.ended.shape, search.max_tokens
    shown = jnp.where(beams.ended_visible, beams.tokens[:, None, : T * K], 0).reshape(B, K, T, K).sum(axis=-1)
    length = beams.ended_visible.sum(axis=-1)[..., None]
    following = jnp.pad(shown, ((0, 0), (0, 0), (0, 1)))[..., 1:]
    place = jnp.arange(T)
    tokens = jnp.where(place < length - 1, following, jnp.where(place == length - 1, EOS, PAD))
    return Found(tokens=tokens.astype(jnp.int32), scores=beams.ended)
