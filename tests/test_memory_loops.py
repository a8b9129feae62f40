"""What loops keep in memory: broadcasts that they make themselves, what turns save."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.memory import memory
from small_steps import scanned, shape

MIB = 2**20
MASK = Value((2048, 1024), "f32")


def scan_with_mask(mask_is_read_after: bool) -> Graph:
    """A carry of the mask's shape, eight times multiplied by a row spread over all rows."""
    body = Graph(
        values=(MASK, MASK, MASK),
        ops=(Op(kind="multiply", operands=(0, 1), results=(2,)),),
        arguments=(0, 1),
        results=(2,),
    )
    spread = Op(kind="broadcast_in_dim", operands=(0,), results=(2,), attributes={"broadcast_dimensions": (1,)})
    loop = Op(kind="while", operands=(1, 2), results=(3,), bodies=(body,), trips=8)
    return Graph(
        values=(Value((1024,), "f32"), MASK, MASK, MASK),
        ops=(spread, loop),
        arguments=(0, 1),
        results=(3, 2) if mask_is_read_after else (3,),
        names=("row", "carry"),
    )


def test_a_loop_broadcasts_what_it_reads_broadcast_itself() -> None:
    made = fuse(scan_with_mask(mask_is_read_after=False))
    loop = made.graph.ops[-1]
    assert [op.kind for op in made.graph.ops] == ["while"]
    assert [op.kind for op in loop.bodies[0].ops] == ["broadcast_in_dim", "multiply"]
    assert made.graph.shape(loop.operands[1]) == (1024,)
    assert memory(made).temp_bytes < MIB


def test_a_broadcast_that_is_returned_too_is_made_for_that_alone() -> None:
    made = fuse(scan_with_mask(mask_is_read_after=True))
    assert [op.kind for op in made.graph.ops] == ["broadcast_in_dim", "while"]
    assert made.graph.shape(made.graph.ops[-1].operands[1]) == (1024,)


def test_what_a_loop_changes_or_hands_on_stays_outside() -> None:
    graph = scan_with_mask(mask_is_read_after=False)
    loop = graph.ops[1]
    changed = replace(loop, operands=(2, 1))
    body = replace(loop.bodies[0], results=(2, 1))
    handed_on = replace(loop, results=(3, 4), bodies=(body,))
    assert "broadcast_in_dim" in [op.kind for op in fuse(replace(graph, ops=(graph.ops[0], changed))).graph.ops]
    kept = replace(graph, values=(*graph.values, MASK), ops=(graph.ops[0], handed_on), results=(3, 4))
    assert "broadcast_in_dim" in [op.kind for op in fuse(kept).graph.ops]


@pytest.mark.parametrize(("topology", "mesh"), [("v5e:2x4", "x: 4, y: 2"), ("v3:2x2", "x: 4, y: 2")])
def test_what_a_loop_saves_for_products_alone_it_saves_narrow_whether_they_are_in_loops_or_not(
    topology: str, mesh: str
) -> None:
    """On v5e the products of each layer are spread over loops of permutes; bf16[6,4096,4096] compiled."""
    rows = "{params/wi: L M H@x+y, params/wo: L H@x+y M, batch0: B@x+y M, '**': infer}"
    plan = mw.loads(f"meshwright: 1\ntopology: {topology}\nmesh: {{{mesh}}}\ntensors: {rows}\n")
    found = mw.estimate(plan, *scanned(4096 * 8, 1024, 4096, 6))
    saved = {(each.dtype, each.shape) for each in found.memory.tensors if len(each.shape) == 3}
    assert ("bf16", (6, 4096, 4096)) in saved
    gathers = any(each.kind == "all-gather" for each in found.collectives)
    assert gathers == (topology == "v3:2x2")


@pytest.mark.parametrize(("topology", "near"), [("v6e:2x2", True), ("v5e:2x2", True), ("v3:1x2", False)])
def test_what_a_scan_over_time_saves_stays_in_fast_memory_where_all_of_it_has_room(topology: str, near: bool) -> None:
    """A turn takes a piece of what was saved, not the whole. Temporaries of 0.2, 0.2 and 18.7 MiB compiled."""
    rows, turns, width = 128, 64, 512

    def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        def turn(state: jax.Array, now: jax.Array) -> tuple[jax.Array, jax.Array]:
            state = jnp.tanh(now @ params["wx"] + state @ params["wh"])
            return state, state

        return jnp.mean(jax.lax.scan(turn, jnp.zeros((rows, width)), x)[1] ** 2)

    weights = {name: shape(width, width) for name in ("wx", "wh")}
    tensors = "{x: T B@x M, '**': infer}"
    plan = mw.loads(f"meshwright: 1\ntopology: {topology}\nmesh: {{x: 4}}\ntensors: {tensors}\n")
    found = mw.estimate(plan, jax.value_and_grad(loss), (weights, shape(turns, rows, width)))
    saved = found.memory.by_kind.get("saved activations", 0)
    assert saved == 0 if near else saved > 16 * MIB


def written_in_pieces(pieces: int) -> Graph:
    """A carry of which each turn writes so many rows, one after the other, each a product of its own."""
    number, rows = Value((), "s32"), Value((8, 1024), "f32")
    values, ops = [MASK, rows, Value((1024, 1024), "f32"), number], list[Op]()
    held = 0
    for _ in range(pieces):
        values += [rows, MASK]
        ops.append(Op(kind="dot_general", operands=(1, 2), results=(len(values) - 2,)))
        ops.append(Op(kind="dynamic_update_slice", operands=(held, len(values) - 2, 3, 3), results=(len(values) - 1,)))
        held = len(values) - 1
    body = Graph(values=tuple(values), ops=tuple(ops), arguments=(0, 1, 2, 3), results=(held,))
    begun = Op(kind="exponential", operands=(0,), results=(4,))
    loop = Op(kind="while", operands=(4, 1, 2, 3), results=(5,), bodies=(body,), trips=8)
    return Graph(values=(*values[:4], MASK, MASK), ops=(begun, loop), arguments=(0, 1, 2, 3), results=(5,))


@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_what_a_turn_writes_piece_by_piece_lies_in_the_carrys_place(pieces: int) -> None:
    """As the halves of a product whose parts go round both ways: a carry, and a copy of what is multiplied."""
    assert memory(fuse(written_in_pieces(pieces))).temp_bytes < 11 * MIB


@pytest.mark.parametrize(
    ("topology", "compiled_mib"),
    [("v3:2x2", 238.2), ("v4:2x2x1", 187.1), ("v5e:2x2", 211.0), ("v5p:2x2x1", 301.2), ("v6e:2x2", 245.0)],
)
def test_weights_copied_as_a_step_begins_lie_beside_what_loops_read_of_them_rounded(
    topology: str, compiled_mib: float
) -> None:
    """Gradients accumulated over four parts of a batch, weights whole and their updates shared out: each update reads
    the copy of its weights as they were, in float32.
    """

    def accumulated(params: jax.Array, momentum: jax.Array, batch: jax.Array) -> tuple[jax.Array, jax.Array]:
        def loss(params: jax.Array, x: jax.Array) -> jax.Array:
            layer = jax.checkpoint(lambda x, w: (x + jnp.tanh(x @ w.astype(jnp.bfloat16)), None))
            return jnp.mean(jax.lax.scan(layer, x, params)[0].astype(jnp.float32) ** 2)

        def turn(total: jax.Array, part: jax.Array) -> tuple[jax.Array, None]:
            return total + jax.grad(loss)(params, part), None

        total, _ = jax.lax.scan(turn, jnp.zeros_like(params), batch)
        momentum = 0.9 * momentum + total
        return params - 0.01 * momentum, momentum

    mesh = "{x: 8}" if topology in ("v3:2x2", "v4:2x2x1") else "{x: 4}"
    tensors = "{params: replicate, momentum: _ A@x _, batch: _ B@x _, out/0: replicate}"
    plan = mw.loads(f"meshwright: 1\ntopology: {topology}\nmesh: {mesh}\ntensors: {tensors}\n")
    args = (shape(4, 2048, 2048), shape(4, 2048, 2048), shape(4, 8192, 2048, dtype=jnp.bfloat16))
    found = mw.estimate(plan, jax.jit(accumulated, donate_argnums=(0, 1)), args)
    assert found.peak_bytes / MIB == pytest.approx(compiled_mib, rel=0.08)
