"""What products need in whatever order they are computed: it is never more than a device holds, and it proves."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_steps
from extent import some
from meshwright.backends.jax.drafts import Drafts
from meshwright.dsl.plan import Plan
from meshwright.dsl.reader import loads
from meshwright.planner.program import Known, Program, build, exceeds_anywhere
from meshwright.planner.program.solving.exact import exact_memory
from meshwright.planner.solver.rows_used import usage_of, used_by
from meshwright.planner.solver.solve import solve
from meshwright.planner.topology import physical
from small_graphs import nothing
from small_steps import Pair

MIB = 1 << 20
LOOKS = 100
SHAPE = small_steps.shape


def computed_anew(x: jax.Array, w: jax.Array) -> tuple[jax.Array, ...]:
    y = x + 1
    return x.T @ x, x @ (x.T @ y), x.sum(1), y[:512].sum(0), y[:512] + w


def viewed(x: jax.Array, w: jax.Array) -> tuple[jax.Array, ...]:
    y = jnp.tanh(-x)
    return y.sum(0), y @ w, y.reshape(256, 8192)


def rounded(x: jax.Array, w: jax.Array, v: jax.Array) -> tuple[jax.Array, ...]:
    y = (x + x) @ w
    return y.sum(0), (y @ v) @ (y @ v)


def rejoined(x: jax.Array, w: jax.Array, b: jax.Array, c: jax.Array, a: jax.Array) -> jax.Array:
    v = x @ w
    h = jax.nn.relu(v @ b) @ c
    return (v @ a) * (jnp.sum(jax.nn.relu(h), 1, keepdims=True) + jnp.max(h, 1, keepdims=True))


def gelu() -> Pair:
    """The gradient of each product's end needs that as wide as it is made."""

    def loss(params: Any, x: jax.Array) -> jax.Array:
        for own in params:
            x = x + jax.nn.gelu(x @ own["wi"] + own["b"]) @ own["wo"]
        return jnp.mean(x**2)

    own = {"wi": SHAPE(512, 2048), "wo": SHAPE(2048, 512), "b": SHAPE(2048)}
    return small_steps.trained(loss, [own] * 2, SHAPE(2048, 512))


def added_up() -> Pair:
    """The gradients of four parts of a batch, one after the other."""

    def step(w: Any, x: jax.Array) -> Any:
        def loss(w: Any, own: jax.Array) -> jax.Array:
            return jnp.mean((jax.nn.relu(own @ w["i"]) @ w["o"]) ** 2)

        def turn(known: Any, own: jax.Array) -> Any:
            return jax.tree.map(jnp.add, known, jax.grad(loss)(w, own)), None

        found, _ = jax.lax.scan(turn, jax.tree.map(jnp.zeros_like, w), x.reshape(4, -1, 512))
        return jax.tree.map(lambda a, b: a - 0.1 * b, w, found)

    return step, ({"i": SHAPE(512, 2048), "o": SHAPE(2048, 512)}, SHAPE(4096, 512))


def scored() -> Pair:
    """Scores in bfloat16 of which labels' are looked up in float32, those of the products being read later."""

    def loss(params: Any, x: jax.Array, labels: jax.Array) -> jax.Array:
        scores = (x @ params["i"]).astype(jnp.bfloat16) @ params["o"].astype(jnp.bfloat16)
        own = jax.nn.log_softmax(scores.astype(jnp.float32))
        return -jnp.mean(jnp.take_along_axis(own, labels[:, None], 1))

    params = {"i": SHAPE(256, 256), "o": SHAPE(256, 8192)}
    return small_steps.trained(loss, params, SHAPE(8192, 256), SHAPE(8192, dtype=jnp.int32))


STEPS: dict[str, Callable[[], Pair]] = {
    "scores that are looked up": scored,
    "products": lambda: small_steps.mlp(layers=2),
    "experts": small_steps.experts,
    "products whose ends are read as wide as they are made": gelu,
    "a loop": lambda: small_steps.scanned(8192, 1024, 2048, 3),
    "turns that add up": added_up,
    "what is computed anew": lambda: (computed_anew, (SHAPE(1024, 512), SHAPE(512, 512))),
    "a view of what is gathered": lambda: (viewed, (SHAPE(512, 4096), SHAPE(4096, 4096))),
    "what a sum parts from its end": lambda: (
        rejoined,
        (SHAPE(65536, 16), SHAPE(16, 1024), SHAPE(1024, 1024), SHAPE(1024, 2048), SHAPE(1024, 16)),
    ),
    "what products round": lambda: (rounded, (SHAPE(512, 1024), SHAPE(1024, 4096), SHAPE(4096, 512))),
}


def asked(topology: str, mesh: str) -> Plan:
    return loads(f"meshwright: 1\ntopology: {topology}\nmesh: {mesh}\ntensors: {{}}\n")


def program(pair: Pair, topology: str, mesh: str, limit_bytes: int | None = None) -> Program:
    plan = asked(topology, mesh)
    assert plan.topology is not None
    workload = Drafts(*pair)
    returned = {each.path: each.returns for each in workload.tensors if each.returns}
    machine = physical(plan.topology)
    return build(workload.graph(plan), plan.mesh, machine, returned=returned, limit_bytes=limit_bytes)


@pytest.mark.parametrize(
    ("topology", "mesh"), some([("v3:2x2", "{a: 4, b: 2}"), ("v5e:2x4", "{a: 4, b: 2}"), ("cpu:8", "{a: 8}")])
)
@pytest.mark.parametrize("name", STEPS)
def test_no_solution_holds_less_than_is_needed(name: str, topology: str, mesh: str) -> None:
    found = program(STEPS[name](), topology, mesh)
    free = solve(found.problem(None, nothing(found), guess=False), time_limit_s=60)
    assert free.choices is not None
    chosen, moves, drawn = free.choices[: len(found.deciders)], found.moves(), random.Random(0)
    near, graph, known = -math.inf, Drafts(*STEPS[name]()).graph(asked(topology, mesh)), Known()
    for _ in range(LOOKS):
        others = list(moves.others(drawn.randrange(len(chosen)), chosen))
        other = drawn.choice(others) if others else chosen
        peak = exact_memory(found.wiring, found.choices(other), found.machine).peak_bytes
        rows = found.problem(peak, nothing(found), guess=False, sure=True)
        above = float(((used_by(usage_of(rows), np.array(other)) - rows.limits) / peak).max())
        assert above <= 0
        assert not exceeds_anywhere(graph, found.mesh, found.machine, peak, known)
        if above >= near or drawn.random() < 0.2:
            chosen, near = other, above  # those of which it says most are looked at further


def test_rows_as_kernels_stand_have_what_products_read_in_other_layouts_and_add_up() -> None:
    """Without that they say little more than half of what is held."""

    def two(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
        return jnp.tanh(x @ w) @ v

    found = program((two, (SHAPE(2048, 1024), SHAPE(1024, 4096), SHAPE(4096, 512))), "v3:2x2", "{a: 4, b: 2}")
    free = solve(found.problem(None, nothing(found), guess=False), time_limit_s=60)
    assert free.choices is not None
    chosen, moves, drawn = free.choices[: len(found.deciders)], found.moves(), random.Random(0)
    said = []
    for _ in range(LOOKS):
        others = list(moves.others(drawn.randrange(len(chosen)), chosen))
        chosen = drawn.choice(others) if others else chosen
        peak = exact_memory(found.wiring, found.choices(chosen), found.machine).peak_bytes
        rows = found.problem(peak, nothing(found), guess=False)
        said.append(1 + float(((used_by(usage_of(rows), np.array(chosen)) - rows.limits) / peak).max()))
    assert np.mean(said) > 0.7
    assert max(said) < 1.1


def test_what_products_read_and_add_up_proves_that_nothing_fits() -> None:
    """What is live between kernels alone would allow 32 MiB."""
    pair = small_steps.mlp(8192, 1024, 4096, 1, momentum=True)
    found = program(pair, "v3:2x2", "{a: 4, b: 2}", 33 * MIB).solve(time_limit_s=60)
    assert found.status == "infeasible"


def test_what_a_loop_stacks_for_more_than_products_is_there_as_wide_as_it_is() -> None:
    """64 MiB of a device's are 4 x 8192 x 4096 numbers, of which products alone would read 32: it takes 192 in all."""

    def loss(params: Any, x: jax.Array) -> jax.Array:
        def layer(x: jax.Array, w: Any) -> tuple[jax.Array, None]:
            return x + jnp.tanh(x @ w["i"]) @ w["o"], None

        return jnp.sum(jax.lax.scan(layer, x, params)[0] ** 2)

    params = {"i": SHAPE(4, 512, 4096), "o": SHAPE(4, 4096, 512)}
    found = program(small_steps.trained(loss, params, SHAPE(8192, 512)), "v3:2x2", "{a: 4, b: 2}")
    rows = found.problem(120 * MIB, nothing(found), guess=False, sure=True)
    assert solve(rows, time_limit_s=60).status == "infeasible"


def test_what_a_loop_fills_in_turns_is_there_during_all_of_them() -> None:
    """Gradients of 16 MiB are stacked beside what the forward loop leaves: without them 67 MiB would do."""
    found = program(small_steps.scanned(), "v3:2x2", "{a: 2, b: 4}")
    rows = found.problem(80 * MIB, nothing(found), guess=False, sure=True)
    assert solve(rows, time_limit_s=60).status == "infeasible"


def test_what_is_read_of_a_product_is_there_until_then_as_it_was_made_or_computed_of_it() -> None:
    """Positive numbers of 8 MiB, or those that they are of, are there until the gradient of the second weight."""
    found = program(small_steps.mlp(8192, 1024, 4096, 1, momentum=True), "v3:2x2", "{a: 2, b: 4}")
    rows = found.problem(49 * MIB, nothing(found), guess=False, sure=True)
    assert solve(rows, time_limit_s=60).status == "infeasible"


def test_what_ends_a_product_is_there_while_that_is_made_and_until_it_is_read() -> None:
    """The gradient of what experts hide is masked at the end of a product, 4 MiB in bfloat16, beside all that they
    hide, 8 MiB, by which it is: without either 23 MiB would do.
    """
    found = program(small_steps.experts(), "v3:2x2", "{x: 2, y: 4}")
    rows = found.problem(30 * MIB, nothing(found), guess=False, sure=True)
    assert solve(rows, time_limit_s=60).status == "infeasible"


def is_proven_anywhere(pair: Pair, topology: str, mib: int) -> bool:
    """Whether it is proven that no mesh of eight devices holds a step in so much."""
    plan = asked(topology, "{a: 8}")
    assert plan.topology is not None
    return exceeds_anywhere(Drafts(*pair).graph(plan), plan.mesh, physical(plan.topology), mib * MIB, Known())


@pytest.mark.parametrize(("mib", "proven"), [(27, True), (44, True), (45, False)])
def test_what_no_mesh_can_hold_is_proven_without_one(mib: int, proven: bool) -> None:
    """What is found on a mesh of 4 x 2 cores takes 60 MiB, where 44 are proven to be too little."""
    assert is_proven_anywhere(small_steps.mlp(8192, 1024, 4096, 1, momentum=True), "v3:2x2", mib) == proven


@pytest.mark.parametrize(("mib", "proven"), [(505, True), (580, False)])
def test_fast_memory_holds_none_of_what_is_larger_than_that(mib: int, proven: bool) -> None:
    """A device's parts of 256 and 128 MiB of what is hidden are there at once, where 112 MiB of fast memory may be
    filled; what is found takes 550 MiB.
    """
    assert is_proven_anywhere(small_steps.mlp(65536, 2048, 8192, 1, momentum=True), "v5e:2x4", mib) == proven


@pytest.mark.parametrize(("mib", "proven"), [(51, True), (60, False)])
def test_what_rows_are_looked_up_in_is_beside_what_it_is_computed_of(mib: int, proven: bool) -> None:
    """Scores of 16 MiB in bfloat16, which the gradient reads, and 32 in float32, though the labels' may be looked up
    when these are gone: without both 20 MiB would do.
    """
    assert is_proven_anywhere(scored(), "v3:2x2", mib) == proven


def test_what_does_not_fit_in_one_order_of_kernels_is_not_proven_not_to() -> None:
    """The mask of the gradient of logits is made early in the program, and late or in passing by the compiler."""
    found = program(tied(), "v3:4x4", "{x: 4, y: 8}", 330 * MIB).solve(time_limit_s=60)
    assert found.layouts is not None
    assert found.peak_bytes <= 330 * MIB
    assert found.bound_s <= found.objective_s


def tied(batch: int = 64, length: int = 512, width: int = 1024, words: int = 32000) -> Pair:
    """A language model of one block, whose logits are by the embedding."""

    def loss(params: Any, tokens: Any) -> jax.Array:
        x = params["e"][tokens]
        x = x + jax.nn.relu(x @ params["i"]) @ params["o"]
        logits = jax.nn.log_softmax(jnp.einsum("btm,vm->btv", x, params["e"]))
        return -jnp.mean(jnp.take_along_axis(logits[:, :-1], tokens[:, 1:, None], -1))

    shape = SHAPE
    params = {"e": shape(words, width), "i": shape(width, 4 * width), "o": shape(4 * width, width)}
    return small_steps.trained(loss, params, shape(batch, length, dtype=jnp.int32))
