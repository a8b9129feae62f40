"""Flat beam search finds what a textbook beam search finds; decoding step by step is the forward pass."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from meshwright.backends.jax.decoding.beam import BeamSearch, Found, flat_beam_search
from meshwright.backends.jax.decoding.incremental import decode_step, empty_cache, read_source, roomy
from meshwright.backends.jax.decoding.translation import translate_rows
from meshwright.backends.jax.models.config import BOS, EOS, PAD, TransformerConfig
from meshwright.backends.jax.models.family import configure, optimizer_of
from meshwright.backends.jax.models.parameters import flatten, initial_parameters, nest
from meshwright.backends.jax.models.transformer import forward

Next = Callable[[tuple[int, ...]], "np.ndarray[Any, Any]"]
"""The log-probabilities of what follows the tokens so far."""


def textbook(follows: Next, search: BeamSearch) -> list[tuple[tuple[int, ...], float]]:
    """Beam search as books have it, with lists: every hypothesis carries its tokens, and an ended one leaves."""
    still_open: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    ended: list[tuple[tuple[int, ...], float]] = []
    for step in range(search.max_tokens):
        branches = []
        for beam, (tokens, score) in enumerate(still_open):
            for token, log_prob in enumerate(follows(tokens)):
                if math.isfinite(log_prob) and (step < search.max_tokens - 1 or token == EOS):
                    branches.append((-(score + float(log_prob)), beam, token))
        chosen = sorted(branches)[: search.beams - len(ended)]
        grown = [((*still_open[beam][0], token), -cost) for cost, beam, token in chosen]
        ended += [(t, score / ((5 + len(t)) / 6) ** search.length_penalty) for t, score in grown if t[-1] == EOS]
        still_open = [(t, score) for t, score in grown if t[-1] != EOS]
    return sorted(ended, key=lambda hypothesis: -hypothesis[1])


def greedy(follows: Next, max_tokens: int) -> tuple[int, ...]:
    tokens: tuple[int, ...] = ()
    while len(tokens) < max_tokens - 1 and EOS not in tokens:
        tokens = (*tokens, int(np.argmax(follows(tokens))))
    return tokens if EOS in tokens else (*tokens, EOS)


def translations(found: Found, row: int) -> list[tuple[tuple[int, ...], float]]:
    """What was found for a row: tokens up to EOS, and score."""
    rows = zip(np.asarray(found.tokens)[row].tolist(), np.asarray(found.scores)[row].tolist(), strict=True)
    told = [(tuple(t for t in tokens if t != PAD), score) for tokens, score in rows if score > -math.inf]
    assert all(tokens.count(EOS) == 1 and tokens[-1] == EOS for tokens, _ in told)
    return told


SIZES, VOCABULARY, ROWS = 11, 6, 4


def hashed(tokens: Sequence[int]) -> int:
    """A number that hangs on every token and its place."""
    return sum(token * (3 * at + 1) for at, token in enumerate(tokens)) % SIZES


@functools.cache
def over_tables(search: BeamSearch) -> Callable[..., Found]:
    """The flat search over a model that looks its log-probabilities up by what ``hashed`` makes of the tokens."""
    K, T = search.beams, search.max_tokens

    def run(tables: jax.Array) -> Found:
        def step(tokens: jax.Array, index: jax.Array, visible: jax.Array, cache: jax.Array) -> tuple[Any, jax.Array]:
            weighed = tokens * (3 * index + 1)
            seen = (jnp.where(visible, cache[:, None], 0).sum(-1) + weighed) % SIZES
            log_probs = jax.vmap(lambda table, at: table[at])(tables, seen)
            return log_probs, jax.lax.dynamic_update_slice_in_dim(cache, weighed, index * K, 1)

        return flat_beam_search(search, step, jnp.zeros((ROWS, T * K), jnp.int32), jnp.ones(ROWS, bool))

    return jax.jit(run)


def random_tables(rng: np.random.Generator, evenness: float) -> np.ndarray[Any, Any]:
    """Log-probabilities, of everything but PAD."""
    shares = rng.dirichlet(np.full(VOCABULARY - 1, evenness), (ROWS, SIZES))
    return np.insert(np.log(shares), PAD, -np.inf, axis=-1).astype(np.float32)


def looked_up(table: np.ndarray[Any, Any]) -> Next:
    return lambda tokens: table[hashed((BOS, *tokens))]


@pytest.mark.parametrize(
    ("beams", "max_tokens", "penalty"), [(1, 6, 1.0), (2, 6, 0.0), (3, 1, 1.0), (3, 6, 1.0), (5, 2, 0.0), (5, 6, 0.0)]
)
def test_it_finds_what_a_textbook_search_finds_ties_included(beams: int, max_tokens: int, penalty: float) -> None:
    """Small whole numbers for log-probabilities: many ties, and sums that float32 holds exactly."""
    search = BeamSearch(beams=beams, max_tokens=max_tokens, length_penalty=penalty, only_best=False)
    rng = np.random.default_rng([beams, max_tokens])
    for _ in range(12):
        tables = -rng.integers(0, 4, (ROWS, SIZES, VOCABULARY)).astype(np.float32)
        tables[rng.random(tables.shape) < 0.2] = -np.inf
        tables[..., PAD] = -np.inf
        tables[..., EOS] = -rng.integers(0, 6, tables.shape[:2])
        found = over_tables(search)(tables)
        for row in range(ROWS):
            expected = textbook(looked_up(tables[row]), search)
            told = translations(found, row)
            assert [tokens for tokens, _ in told] == [tokens for tokens, _ in expected]
            np.testing.assert_allclose([s for _, s in told], [s for _, s in expected], rtol=1e-6)


@pytest.mark.parametrize("penalty", [0.0, 2.0])
def test_dropping_what_cannot_win_leaves_the_best_as_it_is(penalty: float) -> None:
    whole = BeamSearch(beams=3, max_tokens=6, length_penalty=penalty, only_best=False)
    quick = BeamSearch(beams=3, max_tokens=6, length_penalty=penalty)
    rng = np.random.default_rng(1)
    fewer = 0
    for _ in range(20):
        tables = random_tables(rng, 0.5)
        one, two = over_tables(whole)(tables), over_tables(quick)(tables)
        for row in range(ROWS):
            assert translations(one, row)[0] == translations(two, row)[0]
            fewer += len(translations(one, row)) - len(translations(two, row))
    assert fewer > 0


@pytest.mark.parametrize("penalty", [0.0, 2.0])
def test_one_beam_is_greedy_search(penalty: float) -> None:
    search = BeamSearch(beams=1, max_tokens=8, length_penalty=penalty)
    rng = np.random.default_rng(2)
    for _ in range(20):
        tables = random_tables(rng, 1.0)
        found = over_tables(search)(tables)
        for row in range(ROWS):
            assert [t for t, _ in translations(found, row)] == [greedy(looked_up(tables[row]), 8)]


def test_a_row_that_asks_for_nothing_gets_nothing() -> None:
    search = BeamSearch(beams=2, max_tokens=4)

    def step(tokens: jax.Array, index: jax.Array, visible: jax.Array, cache: None) -> tuple[jax.Array, None]:
        return jnp.full((2, 2, VOCABULARY), -1.0), None

    found = flat_beam_search(search, step, None, jnp.array([True, False]))
    assert translations(found, 0) != []
    assert translations(found, 1) == []
    assert not np.asarray(found.tokens)[1].any()


# The model.

SMALL = {"model_dim": 16, "hidden_dim": 24, "heads": 2, "head_dim": 8, "source_vocab": 30, "target_vocab": 24}
B, U = 3, 8
PIECES = 22


@functools.cache
def config_of() -> TransformerConfig:
    return configure(None, {**SMALL, "experts": 4, "layers": 4, "batch": B, "length": U})


@functools.cache
def parameters(config: TransformerConfig) -> Any:
    """Random, but sure of what they say, and what they say hangs on all that was said: a random model's own
    probabilities are nearly all the same, and it repeats its last token.
    """
    table = optimizer_of(config).table
    params = flatten(jax.jit(functools.partial(initial_parameters, table))(jax.random.key(3)))
    louder = {path: value * 4.0 for path, value in params.items() if path.startswith("decoder") and "w" in path}
    louder["norm/decoder/scale"] = params["norm/decoder/scale"] * 3.0
    louder["embedding/target"] = params["embedding/target"].at[EOS].multiply(2.0)
    return nest({**params, **louder})


def sources(seed: int = 0, lengths: Sequence[int] = (5, 8, 1)) -> dict[str, jax.Array]:
    rng = np.random.default_rng(seed)
    segments = (np.arange(U) < np.array(lengths)[:, None]).astype(np.int32)
    tokens = rng.integers(4, 30, (B, U)).astype(np.int32) * segments
    positions = np.arange(U, dtype=np.int32) * segments
    return jax.tree.map(jnp.asarray, {"source": tokens, "source_segments": segments, "source_positions": positions})


@functools.cache
def whole_pass(config: TransformerConfig, rows: int, places: int) -> Callable[..., jax.Array]:
    """Log-probabilities of all tokens at once, from the model as it is trained, where no expert overflows."""

    def run(params: Any, source: dict[str, jax.Array], target: jax.Array) -> jax.Array:
        segments = jnp.ones_like(target)
        positions = jnp.broadcast_to(jnp.arange(places), target.shape)
        batch = {**source, "target": target, "target_segments": segments, "target_positions": positions}
        roomier = roomy(config, rows=rows, tokens=max(places, U))
        return jax.nn.log_softmax(forward(roomier, params, batch)[0])

    return jax.jit(run)


def follows(config: TransformerConfig, source: dict[str, jax.Array], row: int) -> Next:
    """What the whole model, asked anew for each prefix, says may follow it."""
    one = {name: array[row : row + 1] for name, array in source.items()}

    @functools.cache
    def next_log_probs(tokens: tuple[int, ...]) -> np.ndarray[Any, Any]:
        target = np.zeros((1, U), np.int32)
        target[0, : len(tokens)] = tokens
        told = np.array(whole_pass(config, 1, U)(parameters(config), one, target)[0, len(tokens)])
        told[[0, 1, 3, *range(PIECES, 24)]] = -np.inf
        return told

    return next_log_probs


@functools.cache
def translating(config: TransformerConfig, search: BeamSearch) -> Callable[..., Found]:
    return jax.jit(functools.partial(translate_rows, config, search, num_pieces=PIECES))


SEARCH = BeamSearch(beams=3, max_tokens=7, only_best=False)


def test_the_models_translations_are_a_textbook_searchs() -> None:
    config, search = config_of(), SEARCH
    lengths = set()
    for seed in (0, 1):
        source = sources(seed)
        found = translating(config, search)(parameters(config), source)
        for row in range(B):
            expected, told = textbook(follows(config, source, row), search), translations(found, row)
            assert [tokens for tokens, _ in told] == [tokens for tokens, _ in expected]
            np.testing.assert_allclose([s for _, s in told], [s for _, s in expected], rtol=2e-5)
            lengths |= {len(tokens) for tokens, _ in told}
    assert len(lengths) > 1


def test_decoding_step_by_step_is_the_forward_pass() -> None:
    """Two hypotheses of each row, interleaved: neither sees the other."""
    config, K, source = config_of(), 2, sources()
    params, rng = parameters(config), np.random.default_rng(5)
    target = rng.integers(4, 24, (K, B, U)).astype(np.int32)
    memory = jax.jit(functools.partial(read_source, config))(params, source)
    cache = empty_cache(config, rows=B, places=U * K)
    step = jax.jit(functools.partial(decode_step, config))
    stepped = []
    for index in range(U):
        fed = np.full((B, K), BOS) if index == 0 else target[:, :, index - 1].T
        own = (np.arange(U * K) % K == np.arange(K)[:, None]) & (np.arange(U * K) < index * K)
        visible = np.broadcast_to(own, (B, K, U * K))
        logits, cache = step(params, memory, fed.astype(np.int32), jnp.int32(index), visible, cache)
        stepped.append(jax.nn.log_softmax(logits))
    for beam in range(K):
        whole = whole_pass(config, B, U)(params, source, target[beam])
        np.testing.assert_allclose(np.stack(stepped, 1)[:, :, beam], whole, rtol=2e-5, atol=2e-5)


def test_a_rows_translation_hangs_on_that_row_alone() -> None:
    config, search = config_of(), SEARCH
    source = sources()
    found = translating(config, search)(parameters(config), source)
    others = {name: jnp.stack([array[0], array[0], array[2] * 0]) for name, array in source.items()}
    alone = translating(config, search)(parameters(config), others)
    for one, two in zip(translations(found, 0), translations(alone, 1), strict=True):
        assert one[0] == two[0]
        assert one[1] == pytest.approx(two[1], rel=1e-5)
    assert translations(alone, 2) == []


def test_no_translation_holds_what_no_text_has() -> None:
    config = config_of()
    params = parameters(config)
    loud = params["embedding"]["target"].at[jnp.array([0, 1, 3, 22, 23])].multiply(40.0)
    params = {**params, "embedding": {**params["embedding"], "target": loud}}
    found = translating(config, SEARCH)(params, sources())
    said = {token for row in range(B) for tokens, _ in translations(found, row) for token in tokens}
    assert said <= {EOS, *range(4, PIECES)}
