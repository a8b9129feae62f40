"""What products read from the large memory, in the program as in whole prices: parts of stacks, a step's results."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from meshwright.planner.program import Program
from meshwright.planner.program.step.far import Far
from meshwright.planner.solver.solve import solve
from small_graphs import exact_of, nothing
from small_steps import Pair, attention, shape
from test_program_shared import program_of


def layers(rows: int = 16, width: int = 1024, count: int = 8) -> Pair:
    """A few rows through layers, the weights of which a loop takes from a stack."""

    def step(weights: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]

    dtype = jnp.bfloat16
    return step, (shape(count, width, width, dtype=dtype), shape(rows, width, dtype=dtype))


def remembering(rows: int = 32, length: int = 2048, width: int = 256, asking: int = 8) -> Pair:
    """What several ask in each row of what is remembered of it, the first of them among it, which the step leaves."""

    def step(kept: jax.Array, x: jax.Array, place: jax.Array) -> tuple[jax.Array, jax.Array]:
        kept = jnp.where((jnp.arange(length) == place[:, None])[..., None], x[:, :1], kept)
        return kept, jnp.einsum("baw,btw->bat", x, kept)

    dtype, places = jnp.bfloat16, shape(rows, dtype=jnp.int32)
    return step, (shape(rows, length, width, dtype=dtype), shape(rows, asking, width, dtype=dtype), places)


def of_a_large_table(rows: int = 16, width: int = 2048, count: int = 16384) -> Pair:
    """Rows against a table of which each device holds all, for others are looked up in it: it takes a part of that."""

    def step(table: jax.Array, looked_up: jax.Array) -> jax.Array:
        return jnp.argmax(jnp.tanh(table[looked_up]) @ table.T, -1)

    return step, (shape(count, width), shape(rows, dtype=jnp.int32))


def missed_s(program: Program) -> tuple[float, float]:
    """What the best solution by the program's costs takes beyond these, and what it takes."""
    solved = solve(program.problem(None, nothing(program), guess=False), time_limit_s=20)
    assert solved.choices is not None
    choices = program.choices(solved.choices)
    took = exact_of(program, choices)
    return sum(max(each.seconds, 0.0) for each in took.missed), took.estimate.step_time_s


@pytest.mark.parametrize(
    "pair",
    [layers(), remembering(), of_a_large_table()],
    ids=["parts of a stack", "results of the step", "a part of an argument"],
)
def test_what_products_read_far_is_in_the_program(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    more_s, took_s = missed_s(program_of(pair, "v5e:2x2", "{a: 4}"))
    assert more_s < 0.03 * took_s
    monkeypatch.setattr("meshwright.planner.program.step.known.far_of", lambda *_: Far())
    more_s, took_s = missed_s(program_of(pair, "v5e:2x2", "{a: 4}"))
    assert more_s > 0.1 * took_s


def test_reading_what_is_brought_elsewhere_takes_no_more() -> None:
    program = program_of(remembering(), "v5e:2x2", "{a: 4}")
    wiring = program.wiring
    reading = [number for number, node in enumerate(wiring.nodes) if node.far]
    assert reading
    for number in reading:
        node = wiring.nodes[number]
        for value, more in node.far.items():
            maker = next(n for n, each in enumerate(wiring.nodes) if value in each.layouts and n != number)
            table = wiring.tables[min(maker, number), max(maker, number)]
            table = table if maker < number else table.T
            same = [[a == b for b in node.layouts[value]] for a in wiring.nodes[maker].layouts[value]]
            assert (table >= np.where(same, more[None, :], 0.0)).all()
            assert (table[np.array(same)] == np.broadcast_to(more, table.shape)[np.array(same)]).all()


@pytest.mark.parametrize("mesh", ["{a: 8}", "{a: 4, b: 2}"])
def test_what_a_gpu_copies_for_its_products_is_in_the_program(mesh: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries, keys and values as products make them: several read them so, and what is brought elsewhere is none."""
    more_s, took_s = missed_s(program_of(attention(batch=64), "h100:8", mesh))
    assert more_s < 0.005 * took_s
    monkeypatch.setattr("meshwright.planner.compute.copies.relaid.Relaid.read_by", lambda *_: ())
    more_s, took_s = missed_s(program_of(attention(batch=64), "h100:8", mesh))
    assert more_s > 0.03 * took_s
