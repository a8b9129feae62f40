"""The program against whole prices where kernels share work: what it finds on steps of every kind is proven close."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
import pytest
import small_steps
from meshwright.planner.estimate.figures import Estimate
from meshwright.planner.kinds import COLLECTIVE_PERMUTE
from meshwright.planner.lookups import filled
from meshwright.planner.program.solving.decode import laid_out
from meshwright.planner.program.solving.solutions import PER_S, Solutions
from meshwright.planner.solver.solve import solve
from small_graphs import exact_of, nothing
from small_steps import CONVOLUTION, program_of, shape, trained

CLOSE = 0.01
HEAD = "meshwright: 1\ntopology: v5e:2x4\nmesh: {a: 2, b: 4}\n"


def computed_anew(layers: int = 2, rows: int = 4096, width: int = 2048) -> small_steps.Pair:
    """Gradients of layers, each of which is computed again behind a barrier when its gradient comes."""

    @jax.checkpoint
    def layer(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(jnp.tanh(x @ w) @ w.T)

    def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        for w in weights:
            x = layer(x, w)
        return jnp.mean(x**2)

    weights = [jax.ShapeDtypeStruct((width, width), jnp.float32)] * layers
    return jax.value_and_grad(loss), (weights, jax.ShapeDtypeStruct((rows, width), jnp.float32))


def test_what_is_computed_anew_is_priced_so() -> None:
    pair = computed_anew()
    program = program_of(pair, "v5e:2x4", "{a: 2, b: 4}")
    solved = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert solved.choices is not None
    took = exact_of(program, program.choices(solved.choices)).estimate
    by_hand = mw.estimate(mw.loads(f"{HEAD}tensors: {{'**': replicate}}\n"), *pair)
    assert _products_anew(took) >= _products_anew(by_hand) > 0


def _products_anew(found: Estimate) -> int:
    scopes = [kernel.origin.scope or "" for kernel in found.kernels]
    return sum("rematted" in scope and "dot_general" in scope for scope in scopes)


def embedded(vocab: int = 8192, width: int = 512, batch: int = 16, length: int = 128) -> small_steps.Pair:
    """A step of looked-up rows, normed: their gradient is scattered into the table."""

    def loss(params: dict[str, jax.Array], tokens: jax.Array) -> jax.Array:
        rows = params["table"][tokens]
        rows = rows - rows.mean(-1, keepdims=True)
        rows = rows * jax.lax.rsqrt((rows * rows).mean(-1, keepdims=True) + 1e-5) * params["scale"]
        return jnp.mean((rows @ params["w"]) ** 2)

    shape = small_steps.shape
    params = {"table": shape(vocab, width), "scale": shape(width), "w": shape(width, 4 * width)}
    return small_steps.trained(loss, params, shape(batch, length, dtype=jnp.int32))


@pytest.mark.parametrize(
    ("pair", "topology", "mesh", "close"),
    [
        pytest.param(
            small_steps.mlp(tokens=4096, width=2048, hidden=8192, layers=1, momentum=True),
            "v3:4x4",
            "{a: 4, b: 8}",
            CLOSE,
            id="what products write beside their own",
        ),
        pytest.param(
            small_steps.experts(),
            "v5e:2x4",
            "{a: 2, b: 4}",
            0.014,  # whether what is gathered as the step ends lies near is known of whole programs alone
            id="masks that several products read",
        ),
        pytest.param(small_steps.blocks(), "v5e:2x4", "{a: 2, b: 4}", 0.011, id="weights that several gather"),
        pytest.param(
            small_steps.convolved(batch=32, size=256, channels=64, layers=3),
            "v3:4x4",
            "{a: 4, b: 8}",
            0.035,  # what convolutions write beside their images takes more than where it is written alone
            id="images, of which masks are left",
        ),
        pytest.param(
            small_steps.mlp(tokens=256, width=4096, hidden=16384, layers=1, momentum=True),
            "v5e:2x4",
            "{a: 8}",
            0.025,  # one product's operands lie near or not by when its sum is awaited
            id="sums that their own kernels read",
        ),
        pytest.param(embedded(), "v3:2x2", "{a: 8}", 0.03, id="what is computed of what others compute in passing"),
    ],
)
def test_what_kernels_share_is_in_the_program(pair: small_steps.Pair, topology: str, mesh: str, close: float) -> None:
    found = program_of(pair, topology, mesh).solve()
    assert found.layouts is not None
    assert found.objective_s * (1 - close) <= found.bound_s <= found.objective_s * (1 + 1e-3)


def test_what_several_compute_in_passing_is_written_only_to_be_brought_elsewhere() -> None:
    """As it lies each of its readers computes it: nothing in a step laid out would have it written."""
    wiring = program_of(small_steps.attention(), "v5p:2x2x1", "{a: 4}").wiring
    tables = [
        (wiring.nodes[node].layouts[value], wiring.nodes[shared].layouts[value], wiring.tables[ends])
        for (_, value), shared in wiring.through.items()
        for node in (number for number, each in enumerate(wiring.nodes) if each.in_passing and value in each.layouts)
        if (ends := (min(node, shared), max(node, shared))) in wiring.tables
    ]
    assert tables
    for lies, brought, table in tables:
        alike = np.array([[one == other for other in brought] for one in lies])
        assert set(table[alike].tolist()) == {0.0, np.inf}


def test_what_something_is_brought_into_at_once_nothing_is_brought_into_by_way_of_another_layout() -> None:
    """A plan has one layout of what a product reads: where one cannot say on which way, what it reads is there."""
    program = program_of(small_steps.experts(top=2), "v5e:2x4", "{a: 2, b: 4}")
    wiring, rng = program.wiring, np.random.default_rng(0)
    level, by_way = wiring.levels[0], 0
    for _ in range(60):
        found = laid_out(wiring, level, [int(rng.integers(len(node.costs))) for node in wiring.nodes])
        by_way += len(found.through)
        at_once = {(key[1], want) for key, want in found.wanted.items() if key not in found.through}
        assert at_once.isdisjoint((key[1], found.wanted[key]) for key in found.through)
    assert by_way


def test_what_products_round_is_there_where_others_have_it_brought_there_as_it_is() -> None:
    """Nothing is sent for it then; it is no way to have it in a layout in which they do not."""
    wiring = program_of(small_steps.blocks(), "v5e:2x4", "{a: 2, b: 4}").wiring
    assert wiring.along
    for shared, (choices, wide) in wiring.along.items():
        ((value, lies),) = wiring.nodes[shared].layouts.items()
        made = wiring.levels[0].source[value].node
        if wiring.nodes[made].in_passing:
            continue
        sent, beside = (wiring.tables[node, shared][:, choices] for node in (made, wide))
        assert wiring.tables[made, shared].any()
        assert not sent.any()
        there = wiring.nodes[wide].layouts[value]
        alike = np.array([[one == lies[choice] for choice in choices] for one in there])
        assert np.array_equal(beside, np.where(alike, 0.0, np.inf))


def normed(rows: int = 4096, width: int = 1024) -> small_steps.Pair:
    """What products round is computed in passing, and added to what they make."""

    def loss(params: Any, x: jax.Array) -> jax.Array:
        x = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
        return jnp.mean((x + jax.nn.gelu(x @ params["in"]) @ params["out"]) ** 2)

    return trained(loss, {"in": shape(width, 4 * width), "out": shape(4 * width, width)}, shape(rows, width))


def test_what_is_computed_in_passing_is_sent_once_for_what_rounds_it_and_for_what_does_not() -> None:
    wiring = program_of(normed(), "v5e:2x4", "{a: 8}").wiring
    made = {shared: value for (_, value), shared in wiring.through.items()}
    sources = [(wiring.levels[0].source[made[shared]].node, shared) for shared in wiring.along]
    passing = [ends for ends in sources if wiring.nodes[ends[0]].in_passing]
    assert passing
    for node, shared in passing:
        value, (choices, wide) = made[shared], wiring.along[shared]
        lies, there, other = (wiring.nodes[each].layouts[value] for each in (node, shared, wide))
        sent, beside = (wiring.tables[min(each, shared), max(each, shared)] for each in (node, wide))
        alike = np.array([[there[choice] == one for choice in choices] for one in lies])
        assert np.array_equal(sent[:, choices], np.where(alike, np.inf, 0.0))  # as it is made nobody brings it there
        assert all(
            np.isfinite(beside[at, choice]) == (other[at] == there[choice])
            for at in range(len(other))
            for choice in choices
        )


def test_an_update_reads_the_pieces_of_its_gradient_as_they_come() -> None:
    """What ends a product is computed number by number: nothing puts what is exchanged for it in order first."""
    program = program_of(small_steps.mlp(tokens=8192, width=2048, hidden=2048, layers=1), "v3:2x2", "{a: 4, b: 2}")
    wiring, top = program.wiring, program.wiring.levels[0]
    updated = {end.node for value, end in wiring.ends.items() if len(top.graph.shape(value)) == 2}
    ended = [node for node in wiring.nodes if node.ended is not None and set(node.layouts) & set(top.source)]
    for number in updated:
        argument = wiring.nodes[number]
        (lies,) = argument.layouts.values()
        argument.costs = np.where([each == (("a", "b"), ()) for each in lies], 0.0, 1.0)
    for node in ended:
        (made,) = (each for each in node.layouts if each in top.source and wiring.nodes[top.source[each].node] is node)
        node.costs = node.costs + np.where([each == (("a",), ("b",)) for each in node.layouts[made]], 0.0, 1.0)
    solved = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert updated
    assert ended
    assert solved.choices is not None
    took = exact_of(program, program.choices(solved.choices))
    assert min(each.seconds for each in took.missed) > -1e-7  # and no part of the step takes less than it costs


def test_what_a_scatter_fills_takes_nothing_by_itself() -> None:
    program = program_of(embedded(), "v3:2x2", "{a: 8}")
    level = program.wiring.levels[0]
    filling = [
        program.wiring.nodes[node]
        for position, node in level.kernels.items()
        if filled(level.graph).issuperset(level.program.kernels[position].writes)
    ]
    assert filling
    assert not any(node.costs.any() for node in filling)


@pytest.mark.parametrize(("topology", "batch"), [("v3:2x2", 4), ("v5p:2x2x2", 32)])
def test_what_convolutions_share_with_neighbours_is_known_to_the_program(topology: str, batch: int) -> None:
    """Rows are shared by eight devices: what is sent to neighbours is made beside the image, which is summed later, and
    sent once for the gradient as well. On v3 bits are left of what is masked, on v5p it is read as float32.
    """
    program = program_of(small_steps.convolved(batch=batch, size=256, channels=64), topology, "{a: 8}")
    solved = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert solved.choices is not None
    took = exact_of(program, program.choices(solved.choices)).estimate
    assert any(each.kind == COLLECTIVE_PERMUTE for each in took.collectives)
    assert solved.cost == pytest.approx(took.step_time_s * PER_S, rel=0.01)
    found = program.solve()
    assert found.objective_s * (1 - CLOSE) < found.bound_s <= found.objective_s


def test_kernels_of_strided_convolutions_lie_as_the_pieces_that_they_are_gathered_of() -> None:
    """So their products take twice or half of what they take else, and what several read lies in no layout in between
    that the compiler would not bring on.
    """
    program = program_of(small_steps.convolved(batch=128, size=64, channels=128, step=2), "v3:4x4", "{a: 8, b: 4}")
    solved = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert solved.choices is not None
    assert any(more.any() for node in program.wiring.nodes for more in node.across.values())
    took = exact_of(program, program.choices(solved.choices)).estimate
    assert solved.cost == pytest.approx(took.step_time_s * PER_S, rel=4 * CLOSE)


def test_images_have_no_parts_on_machines_without_matrix_units() -> None:
    program = program_of(small_steps.convolved(batch=4, size=32, channels=16), "cpu:4", "{a: 4}")
    assert program.solve().objective_s > 0


def test_few_images_that_other_kernels_make_are_cut_for_gradients_of_kernels() -> None:
    """XLA cuts four images a device of v4; what is cut is shifted for gradients, which takes most of their time."""
    program = program_of(
        small_steps.convolved(batch=64, size=64, channels=128, layers=3, step=2), "v4:2x2x2", "{a: 16}"
    )
    found = program.solve()
    assert found.objective_s * (1 - 3 * CLOSE) < found.bound_s <= found.objective_s


def test_few_images_in_all_are_not_put_together_before_they_are_split() -> None:
    """How many a device has, and so whether their places are cut for what each is reduced to, the layout says."""

    def loss(params: Any, x: Any) -> jax.Array:
        for kernel, step in zip(params["kernels"], (3, 1), strict=True):
            convolved = jax.lax.conv_general_dilated(x, kernel, (step, step), "SAME", dimension_numbers=CONVOLUTION)
            x = jax.nn.relu(convolved)
        return jnp.mean((jnp.mean(x, (1, 2)) @ params["out"]) ** 2)

    params = {"kernels": [shape(3, 3, 32, 64), shape(3, 3, 64, 64)], "out": shape(64, 16)}
    program = program_of(trained(loss, params, shape(4, 224, 224, 32)), "v5e:2x4", "{a: 2, b: 4}")
    graph = program.wiring.levels[0].graph
    assert len(program.wiring.levels[0].values) == len(graph.values)
    found = program.solve()
    assert found.objective_s * 0.7 < found.bound_s <= found.objective_s


def test_a_search_is_kept_from_convolutions_that_the_partitioner_gets_wrong_and_a_bound_is_not() -> None:
    """What products in their place take only the price of the written plan says: at least one run is proven."""
    program = program_of(small_steps.convolved(batch=8, size=64, channels=128), "v5e:2x4", "{a: 2, b: 4}")
    node = next(each for each in program.wiring.nodes if each.deterred)
    others = [choice for choice in range(len(node.costs)) if choice not in node.deterred]
    kept = Solutions(program, time.monotonic() + 60, 0, None, math.inf)
    node.costs[others] += 1.0  # a second: no solution makes one of them
    first = kept.solved(guess=True)
    took = kept.price(first.choices)
    assert took.least_s < took.estimate.step_time_s / 4
    assert first.cost == pytest.approx(took.least_s * PER_S, rel=0.1)
    assert kept.solved(guess=True).cost > 4 * first.cost
    assert kept.solved(guess=False).bound / PER_S < took.least_s * 1.1


@pytest.mark.parametrize("topology", ["v5e:2x4", "v3:2x2", "cpu:8"])
@pytest.mark.parametrize(
    "layer",
    [
        lambda x, w: x + x @ w,
        lambda x, w: x * jax.nn.sigmoid(x @ w),
        lambda x, w: 1.5 * x + (2.0 * w + w @ w) @ x,
    ],
    ids=["residual", "gate", "power"],
)
def test_what_comes_after_a_product_of_the_same_value_is_computed_at_its_end(
    layer: Callable[[jax.Array, jax.Array], jax.Array], topology: str
) -> None:
    """The value's dims are two loops there, and one here: as one kernel neither could be split, as two it would be
    written and read between them.
    """

    def loss(params: Any, x: jax.Array) -> jax.Array:
        for w in params:
            x = layer(x, w)
        return jnp.mean(x**2)

    program = program_of(trained(loss, [shape(2048, 2048)] * 2, shape(2048, 2048)), topology, "{a: 8}")
    found = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert found.choices is not None
    took = exact_of(program, program.choices(found.choices)).estimate
    assert found.cost < took.step_time_s * PER_S * 1.05
    assert program.solve().bound_s > 0.9 * took.step_time_s
