"""Every gate of the family does what a loop over tokens does, and each system's version differs where it is said to."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from meshwright.backends.jax.models import family
from meshwright.backends.jax.models.moe import Capacity, MoeSettings
from meshwright.backends.jax.models.moe.capacity import slots_of
from meshwright.backends.jax.models.moe.choices import MoeChoices
from meshwright.backends.jax.models.moe.gates import losses
from meshwright.backends.jax.models.moe.gates.expert_choice import BatchwiseGate, ExpertChoiceGate
from meshwright.backends.jax.models.moe.gates.hierarchical import HierarchicalGate, load
from meshwright.backends.jax.models.moe.gates.noisy_top_k import Logits, NoisyTopKGate, keep_top_k, noisy_logits
from meshwright.backends.jax.models.moe.gates.router import Router
from meshwright.backends.jax.models.moe.gates.top_k import TopKGate
from meshwright.backends.jax.models.moe.published import PUBLISHED
from meshwright.backends.jax.models.moe.routing import Routing, Rules, assign
from meshwright.backends.jax.models.transformer import encode
from oracles import routings

Array = np.ndarray[Any, Any]
RULES = [
    Rules(choices=1, normalise="never"),
    Rules(choices=1, normalise="never", order="score", lost_slots=1),
    Rules(choices=2, threshold=0.5),
    Rules(choices=2, threshold=0.2, dropped_uses_slot=False, order="score"),
    Rules(choices=2, threshold=0.5, order="token"),
    Rules(choices=2, normalise="after", threshold=0.5, dropped_uses_slot=False),
    Rules(choices=3, normalise="after", order="token"),
    Rules(choices=5, normalise="never", order="score"),
]


@functools.cache
def compiled(rules: Rules, capacity: int) -> Any:
    return jax.jit(lambda gates, uniform, valid: assign(gates, rules, capacity, uniform=uniform, valid=valid))


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rules=st.sampled_from(RULES),
    case=st.sampled_from([(1, 1, 1, 1), (2, 9, 4, 2), (1, 6, 1, 3), (1, 2, 8, 1)]),
    levels=st.sampled_from([1, 3, 1000]),
)
@example(seed=0, rules=RULES[4], case=(2, 9, 4, 2), levels=3)
def test_choices_take_slots_as_in_a_loop(seed: int, rules: Rules, case: tuple[int, int, int, int], levels: int) -> None:
    """Cases: groups, tokens, experts, capacity. A few levels of gates give ties; one level, a uniform router."""
    G, S, E, capacity = case
    rng = np.random.default_rng(seed)
    raw = rng.integers(1, levels + 1, (G, S, E)).astype(np.float32)
    gates = raw / raw.sum(-1, keepdims=True, dtype=np.float32)
    uniform, valid = rng.random((G, S), np.float32), rng.random((G, S)) < 0.8
    routing = jax.tree.map(np.asarray, compiled(rules, capacity)(gates, uniform, valid))
    plain = {name: getattr(rules, name) for name in Rules.__slots__}
    for g in range(G):
        found = routings.token_choice(gates[g], capacity, valid[g], uniform[g], **plain)
        assert_same(kept_of(routing, g), found.kept)
        assert routing.statistics.load[g].tolist() == found.counts
        assert routing.statistics.first[g].tolist() == found.first
        assert routing.statistics.dropped[g].tolist() == found.dropped
        assert routing.statistics.overflowed[g] == valid[g].sum() - len({s for s, _ in found.kept})


def kept_of(routing: Routing, g: int) -> dict[tuple[int, int], tuple[int, float]]:
    """(token, expert) to (slot, weight)."""
    return {
        (int(s), int(routing.expert[g, s, k])): (int(routing.slot[g, s, k]), float(routing.weight[g, s, k]))
        for s, k in np.argwhere(routing.kept[g])
    }


def assert_same(found: dict[Any, tuple[int, float]], expected: dict[Any, tuple[int, float]]) -> None:
    assert {at: slot for at, (slot, _) in found.items()} == {at: slot for at, (slot, _) in expected.items()}
    assert {at: w for at, (_, w) in found.items()} == pytest.approx({at: w for at, (_, w) in expected.items()})


def draw(seed: int, G: int, S: int, E: int, M: int = 6) -> tuple[jax.Array, jax.Array, jax.Array]:
    rng = np.random.default_rng(seed)
    wg = jnp.float32(rng.normal(size=(M, E)))
    return wg, jnp.float32(rng.normal(size=(G, S, M))), jnp.array(rng.random((G, S)) < 0.8)


@pytest.mark.parametrize(("experts", "choices"), [(5, 2), (4, 1), (3, 3)])
@pytest.mark.parametrize("seed", [0, 1])
def test_noisy_gates_and_their_losses_equal_a_loop(seed: int, experts: int, choices: int) -> None:
    wg, x, valid = draw(seed, 2, 7, experts)
    params = {"wg": wg, "wg_noise": wg[::-1] / 3}
    key, router = jax.random.key(seed), Router()
    logits = noisy_logits(router, params["wg"], params["wg_noise"], x, key, floor=0.01)
    flat = [np.asarray(z, np.float64).reshape(-1, experts) for z in logits]
    gates, importance, loads = routings.noisy_top_k(flat[0], flat[1], flat[2], np.asarray(valid).reshape(-1), choices)
    if choices == experts:  # nothing to estimate: all are chosen
        loads = np.full(experts, valid.sum())
    for unbiased in (False, True):
        gate = NoisyTopKGate(rules=Rules(choices=choices, normalise="never"), noise_floor=0.01, unbiased=unbiased)
        routing = gate(params, x, valid, capacity=7, key=key)
        for name, sums in (("importance", importance), ("load", loads)):
            expected = routings.squared_variation(sums, unbiased=unbiased)
            assert float(routing.losses[name]) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    wanted = gates.reshape(2, 7, experts)
    for g in range(2):
        assert {at: w for at, (_, w) in kept_of(jax.tree.map(np.asarray, routing), g).items()} == pytest.approx(
            {(s, e): wanted[g, s, e] for s, e in np.argwhere(wanted[g] > 0) if valid[g, s]}, rel=1e-4
        )


def test_a_noisy_gate_starts_with_experts_drawn_alike_and_learns_by_both_losses() -> None:
    _, x, valid = draw(0, 4, 64, 8)
    params = {"wg": jnp.zeros((6, 8)), "wg_noise": jnp.zeros((6, 8))}
    gate = NoisyTopKGate(rules=Rules(choices=2, normalise="never"))
    routing = gate(params, x, valid, capacity=64, key=jax.random.key(0))
    load_share = np.asarray(routing.statistics.load.sum(axis=0)) / (2 * float(valid.sum()))
    assert load_share == pytest.approx(np.full(8, 1 / 8), abs=0.06)
    for name in ("importance", "load"):
        pull = jax.grad(lambda p, n=name: gate(p, x, valid, capacity=64, key=jax.random.key(0)).losses[n])(params)
        assert all(bool(jnp.isfinite(g).all()) and bool((g != 0).any()) for g in jax.tree.leaves(pull["wg"]))


def test_without_a_key_nothing_is_noisy_and_load_is_counted() -> None:
    wg, x, valid = draw(0, 1, 9, 4)
    routing = NoisyTopKGate(rules=Rules(choices=2))({"wg": wg, "wg_noise": wg}, x, valid, capacity=9, key=None)
    counted = np.asarray(routing.statistics.load[0], np.float64)
    assert float(routing.losses["load"]) == pytest.approx(routings.squared_variation(counted, unbiased=False))


def test_gates_in_two_levels_multiply_and_their_loads_equal_a_loop() -> None:
    rng = np.random.default_rng(0)
    T, A, B, k = 11, 3, 4, 2
    clean = {"set": rng.normal(size=(T, A)), "expert": rng.normal(size=(T, A, B))}
    noisy = {name: value + rng.normal(size=value.shape) for name, value in clean.items()}
    valid = np.arange(T) != 3
    spread = {name: np.full(value.shape, 0.7) for name, value in clean.items()}
    kept = {n: keep_top_k(Logits(*map(jnp.float32, (clean[n], noisy[n], spread[n]))), k) for n in clean}
    shaped = jax.tree.map(lambda z: z[None], kept)
    fast = load(shaped["set"], shaped["expert"], jnp.array(valid)[None])
    set_gates, _, set_load = routings.noisy_top_k(clean["set"], noisy["set"], spread["set"], valid, k)
    for a in range(A):
        chose = (set_gates[:, a] > 0) & valid
        *_, inner = routings.noisy_top_k(clean["expert"][:, a], noisy["expert"][:, a], spread["expert"][:, a], chose, k)
        np.testing.assert_allclose(fast[a], set_load[a] * inner / max(chose.sum(), 1), rtol=1e-4)


def test_a_hierarchical_gate_chooses_in_sets_it_chose() -> None:
    wg, x, valid = draw(2, 2, 8, 12)
    params = {"wg": wg, "wg_noise": -wg, "wg_set": wg[:, :4], "wg_set_noise": wg[:, 4:8]}
    gate = HierarchicalGate(sets=4, rules=Rules(choices=4, normalise="never"))
    routing = jax.tree.map(np.asarray, gate(params, x, valid, capacity=8, key=jax.random.key(1)))
    sets = routing.expert // 3
    assert all(len(set(chosen)) == 2 for chosen in sets.reshape(-1, 4).tolist())
    np.testing.assert_allclose(routing.weight.sum(axis=-1), 1, rtol=1e-5)
    assert sorted(routing.losses) == ["importance", "load"]


@pytest.mark.parametrize("capacity", [1, 3, 9])
def test_experts_choose_their_best_tokens(capacity: int) -> None:
    wg, x, valid = draw(capacity, 2, 9, 4)
    routing = jax.tree.map(np.asarray, ExpertChoiceGate()({"wg": wg}, x, valid, capacity=capacity, key=None))
    gates = np.asarray(jax.nn.softmax(jnp.einsum("GSM,ME->GSE", x, wg), axis=-1))
    for g in range(2):
        expected = routings.expert_choice(gates[g], capacity, np.asarray(valid[g]))
        assert_same(kept_of(routing, g), expected)
    assert len(set(routing.statistics.load.reshape(2, 4)[0].tolist())) == 1  # all equally busy


def test_the_strictly_balanced_gate_gives_every_expert_as_many_and_learns_thresholds() -> None:
    wg, x, _ = draw(5, 1, 12, 4)
    params = {"wg": wg, "threshold": jnp.full(4, 0.2)}
    valid, gate = jnp.ones((1, 12), bool), BatchwiseGate(choices=2)
    routing = gate(params, x, valid, capacity=12, key=jax.random.key(0))
    assert routing.statistics.load.tolist() == [[6] * 4]
    served = np.asarray(jnp.where(routing.kept, routing.weight, 0).sum(axis=-1))[0]
    assert served[np.asarray(routing.kept.any(axis=-1))[0]] == pytest.approx(1.0)
    gates = np.asarray(jax.nn.softmax(jnp.einsum("GSM,ME->GSE", x, wg), axis=-1))[0]
    best = np.argsort(np.argsort(-gates, axis=0), axis=0) < 6
    expected = sum(
        (float(gates[j, i] > 0.2) - float(best[j, i])) * (gates[j, i] - 0.2) for j in range(12) for i in range(4)
    )
    assert float(routing.losses["batchwise"][0]) == pytest.approx(expected, rel=1e-4)
    later = gate(params, x, valid, capacity=12, key=None)
    np.testing.assert_array_equal(later.kept[0], gates > 0.2)


def test_balance_losses_of_the_systems_are_one_formula() -> None:
    """Each as its code has it, from the gates and the choices."""
    rng = np.random.default_rng(0)
    S, E = 16, 4
    gates = np.asarray(jax.nn.softmax(rng.normal(size=(1, S, E))), np.float32)
    chosen = np.argsort(-gates[0], axis=-1, kind="stable")[:, :2]
    first, both = (np.eye(E)[chosen[:, :k]].sum(axis=1) for k in (1, 2))
    mean, density = gates[0].mean(axis=0), first.mean(axis=0)
    codes = {
        ("first", "switch"): E * (density * mean).sum(),
        ("first", "lingvo"): (density * mean).mean() * E**2,
        ("first", "tutel"): E * (gates[0].sum(axis=0) * first.sum(axis=0)).sum() / S**2,
        ("all", "flaxformer"): (np.maximum(*np.eye(E)[chosen.T]).mean(axis=0) * mean).mean() * E**2,
        ("mean", "megablocks"): E / (S * 2) * (both.sum(axis=0) * mean).sum(),
    }
    for (counted, system), expected in codes.items():
        gate = TopKGate(rules=Rules(choices=2), counted=counted)
        found = gate.route(jnp.array(gates), 8, valid=jnp.ones((1, S), bool)).losses["balance"]
        assert float(found[0]) * E**2 == pytest.approx(float(expected), rel=1e-5), system
    uniform = jnp.full((1, S, E), 1 / E)
    even = losses.balance(uniform, jnp.full((1, E), S / E), jnp.ones((1, S), bool))
    assert float(even[0]) * E**2 == pytest.approx(1.0)


def test_z_loss_and_second_place_loss_equal_loops() -> None:
    rng = np.random.default_rng(1)
    logits, valid = rng.normal(size=(1, 6, 3)).astype(np.float32), np.array([[1, 1, 0, 1, 1, 1]], bool)
    expected = np.mean([np.log(np.exp(logits[0, s]).sum()) ** 2 for s in range(6) if valid[0, s]])
    assert float(losses.z_loss(jnp.array(logits), jnp.array(valid))[0]) == pytest.approx(float(expected), rel=1e-5)
    gates = np.asarray(jax.nn.softmax(logits, axis=-1))
    best = [sorted(range(3), key=list(-gates[0, s]).__getitem__)[:2] for s in range(6)]
    tokens = [s for s in range(6) if valid[0, s]]
    share = [sum(best[s][1] == e for s in tokens) / 5 for e in range(3)]
    rest = [
        sum(gates[0, s, e] / (1 - gates[0, s, best[s][0]]) for s in tokens if e != best[s][0]) / 5 for e in range(3)
    ]
    gate = TopKGate(rules=Rules(choices=2), second_place=True)
    found = gate.route(jnp.array(gates), 6, valid=jnp.array(valid)).losses["second_place"]
    assert float(found[0]) == pytest.approx(sum(a * b for a, b in zip(share, rest, strict=True)) / 3, rel=1e-4)


def test_jitter_multiplies_the_input_or_is_added_to_the_logits_while_training() -> None:
    wg, x, _ = draw(0, 1, 50, 4)
    clean = Router().logits(wg, x, jax.random.key(0))
    on_input = Router(jitter=0.1).logits(wg, x, jax.random.key(0))
    on_logits = Router(jitter=0.1, jitter_on="logits").logits(wg, x, jax.random.key(0))
    added = np.asarray(on_logits - clean)
    assert added.min() > 0.9 - 1e-5
    assert added.max() < 1.1 + 1e-5
    bound = 0.1 * jnp.einsum("GSM,ME->GSE", jnp.abs(x), jnp.abs(wg)) + 1e-5
    assert bool((jnp.abs(on_input - clean) < bound).all())
    assert bool((on_input != clean).any())
    for router in (Router(jitter=0.1), Router(jitter=0.1, jitter_on="logits")):
        np.testing.assert_array_equal(router.logits(wg, x, None), clean)


def test_the_router_is_float32_inside_a_bfloat16_model_unless_told_otherwise() -> None:
    wg, x, _ = draw(0, 1, 8, 4)
    narrow = x.astype(jnp.bfloat16)
    exact = jnp.einsum("GSM,ME->GSE", narrow.astype(jnp.float32), wg, precision="highest")
    np.testing.assert_allclose(Router().logits(wg, narrow, None), exact, rtol=1e-6)
    assert bool((Router(dtype="bfloat16").logits(wg, narrow, None) != exact).any())


def test_sampled_second_choices_follow_the_gates() -> None:
    gates = jnp.tile(jnp.array([0.5, 0.3, 0.15, 0.05]), (1, 4000, 1))
    gate = TopKGate(rules=Rules(choices=2), sampled=True)
    scores = gate._scores(gates, jax.random.key(0))
    routing = gate.route(gates, 4000, valid=jnp.ones((1, 4000), bool), scores=scores)
    assert set(np.asarray(routing.expert[..., 0]).reshape(-1).tolist()) == {0}
    share = np.bincount(np.asarray(routing.expert[..., 1]).reshape(-1), minlength=4) / 4000
    assert share == pytest.approx([0, 0.6, 0.3, 0.1], abs=0.03)


def test_uniform_choices_go_round_the_experts() -> None:
    wg, x, _ = draw(0, 1, 6, 4)
    gate = TopKGate(rules=Rules(choices=2), uniform=True)
    routing = gate({"wg": wg}, x, jnp.ones((1, 6), bool), capacity=3, key=None)
    assert routing.expert[0].tolist() == [[0, 1], [2, 3]] * 3
    assert routing.statistics.load.tolist() == [[3] * 4]


@pytest.mark.parametrize("uniform", [False, True])
def test_whether_choices_are_uniform_may_change_from_step_to_step(uniform: bool) -> None:
    wg, x, valid = draw(0, 2, 6, 4)

    def chosen(uniform: bool | jax.Array) -> jax.Array:
        settings = MoeSettings(experts=4, groups=2, capacity=Capacity(slots=6)).in_turn(jnp.array(uniform))
        assert isinstance(settings.gate, TopKGate)
        return settings.gate({"wg": wg}, x, valid, capacity=6, key=None).expert

    expected = TopKGate(rules=Rules(choices=2), uniform=uniform)({"wg": wg}, x, valid, capacity=6, key=None)
    assert jax.jit(chosen)(uniform).tolist() == expected.expert.tolist()


def test_the_first_steps_of_a_training_are_uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every expert is as busy as any other, whatever the router, until ``uniform_steps`` steps are taken."""
    sizes: dict[str, Any] = {"experts": 4, "layers": 4, "model_dim": 8, "hidden_dim": 8, "heads": 1, "head_dim": 8}
    few = {"source_vocab": 16, "target_vocab": 16, "batch": 4, "length": 8, "uniform_steps": 2}

    def loads_alone(config: Any, params: Any, batch: Any, key: Any, uniform: Any) -> Any:
        report = encode(config, params, batch, None, uniform)[1]
        return jnp.float32(0), {"load": report.load.max()}

    monkeypatch.setattr(family, "loss", loads_alone)
    workload = family.gshard(**sizes, **few)
    params, opt, batch = jax.tree.map(lambda x: np.ones(x.shape, x.dtype), workload.args)
    batch["source"] = np.arange(32, dtype=np.int32).reshape(4, 8) % 12 + 4
    params = jax.tree.map(lambda x: np.random.default_rng(0).normal(size=x.shape).astype(np.float32), params)
    step = jax.jit(workload.step).lower(params, opt, batch).compile({"xla_backend_optimization_level": "0"})
    loads = [float(step(params, {**opt, "count": np.int32(count)}, batch)[2]["load"]) for count in range(4)]
    assert loads[:2] == [1.0, 1.0]
    assert min(loads[2:]) > 1.2


@pytest.mark.parametrize(
    ("rule", "factor", "tokens", "choices", "experts", "slots"),
    [
        ("gshard", 1.0, 2048, 2, 128, 32),
        ("gshard", 1.0, 6, 2, 8, 1.5),
        ("switch", 1.25, 100, 1, 8, 15),
        ("switch", 1.0, 4, 1, 8, 0),
        ("tutel", 1.0, 100, 2, 8, 26),
        ("flaxformer", 1.25, 100, 2, 8, 16),
        ("flaxformer", 1.0, 8, 1, 8, 4),
        ("lingvo", 2.0, 100, 2, 8, 28),
        ("lingvo", 2.0, 3, 2, 8, 4),
        ("mtf", 1.25, 3, 2, 8, 4),
        ("mtf", 9.0, 16, 2, 8, 16),
        ("fastmoe", 1.2, 100, 2, 8, 30),
    ],
)
def test_capacities_are_those_of_the_systems(
    rule: Any, factor: float, tokens: int, choices: int, experts: int, slots: float
) -> None:
    assert slots_of(rule, factor, group_tokens=tokens, choices=choices, experts=experts) == slots


@pytest.mark.parametrize(("gate", "published"), [(g, p) for g, systems in PUBLISHED.items() for p in systems])
def test_every_published_gate_can_be_made(gate: str, published: str) -> None:
    choices = MoeChoices(gate=gate, published=published)
    made = choices.settings(8, 4, 64)
    assert made.capacity.slots >= 4
    assert hash(made) == hash(MoeChoices(gate=gate, published=published).settings(8, 4, 64))
