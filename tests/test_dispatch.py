"""Every dispatch gives what a loop over tokens and their choices gives, forward and gradient."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from meshwright.backends.jax.models.moe import Capacity, MoeSettings, Rules, moe_layer
from meshwright.backends.jax.models.moe.capacity import at_capacity
from meshwright.backends.jax.models.moe.dispatch import Dispatch
from meshwright.backends.jax.models.moe.dispatch.einsum import EinsumDispatch
from meshwright.backends.jax.models.moe.dispatch.index import IndexDispatch
from meshwright.backends.jax.models.moe.dispatch.sorted import SortedDispatch
from meshwright.backends.jax.models.moe.experts import AnyExperts, FeedForward
from meshwright.backends.jax.models.moe.gates.expert_choice import ExpertChoiceGate
from meshwright.backends.jax.models.moe.gates.top_k import TopKGate
from meshwright.backends.jax.models.moe.grouped import grouped_product

M, H = 4, 6
DISPATCHES: dict[str, Dispatch] = {
    "einsum": EinsumDispatch(),
    "index": IndexDispatch(),
    "sorted": SortedDispatch(),
    "sorted, filled": SortedDispatch(multiple=8),
}
Array = np.ndarray[Any, Any]


def draw(seed: int, G: int, S: int, E: int, *, router: str, dtype: str = "float32") -> dict[str, Any]:
    """A layer's weights and tokens; the router is random, prefers one expert by far, or finds all alike (ties)."""
    rng = np.random.default_rng(seed)
    wg = {"random": rng.normal(size=(M, E)), "skewed": np.zeros((M, E)), "uniform": np.zeros((M, E))}[router]
    if router == "skewed":
        wg[:, rng.integers(E)] = 3.0
    x = rng.normal(size=(G, S, M))
    tokens = jnp.array(np.abs(x) if router == "skewed" else x, dtype)
    params = {"wg": wg, "wi": rng.normal(size=(E, M, H)), "wo": rng.normal(size=(E, H, M))}
    return {"params": jax.tree.map(jnp.float32, params), "x": tokens, "valid": jnp.array(rng.random((G, S)) < 0.8)}


def loop(params: dict[str, Any], x: jax.Array, routing: Any) -> Array:
    """What the experts say of each token, one choice at a time, in float64."""
    inputs, wi, wo = (np.asarray(z, np.float64) for z in (x, params["wi"], params["wo"]))
    out = np.zeros(x.shape)
    for g, s, k in np.argwhere(routing.kept):
        e = routing.expert[g, s, k]
        out[g, s] += float(routing.weight[g, s, k]) * (np.maximum(inputs[g, s] @ wi[e], 0) @ wo[e])
    return out


@functools.cache
def layers(G: int, E: int, capacity: int, choices: int) -> Any:
    """All dispatches at once, compiled: the routing, and what comes out."""
    gate = TopKGate(rules=Rules(choices=choices))

    def run(params: Any, x: jax.Array, valid: jax.Array) -> Any:
        outs = {}
        for name, dispatch in DISPATCHES.items():
            made = MoeSettings(experts=E, groups=G, capacity=Capacity(slots=capacity), gate=gate, dispatch=dispatch)
            outs[name], _ = moe_layer(params, x, valid, made, key=None)
        return gate(params, x, valid, capacity=capacity, key=None), outs

    return jax.jit(run)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    case=st.sampled_from([(1, 1, 1, 1, 1), (1, 1, 4, 1, 3), (2, 6, 1, 2, 2), (3, 8, 4, 2, 2), (2, 3, 8, 24, 2)]),
    router=st.sampled_from(["random", "skewed", "uniform"]),
    dtype=st.sampled_from(["float32", "bfloat16"]),
)
@example(seed=0, case=(3, 8, 4, 2, 2), router="skewed", dtype="float32")
@example(seed=0, case=(3, 8, 4, 2, 2), router="random", dtype="bfloat16")
def test_every_dispatch_equals_a_loop_over_choices(
    seed: int, case: tuple[int, int, int, int, int], router: str, dtype: str
) -> None:
    """Cases: groups, tokens, experts, capacity, choices."""
    G, S, E, capacity, choices = case
    dtype = dtype if S == 8 else "float32"  # each dtype is compiled anew
    given_ = draw(seed, G, S, E, router=router, dtype=dtype)
    routing, outs = layers(G, E, capacity, choices)(**given_)
    expected = loop(given_["params"], given_["x"], jax.tree.map(np.asarray, routing))
    for name, out in outs.items():
        tolerance = 1e-5 if dtype == "float32" else 0.02 * (1 + np.abs(expected).max())
        np.testing.assert_allclose(np.asarray(out, np.float64), expected, rtol=1e-5, atol=tolerance, err_msg=name)


def gradient_of(made: MoeSettings) -> Any:
    def value(params: Any, x: jax.Array, valid: jax.Array) -> jax.Array:
        out, _ = moe_layer(params, x, valid, made, key=None)
        return (out * jnp.cos(jnp.arange(out.size).reshape(out.shape))).sum()

    return jax.grad(value, argnums=(0, 1))


def all_alike(made: list[MoeSettings], routers: tuple[str, ...] = ("random", "skewed", "uniform")) -> None:
    """Each of ``made`` has the gradient of the first, on 2 groups of 8 tokens and 4 experts."""
    compiled = jax.jit(lambda *given_: [gradient_of(each)(*given_) for each in made])
    for router in routers:
        first, *others = compiled(*draw(7, 2, 8, 4, router=router).values())
        for other in others:
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), first, other)


@pytest.mark.parametrize("capacity", [2, 8])
def test_gradients_are_those_of_one_hot_products(capacity: int) -> None:
    shared = {"experts": 4, "groups": 2, "capacity": Capacity(slots=capacity)}
    all_alike([MoeSettings(**shared, dispatch=dispatch) for dispatch in DISPATCHES.values()])


def test_experts_that_choose_are_dispatched_alike() -> None:
    """Fewer slots than choices: what returns to tokens is scattered by slot."""
    shared = {"experts": 4, "groups": 2, "capacity": Capacity(slots=3), "gate": ExpertChoiceGate()}
    all_alike([MoeSettings(**shared, dispatch=dispatch) for dispatch in DISPATCHES.values()], ("random",))


def test_buffers_by_index_are_those_of_one_hot_products_bit_for_bit() -> None:
    given_ = draw(5, 2, 8, 4, router="random", dtype="bfloat16")
    routing = TopKGate()(given_["params"], given_["x"], given_["valid"], capacity=3, key=None)
    sent = []
    for dispatch in (EinsumDispatch(), IndexDispatch()):
        prepared = dispatch.prepare(routing, experts=4, capacity=3)
        sent.append(dispatch.send(prepared, given_["x"], experts=4, capacity=3))
    np.testing.assert_array_equal(*sent)


def test_sorted_tokens_stand_expert_by_expert() -> None:
    given_ = draw(5, 2, 8, 4, router="random")
    routing = TopKGate()(given_["params"], given_["x"], given_["valid"], capacity=8, key=None)
    dispatch = SortedDispatch(multiple=4)
    sent = dispatch.send(dispatch.prepare(routing, experts=4, capacity=8), given_["x"], experts=4, capacity=8)
    assert (np.asarray(sent.sizes) % 4 == 0).all()
    for g in range(2):
        start = 0
        for e, size in enumerate(np.asarray(sent.sizes[g])):
            rows = {tuple(row) for row in np.asarray(sent.rows[g, start : start + size]).tolist() if any(row)}
            wanted = {
                tuple(np.asarray(given_["x"][g, s]).tolist())
                for s, k in np.argwhere(routing.expert[g] == e)
                if routing.kept[g, s, k]
            }
            assert rows == wanted
            start += size


@pytest.mark.parametrize("kernel", ["blocks", "ragged_dot", "auto"])
def test_grouped_products_and_their_gradients_equal_a_loop(kernel: Any) -> None:
    rng = np.random.default_rng(0)
    sizes = np.array([0, 130, 1, 0, 128, 41], np.int32)
    rows, weights = jnp.float32(rng.normal(size=(310, 5))), jnp.float32(rng.normal(size=(6, 5, 7)))
    expert = np.repeat(np.arange(6), sizes)

    def plain(rows: jax.Array, weights: jax.Array) -> jax.Array:
        return jnp.einsum("nm,nmh->nh", rows[:300], weights[expert])

    def value(product: Any) -> Any:
        return jax.value_and_grad(lambda r, w: jnp.sin(product(r, w)).sum(), argnums=(0, 1))

    wanted = value(plain)(rows, weights)
    found = value(lambda r, w: grouped_product(r, w, jnp.array(sizes), kernel)[:300])(rows, weights)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), wanted, found)


def test_any_module_may_be_the_expert() -> None:
    given_ = draw(11, 2, 8, 4, router="random")
    params = {**given_["params"], "experts": {"in": given_["params"]["wi"], "out": given_["params"]["wo"]}}

    def module(weights: Any, tokens: jax.Array) -> jax.Array:
        return jax.nn.relu(tokens @ weights["in"]) @ weights["out"]

    @jax.jit
    def run() -> list[jax.Array]:
        shared = {"experts": 4, "groups": 2, "capacity": Capacity(slots=8)}
        made = [
            MoeSettings(**shared),
            *(MoeSettings(**shared, dispatch=d, work=AnyExperts(module=module)) for d in DISPATCHES.values()),
        ]
        return [moe_layer(params, given_["x"], given_["valid"], each, key=None)[0] for each in made]

    feed_forward, *others = run()
    for other in others:
        np.testing.assert_allclose(feed_forward, other, rtol=1e-5, atol=1e-5)


def test_a_capacity_found_anew_gives_the_numbers_of_the_largest() -> None:
    shared = {"experts": 4, "groups": 2, "dispatch": IndexDispatch()}
    sizes = (Capacity(slots=8), Capacity(slots=8, smaller=(2, 5)))
    all_alike([MoeSettings(**shared, capacity=each) for each in sizes])


def test_a_capacity_found_anew_runs_the_smallest_size_that_holds_all() -> None:
    """Told by what runs: a size too small would drop, a larger one would compute more."""
    given_ = draw(13, 2, 8, 4, router="random")
    for capacity in (2, 8):
        routing = TopKGate()(given_["params"], given_["x"], given_["valid"], capacity=capacity, key=None)
        sizes = Capacity(slots=capacity, smaller=tuple(range(1, capacity)))
        needed = 1 + int(np.where(routing.kept, routing.slot, -1).max())
        assert int(at_capacity(sizes, routing, jnp.int32)) == needed


def test_experts_dropout_zeroes_hidden_values_while_training_alone() -> None:
    work = FeedForward(dropout=0.5)
    weights, sent = {"wi": jnp.ones((2, M, 100)), "wo": jnp.ones((2, 100, M))}, jnp.ones((2, 1, 64, M))
    calm, said = work(weights, sent, key=None), work(weights, sent, key=jax.random.key(0))
    assert np.unique(np.asarray(calm)).tolist() == [4 * 100]
    assert float(said.mean()) == pytest.approx(4 * 100, rel=0.02)  # scaled up by what is left
    assert len(np.unique(np.asarray(said))) > 10
