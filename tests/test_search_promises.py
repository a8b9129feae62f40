"""Plans that a search writes take what the integer program promised: layouts that only its names can tell apart."""

from __future__ import annotations

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
import pytest
import small_steps
from in_process import search
from meshwright.planner.graph import Sharding
from meshwright.planner.program import Program
from meshwright.planner.program.solving.decode import laid_out, laid_out_step
from meshwright.planner.program.wiring.ties import tied
from meshwright.planner.program.wiring.wires import Node
from small_steps import Pair, shape
from test_program_shared import program_of

BY_HAND = """
meshwright: 1
topology: v3:2x4
mesh: {a: 4, b: 4}
tensors:
  params/in: A@a+b ...
  params/**: C@b A@a
  batch0: replicate
  ops/loss/gather.0: B@b T A@a
  ops/loss/gather.0.in0: ... A@a
  ops/loss/{gather.0.in1,dot_general.0.in0}: B@b ...
  ops/loss/take_along_axis.{gather.0,reshape.0}: replicate
  ops/loss/grad/{select_n.0,add_any.0.in0}: _@b _@a ...
  ops/loss/grad/dot_general.[23].in0: B@b ...
  ops/loss/grad/dot_general.3.in1: replicate
"""


def gated(layers: int = 2, rows: int = 4096, width: int = 512, hidden: int = 4096) -> Pair:
    """Gated layers in a loop, computed anew on the way back, and a head: a product's gradient is what the loop back
    begins with, and its turns' products read slices of stacks of weights that lie otherwise.
    """

    @jax.checkpoint
    def layer(x: jax.Array, p: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        h = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
        return x + (jax.nn.silu(h @ p["gate"]) * (h @ p["in"])) @ p["out"], None

    def loss(params: dict[str, dict[str, jax.Array]], x: jax.Array) -> jax.Array:
        return jnp.mean((jax.lax.scan(layer, x, params["layers"])[0] @ params["top"]["head"]) ** 2)

    weights = {name: shape(layers, width, hidden) for name in ("gate", "in")} | {"out": shape(layers, hidden, width)}
    return small_steps.trained(loss, {"layers": weights, "top": {"head": shape(width, 8192)}}, shape(rows, width))


def anew(layers: int = 2, rows: int = 1024, width: int = 1024, hidden: int = 4096) -> Pair:
    """Layers one by one, computed anew: what gradients come from is read behind barriers, where nothing has names."""

    @jax.checkpoint
    def layer(x: jax.Array, p: dict[str, jax.Array]) -> jax.Array:
        return x + jax.nn.gelu(x @ p["in"]) @ p["out"]

    def loss(params: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
        for each in params:
            x = layer(x, each)
        return jnp.mean(x**2)

    return small_steps.trained(
        loss, [{"in": shape(width, hidden), "out": shape(hidden, width)}] * layers, shape(rows, width)
    )


def stacked(layers: int = 4, rows: int = 2048, width: int = 2048) -> Pair:
    """Layers in a loop over a stack of their weights, and a head."""

    def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return jnp.mean(
            (jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, params["stack"])[0] @ params["head"]) ** 2
        )

    weights = {"stack": shape(layers, width, width), "head": shape(width, 2 * width)}
    return small_steps.trained(loss, weights, shape(rows, width))


def foretelling(batch: int = 32, length: int = 128, width: int = 512, words: int = 8192) -> Pair:
    """Positions that foretell the next word: the gradient of what all but the last say is padded to all positions."""

    def loss(params: dict[str, jax.Array], tokens: jax.Array) -> jax.Array:
        x = jax.nn.relu(params["words"][tokens] @ params["in"])
        said = jax.nn.log_softmax(jnp.einsum("btm,vm->btv", x, params["words"]))[:, :-1]
        return -jnp.mean(jnp.take_along_axis(said, tokens[:, 1:, None], -1))

    params = {"words": shape(words, width), "in": shape(width, width)}
    return small_steps.trained(loss, params, shape(batch, length, dtype=jnp.int32))


def foretelling_given(batch: int, length: int, width: int, words: int) -> Pair:
    """The same of vectors that are given, of which the largest number says what is to be foretold."""

    def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        says = jax.nn.log_softmax(x @ params["words"])[:, :-1]
        return jnp.mean(jnp.take_along_axis(says, jnp.argmax(x[:, 1:, :8], -1)[..., None], -1))

    return small_steps.trained(loss, {"words": shape(width, words)}, shape(batch, length, width))


def foretelling_by_experts(batch: int = 64, length: int = 256, width: int = 256, words: int = 8192) -> Pair:
    """The same by one layer of experts: the head's product and its gradient read what lies otherwise before them."""
    groups, count, capacity, hidden = 32, 16, 64, 4 * width

    def loss(params: dict[str, jax.Array], tokens: jax.Array) -> jax.Array:
        x = params["words"][tokens].reshape(groups, -1, width)
        gates = jax.nn.softmax(jnp.einsum("gsm,me->gse", x, params["router"]))
        chosen = jax.nn.one_hot(jnp.argmax(gates, -1), count)
        place = ((jnp.cumsum(chosen, axis=1) - 1) * chosen).astype(jnp.int32)
        mask = jax.nn.one_hot(place, capacity) * chosen[..., None]
        sent = jnp.einsum("gsec,gsm->egcm", mask, x)
        inside = jax.nn.relu(jnp.einsum("egcm,emh->egch", sent, params["in"]))
        made = jnp.einsum("egch,ehm->egcm", inside, params["out"])
        x = (x + jnp.einsum("gsec,egcm->gsm", mask * gates[..., None], made)).reshape(batch, length, width)
        said = jax.nn.log_softmax(jnp.einsum("btm,vm->btv", x, params["words"]))[:, :-1]
        return -jnp.mean(jnp.take_along_axis(said, tokens[:, 1:, None], -1))

    params = {"words": shape(words, width), "router": shape(width, count)}
    params |= {"in": shape(count, width, hidden), "out": shape(count, hidden, width)}
    return small_steps.trained(loss, params, shape(batch, length, dtype=jnp.int32))


def looked_up(rows: int = 65536, width: int = 128, batch: int = 8192) -> Pair:
    """Two tables whose rows are looked up, with momentum: what is scattered is added to that without a gradient."""

    def loss(params: dict[str, jax.Array], found: jax.Array) -> jax.Array:
        x = jnp.concatenate([params["first"][found[:, 0]], params["second"][found[:, 1]]], -1)
        return jnp.mean(jax.nn.relu(x @ params["in"]) ** 2)

    params = {"first": shape(rows, width), "second": shape(rows, width), "in": shape(2 * width, 512)}
    return small_steps.trained(loss, params, shape(batch, 2, dtype=jnp.int32), momentum=True)


def one_more(batch: int = 32, length: int = 512, width: int = 512, heads: int = 8) -> Pair:
    """One more token beside caches that the step is only lent: it copies them."""
    size = width // heads

    def step(
        params: dict[str, jax.Array], keys: jax.Array, values: jax.Array, x: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        query, key, value = (jnp.einsum("bm,mnd->bnd", x, params[name]) for name in "qkv")
        keys, values = (
            jax.lax.dynamic_update_slice(old, new[:, None], (0, 5, 0, 0)) for old, new in ((keys, key), (values, value))
        )
        weights = jax.nn.softmax(jnp.einsum("bnd,btnd->bnt", query, keys))
        return jnp.einsum("bnt,btnd,ndm->bm", weights, values, params["o"]), keys, values

    params = {name: shape(width, heads, size) for name in "qkv"} | {"o": shape(heads, size, width)}
    cache = shape(batch, length, heads, size)
    return step, (params, cache, cache, shape(batch, width))


def moved(low: int, high: int, rows: int = 2048, width: int = 2048) -> Pair:
    """What is padded is multiplied."""

    def step(a: jax.Array, x: jax.Array) -> jax.Array:
        h = jnp.exp(a) * 2 + jnp.sin(a)
        return jax.lax.pad(h, jnp.float32(0), ((0, 0, 0), (low, high, 0))) @ x

    return step, (shape(rows, width), shape(width + low + high, 256))


def similar(rows: int = 2048, width: int = 1024) -> Pair:
    """Rows by how alike they are: a product with its own transpose, which its gradient reads again."""

    def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        y = x @ params["in"]
        return jnp.mean((jax.nn.relu((y @ y.T) @ y * 1e-3) @ params["out"]) ** 2)

    return small_steps.trained(loss, {name: shape(width, width) for name in ("in", "out")}, shape(rows, width))


def joined(batch: int = 8, length: int = 32, width: int = 512) -> Pair:
    """Places in pairs, each multiplied as one, then all places of a row mixed."""

    def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        pairs = x.reshape(batch, length // 2, 2 * width) @ params["joined"]
        return jnp.mean((jnp.swapaxes(pairs.reshape(batch, length, width), 1, 2) @ params["mixed"]) ** 2)

    params = {"joined": shape(2 * width, 2 * width), "mixed": shape(length, length)}
    return small_steps.trained(loss, params, shape(batch, length, width))


def test_what_is_transposed_once_for_products_of_a_value_with_itself_lies_as_who_needs_most_of_it_has_it() -> None:
    """The gradient's product cuts its part out of what is transposed, as the compiler does, and nothing is gathered."""
    found = search(*similar(), topology="v6e:2x4", mesh={"a": 4, "b": 2}, time_limit_s=60)
    (row,) = found.candidates[:1]
    assert found.step_time_s is not None
    assert row.objective_s is not None
    assert found.step_time_s <= 1.01 * row.objective_s
    assert found.gap is not None
    assert 0 <= found.gap < 0.01


def test_what_each_turn_of_a_scan_takes_off_its_stack_is_laid_out_as_promised() -> None:
    """All that reads it has it gathered at once, which no name but that of the turn's own can say. Stacks that loops
    fill are not filled before, where devices have parts of other shapes of that for the gradient.
    """
    found = search(*stacked(), topology="v5e:2x4", mesh={"a": 2, "b": 4}, time_limit_s=60)
    (row,) = found.candidates[:1]
    assert found.plan is not None
    assert found.step_time_s is not None
    assert row.objective_s is not None
    assert any(".xs0" in rule.pattern for rule in found.plan.rules)
    assert found.step_time_s == pytest.approx(row.objective_s, rel=0.01)


@pytest.mark.parametrize(
    ("pair", "topology", "mesh", "gap"),
    [
        pytest.param(gated(), "v5e:4x4", {"a": 4, "b": 4}, 0.05, id="what a loop begins with and slices of stacks"),
        pytest.param(anew(), "v6e:4x4", {"a": 4, "b": 4}, 0.05, id="what is read behind barriers"),
        pytest.param(
            foretelling_by_experts(), "v3:4x4", {"a": 4, "b": 8}, 0.02, id="what a product reads as others do not"
        ),
        pytest.param(looked_up(), "v4:2x2x4", {"a": 2, "b": 16}, 0.1, id="what is scattered into momentum"),
        pytest.param(one_more(), "v3:2x2", {"a": 4, "b": 2}, 0.02, id="caches that are copied"),
    ],
)
def test_a_plan_takes_about_what_no_plan_takes_less_than(
    pair: Pair, topology: str, mesh: dict[str, int], gap: float
) -> None:
    found = search(*pair, topology=topology, mesh=mesh, time_limit_s=60)
    assert found.step_time_s is not None
    assert found.gap is not None
    assert 0 <= found.gap < gap


def test_no_plan_takes_less_than_is_proven_where_positions_are_split() -> None:
    by_hand = mw.loads(BY_HAND)
    took_s = mw.estimate(by_hand, *foretelling()).step_time_s
    found = search(*foretelling(), topology="v3:2x4", mesh={"a": 4, "b": 4}, time_limit_s=60)
    assert found.bound_s <= took_s
    assert found.step_time_s is not None
    assert found.step_time_s <= 1.01 * took_s


def test_no_plan_takes_less_than_is_proven_where_a_product_is_gathered_to_be_viewed() -> None:
    plan = """
meshwright: 1
topology: v4:2x2x1
mesh: {a: 4, b: 2}
tensors:
  params/joined: ... A@b
  params/**: replicate
  batch0: replicate
"""
    took_s = mw.estimate(mw.loads(plan), *joined()).step_time_s
    found = search(*joined(), topology="v4:2x2x1", mesh={"a": 4, "b": 2}, time_limit_s=20)
    assert found.bound_s <= took_s
    assert found.step_time_s == pytest.approx(took_s)


def test_no_plan_takes_less_than_is_proven_where_what_a_product_alone_reads_is_padded() -> None:
    """The gradient of what all positions but the last say is brought elsewhere once, as the product reads it."""
    step, args = foretelling_given(8, 64, 128, 512)
    plan = "meshwright: 1\ntopology: cpu:8\nmesh: {a: 8}\ntensors:\n  params/**: _ _@a\n  batch0: replicate\n"
    by_hand = mw.loads(plan + "  ops/loss/dot_general.0: B@a ...\n  ops/loss/take_along_axis.*.0: replicate\n")
    took_s = mw.estimate(by_hand, step, args).step_time_s
    found = search(step, args, topology="cpu:8", mesh={"a": 8}, time_limit_s=20)
    assert found.bound_s <= took_s
    assert found.step_time_s is not None
    assert found.step_time_s <= 1.01 * took_s


def test_no_plan_takes_less_than_is_proven_where_a_mask_is_spread_over_what_other_devices_have() -> None:
    """A device that has one of all rows computes the mask as it selects, and nobody writes it."""

    def step(x: jax.Array) -> jax.Array:
        return jnp.tril(jnp.concatenate([jnp.tanh(x[..., 64:]), x[..., :64]], axis=-1))

    x = shape(8, 64, 128, dtype=jnp.bfloat16)
    by_hand = mw.loads(
        "meshwright: 1\ntopology: cpu:8\nmesh: {a: 4, b: 2}\ntensors:\n  out: B@a+b ...\n  '**': replicate\n"
    )
    found = search(step, (x,), topology="cpu:8", mesh={"a": 4, "b": 2}, time_limit_s=20)
    assert found.bound_s <= mw.estimate(by_hand, step, (x,)).step_time_s
    assert found.step_time_s == pytest.approx(found.bound_s)


def test_what_pads_move_between_devices_is_not_computed_in_passing() -> None:
    found = search(*moved(1, -2), topology="v3:2x2", time_limit_s=20)
    assert found.gap is not None
    assert 0 <= found.gap < 0.01


def test_a_value_is_brought_through_a_layout_that_others_read_where_that_takes_less() -> None:
    program = program_of(foretelling(), "v3:2x4", "{a: 4, b: 4}")
    wiring, top = program.wiring, program.wiring.levels[0]
    ways = [
        (reader, value, nodes, layouts)
        for (reader, value), shared in sorted(wiring.through.items())
        for nodes in [(top.source[value].node, shared, reader)]
        for layouts in itertools.product(*(dict.fromkeys(wiring.nodes[n].layouts.get(value, ())) for n in nodes))
        if takes_less(program, value, *layouts) and len(set(nodes)) == 3
    ]
    assert ways
    checked = 0
    for reader, value, nodes, (lies, by, want) in ways[:: max(len(ways) // 20, 1)]:
        choices = [0] * len(wiring.nodes)
        for node, layout in zip(nodes, (lies, by, want), strict=True):
            choices[node] = wiring.nodes[node].layouts[value].index(layout)
        solved = laid_out(wiring, top, choices)
        ops = {at for at, node in solved.nodes.items() if node == reader and value in top.graph.ops[at].operands}
        multiplies = any(top.graph.ops[at].kind == "dot_general" for at in ops)
        through = {solved.through.get((at, value)) for at in ops}
        assert through <= ({by, None} if multiplies else {by})
        laid = laid_out_step(wiring, choices, label=lambda _, own: own)
        moved = {op.results[0]: op.operands[0] for op in laid.ops if op.kind == "reshard"}
        brought = [
            laid.values[v].sharding for at, v in moved.items() if laid.values[at].sharding == want and v in moved
        ]
        assert by not in through or by in brought
        checked += by in through
    assert checked


def takes_less(program: Program, value: int, lies: Sharding, by: Sharding, want: Sharding) -> bool:
    """Whether a value is sooner brought from how it lies into another layout and from there into the one wanted."""
    seconds, known = program.wiring.reshards.seconds, program.wiring.levels[0].graph.values[value]
    in_two = seconds(known, lies, by) + seconds(known, by, want)
    return len({lies, by, want}) == 3 and in_two < 0.9 * seconds(known, lies, want)


def test_what_shares_a_path_is_decided_once_and_what_has_its_own_is_not() -> None:
    program = program_of(anew(), "v6e:4x4", "{a: 4, b: 4}")
    by = Node(level=0, costs=np.zeros(2), layouts={}, stems=("ops/f",), paths=frozenset({"ops/f"}))
    alike, other = replace(by), replace(by, paths=frozenset())
    assert tied(replace(program.wiring, nodes=[by, alike], tables={})).tolist() == [0, 0]
    assert tied(replace(program.wiring, nodes=[by, other], tables={})).tolist() == [0, 1]
    assert tied(replace(program.wiring, nodes=[other, by, alike], tables={})).tolist() == [0, 1, 1]


def test_a_sum_is_made_before_it_is_sent_to_be_added_up_in_a_table() -> None:
    """As an embedding's gradient is: by the kernel that adds it up, where it lies already as that has it."""

    def step(table: jax.Array, rows: jax.Array, a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
        return table.at[rows].add(a * b + c)

    args = (shape(4096, 1024), jax.ShapeDtypeStruct((8192,), jnp.int32), *[shape(8192, 1024)] * 3)
    head = "meshwright: 1\ntopology: v3:2x2\nmesh: {x: 8}\ntensors:\n  table: _ _@x\n  rows: replicate\n"
    apart = search(step, args, plan=head + '  "[abc]": _@x _\n  "**": auto\n', time_limit_s=30.0)
    assert apart.plan is not None
    assert apart.gap < 0.01
    took = mw.estimate(apart.plan, step, args)
    assert [(each.kind, each.num_bytes) for each in took.collectives] == [("all-to-all", 8192 * 1024 * 4 // 8)]
    along = search(step, args, plan=head + '  "[abc]": _ _@x\n  "**": auto\n', time_limit_s=30.0)
    assert along.plan is not None
    assert along.gap < 0.01
    assert not mw.estimate(along.plan, step, args).collectives
