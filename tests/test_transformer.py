"""The Transformer attends where it should, and nowhere else; its scan is a loop; it learns."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from extent import some
from meshwright.backends.jax.models.blocks import Surroundings, run_block, run_stack
from meshwright.backends.jax.models.config import BOS, TransformerConfig
from meshwright.backends.jax.models.family import configure, optimizer_of, training_step
from meshwright.backends.jax.models.gradients import gradients_in
from meshwright.backends.jax.models.parameters import initial_parameters
from meshwright.backends.jax.models.transformer import forward, loss, shift_right

SMALL = {"model_dim": 32, "hidden_dim": 48, "heads": 2, "head_dim": 16, "source_vocab": 50, "target_vocab": 40}
B, T = 4, 16


def config_of(**settings: Any) -> TransformerConfig:
    plain = {"dropout": 0.0, "random_routing": False, "experts": 4, "layers": 8, "factor_from": 16, "warmup_steps": 100}
    return configure(None, {**SMALL, "batch": B, "length": T, **plain, **settings})


CONFIG = config_of()


@functools.cache
def parameters(config: TransformerConfig) -> Any:
    return initial_parameters(optimizer_of(config).table, jax.random.key(0))


def packed_batch(seed: int = 0) -> dict[str, jax.Array]:
    """Two segments of 7 and 5 tokens a row, then padding."""
    rng = np.random.default_rng(seed)
    segments = np.array([1] * 7 + [2] * 5 + [0] * 4, np.int32)[None].repeat(B, 0)
    positions = np.array([*range(7), *range(5), *[0] * 4], np.int32)[None].repeat(B, 0)
    batch = {}
    for side, vocab in (("source", 50), ("target", 40)):
        batch[side] = np.where(segments > 0, rng.integers(3, vocab, (B, T)), 0).astype(np.int32)
        batch |= {f"{side}_segments": segments, f"{side}_positions": positions}
    return jax.tree.map(jnp.asarray, batch)


@functools.cache
def compiled_loss(config: TransformerConfig) -> Any:
    return jax.jit(functools.partial(loss, config))


@functools.cache
def gradients(activations: str) -> Any:
    """The loss' gradient by the parameters; those that are read in ``activations`` get it in that dtype."""
    config = dataclasses.replace(CONFIG, activations=activations)
    value = jax.jit(lambda p, batch: gradients_in(config.dtype, lambda q: loss(config, q, batch), p)[0])
    return value(parameters(CONFIG), packed_batch())


@functools.cache
def compiled(config: TransformerConfig) -> Any:
    return jax.jit(functools.partial(forward, config))


def logits_after(changed: dict[str, jax.Array], config: TransformerConfig = CONFIG) -> np.ndarray[Any, Any]:
    return np.asarray(compiled(config)(parameters(config), changed)[0])


def with_token(batch: dict[str, jax.Array], side: str, column: int) -> dict[str, jax.Array]:
    return {**batch, side: batch[side].at[:, column].set(batch[side][:, column] % 30 + 4)}


ROOMY = config_of(capacity=2 * B * T)
"""With room for every token no expert overflows, so tokens meet in attention alone."""


@pytest.mark.parametrize("column", [3, 9])
def test_a_target_token_changes_only_later_logits_of_its_segment(column: int) -> None:
    before = logits_after(packed_batch(), ROOMY)
    after = logits_after(with_token(packed_batch(), "target", column), ROOMY)
    changed = ~np.isclose(before, after, atol=1e-5).all(axis=-1)
    end = 7 if column < 7 else 12
    assert changed[:, column + 1 : end].all()
    assert not changed[:, : column + 1].any()
    assert not changed[:, end:12].any()


def test_a_source_token_changes_only_its_own_segment() -> None:
    before = logits_after(packed_batch(), ROOMY)
    after = logits_after(with_token(packed_batch(), "source", 9), ROOMY)
    changed = ~np.isclose(before, after, atol=1e-5).all(axis=-1)
    assert changed[:, 7:12].all()
    assert not changed[:, :7].any()


@pytest.mark.parametrize("side", ["source", "target"])
def test_padding_does_not_matter(side: str) -> None:
    batch = packed_batch()
    other = {**batch, side: jnp.where(batch[f"{side}_segments"] > 0, batch[side], 9)}
    for one, two in zip(loss_of(batch), loss_of(other), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6)


def loss_of(batch: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
    total, metrics = compiled_loss(CONFIG)(parameters(CONFIG), batch)
    return total, metrics["dropped"]


def test_the_decoder_reads_the_token_before_and_bos_at_each_segments_start() -> None:
    target = jnp.array([[5, 6, 7, 8, 9, 0, 0]])
    segments = jnp.array([[1, 1, 1, 2, 2, 0, 0]])
    shifted = shift_right(target, segments)[0]
    assert shifted[:5].tolist() == [BOS, 5, 6, BOS, 8]


def test_scan_equals_a_loop_over_blocks() -> None:
    around = Surroundings(config=CONFIG, stack="encoder", segments=packed_batch()["source_segments"])
    params = parameters(CONFIG)["encoder"]
    x = jax.random.normal(jax.random.key(1), (B, T, 32))
    key = jax.random.key(2)
    scanned, reports = jax.jit(functools.partial(run_stack, around))(params, x, key)
    block = jax.jit(functools.partial(run_block, around))
    for i, block_key in enumerate(jax.random.split(key, CONFIG.blocks)):
        x, report = block(jax.tree.map(lambda p, i=i: p[i], params), x, block_key)
        assert float(report.losses["balance"]) == pytest.approx(float(reports.losses["balance"][i]), rel=1e-5)
    np.testing.assert_allclose(scanned, x, rtol=1e-4, atol=1e-5)


def test_all_tokens_to_one_full_expert_leave_the_residual_alone() -> None:
    config = config_of(capacity=1, groups=1, layers=4)
    around = Surroundings(config=config, stack="encoder", segments=jnp.ones((B, T), jnp.int32))
    params = jax.tree.map(lambda p: p[0], parameters(config)["encoder"])
    constant = {**params["moe"], "norm": {"scale": jnp.zeros(32), "bias": jnp.ones(32)}}
    x = jax.random.normal(jax.random.key(1), (B, T, 32))
    block = jax.jit(lambda params: run_block(around, params, x, None)[0])
    with_moe = block({**params, "moe": constant})
    silent = {**constant, "wo": jnp.zeros_like(constant["wo"])}
    without = block({**params, "moe": silent})
    differs = ~np.isclose(with_moe, without).all(axis=-1).reshape(-1)
    assert differs.tolist() == [True] + [False] * (B * T - 1)


def test_float32_and_bfloat16_activations_agree() -> None:
    rough_config = dataclasses.replace(CONFIG, activations="bfloat16")
    exact, rough = (compiled_loss(c)(parameters(CONFIG), packed_batch())[0] for c in (CONFIG, rough_config))
    assert float(rough) == pytest.approx(float(exact), rel=2e-2)


@pytest.mark.parametrize("experts", some([4, 0]))
def test_learns_a_fixed_batch(experts: int) -> None:
    config = config_of(experts=experts, layers=4, dropout=0.1, random_routing=True)
    optimizer, step = optimizer_of(config), jax.jit(training_step(config))
    params = parameters(config)
    opt, losses = optimizer.init(params), []
    for _ in range(30):
        params, opt, metrics = step(params, opt, packed_batch())
        losses.append(float(metrics["loss"]))
        assert np.isfinite(float(metrics["grad_norm"]))
    assert losses[-1] < 0.5 * losses[0]
    assert int(opt["count"]) == 30
    assert {m.dtype.name for m in metrics.values()} == {"float32"}
    assert {m.shape for m in metrics.values()} == {()}


def test_every_parameter_gets_a_finite_gradient() -> None:
    for path, gradient in jax.tree_util.tree_leaves_with_path(gradients("float32")):
        assert bool(jnp.isfinite(gradient).all()), path
        assert bool((gradient != 0).any()), path


def test_bfloat16_activations_give_bfloat16_gradients_that_agree() -> None:
    exact, rough = gradients("float32"), gradients("bfloat16")
    assert {g.dtype.name for g in jax.tree.leaves(rough)} == {"bfloat16"}
    for one, two in zip(jax.tree.leaves(exact), jax.tree.leaves(rough), strict=True):
        assert float(jnp.linalg.norm(one - two.astype(jnp.float32))) < 0.2 * float(jnp.linalg.norm(one)) + 1e-6
