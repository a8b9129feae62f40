"""What loops round alike in the program: converted once before them, stacked up narrow, begun with once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from meshwright.backends.jax.drafts import Drafts
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.reader import loads
from meshwright.planner.graph import Sharding
from meshwright.planner.program import Program, build
from meshwright.planner.program.solving.solutions import PER_S
from meshwright.planner.program.wiring.wires import Wiring
from meshwright.planner.solver.solve import solve
from meshwright.planner.topology import physical
from small_graphs import Drawing, exact_of, nothing
from small_graphs import program_of as drawn_program
from small_steps import Pair, scanned, shape, trained

TOPOLOGY = "v5e:2x2"


def program_of(pair: Pair, mesh: str, pins: Mapping[str, Sharding] | None = None, topology: str = TOPOLOGY) -> Program:
    workload = Drafts(*pair)
    plan = loads(f"meshwright: 1\ntopology: {topology}\nmesh: {mesh}\n")
    return build(workload.graph(plan), plan.mesh, physical(parse_topology(topology)), pins=pins)


def solved(program: Program) -> list[int]:
    found = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert found.choices is not None
    return program.choices(found.choices)


def begun(turns: int) -> Pair:
    """A loop that begins with what is computed before it."""

    def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        def turn(x: jax.Array, _: None) -> tuple[jax.Array, None]:
            return jnp.tanh(x @ params["w"]), None

        return jnp.mean(jax.lax.scan(turn, jnp.sin(x), None, length=turns)[0] ** 2)

    return trained(loss, {"w": shape(1024, 1024)}, shape(4096, 1024))


def entering(wiring: Wiring) -> dict[tuple[int, ...], float]:
    """By its shape the most that bringing something of the step into the layout that a loop carries takes."""
    found: dict[tuple[int, ...], float] = {}
    for ends, table in wiring.tables.items():
        outer, inner = (wiring.nodes[node] for node in ends)
        if not outer.level and inner.level and ends[1] in wiring.carries:
            for value in inner.layouts:
                known = wiring.levels[inner.level].graph.shape(value)
                found[known] = max(found.get(known, 0.0), float(table[np.isfinite(table)].max()))
    return {known: seconds for known, seconds in found.items() if seconds}


def test_what_a_loop_begins_with_is_brought_there_once_however_often_it_turns() -> None:
    few, many = (entering(program_of(begun(turns), "{a: 4}").wiring)[4096, 1024] for turns in (3, 12))
    assert 0 < few == pytest.approx(many)


@pytest.mark.parametrize("mesh", ["{a: 4}", "{a: 2, b: 2}"])
def test_what_loops_round_is_converted_before_them_once_for_all_of_them(mesh: str) -> None:
    """The program says of a solution what converting takes: the kernels that do so are no more than that."""
    program = program_of(scanned(512, 512, 4096, 4), mesh)
    wiring, choices = program.wiring, solved(program)
    took = exact_of(program, choices)
    ahead = [each for each in took.estimate.kernels if each.label == "convert" and each.times == 1]
    promised = sum(_promised(wiring, choices, node) for node in {int(each.origin.source or -1) for each in ahead})
    assert ahead
    assert sum(each.predicted_s for each in ahead) == pytest.approx(promised, rel=1e-3)


def _promised(wiring: Wiring, choices: Sequence[int], node: int) -> float:
    tables = (table[choices[a], choices[b]] for (a, b), table in wiring.tables.items() if wiring.reader((a, b)) == node)
    return float(wiring.nodes[node].costs[choices[node]] + sum(tables))


def test_what_a_loop_stacks_up_for_others_to_round_is_narrow() -> None:
    """What the forward loop saves for the gradients' products lies in bfloat16, in both loops and in between."""
    program = program_of(scanned(4096, 512, 1024, 4), "{a: 4}")
    top, *bodies = program.wiring.levels
    inside, between = (
        {value.dtype for level in levels for value in level.graph.values if value.shape == (4, 4096, 1024)}
        for levels in (bodies, [top])
    )
    assert inside - {"pred"} == between - {"pred"} == {"bf16"}


def masked(batch: int = 8, length: int = 256, width: int = 512, hidden: int = 2048) -> Pair:
    """Scanned layers of matrices, the masks of which are saved."""

    def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        def layer(x: jax.Array, own: dict[str, jax.Array]) -> tuple[jax.Array, None]:
            return x + jax.nn.relu(x @ own["wi"]) @ own["wo"], None

        return jnp.mean(jax.lax.scan(layer, x, params)[0] ** 2)

    return trained(loss, {"wi": shape(4, width, hidden), "wo": shape(4, hidden, width)}, shape(batch, length, width))


ROWS: Mapping[str, Sharding] = {"params/wi": ((), (), ()), "params/wo": ((), (), ()), "batch0": (("a",), ())}


@pytest.mark.parametrize(
    ("step", "pins", "expected"),
    [(masked(), {}, 3), (scanned(16384, 512, 1024), ROWS, 2)],
    ids=["masks", "sums"],
)
def test_masks_as_bits_and_what_devices_send_are_put_into_stacks_by_kernels_of_their_own(
    step: Pair, pins: Mapping[str, Sharding], expected: int
) -> None:
    """The program says of a solution what that takes: the kernels that put them take no more."""
    program = program_of(step, "{a: 4}", pins)
    wiring, choices = program.wiring, solved(program)
    took = exact_of(program, choices)
    putting = [each for each in took.estimate.kernels if each.label == "dynamic_update_slice"]
    seen = 0
    for node in {int(each.origin.source or -1) for each in putting}:
        if any(_is_done(wiring, choices, a) for (a, b) in wiring.tables if b == node):
            own_s = sum(each.predicted_s * each.times for each in putting if each.origin.source == str(node))
            less_s = sum(float(each[choices[a], choices[b]]) for (a, b), each in wiring.together.items() if b == node)
            assert own_s == pytest.approx(_promised(wiring, choices, node) - less_s, rel=1e-3)
            seen += 1
    assert seen == expected


def _is_done(wiring: Wiring, choices: Sequence[int], node: int) -> bool:
    """Whether a node leaves a mask as bits, or something that devices sent."""
    return any(each[choices[node]] for each in wiring.nodes[node].done.values())


def test_what_is_cut_before_it_is_sent_is_rounded_after_that() -> None:
    """A quarter of what a device has of an argument is cut, converted and exchanged, for a product that wants that."""
    drawing = Drawing()
    graph = drawing.graph(drawing.dot(drawing.arg(2048, 2048), drawing.arg(2048, 2048)))
    program = drawn_program(graph, "v5e:2x4", {"a": 2, "b": 2, "c": 2})
    wiring, wanted = program.wiring, {0: ((), ("a", "b", "c")), 1: (("a", "b", "c"), ()), 2: ((), ())}
    (product,) = wiring.levels[0].kernels.values()
    layouts, choices = wiring.nodes[product].layouts, [0] * len(wiring.nodes)
    choices[product] = next(
        each
        for each in range(len(wiring.nodes[product].costs))
        if all(layouts[value][each] == lies for value, lies in wanted.items())
    )
    for value, lies in {0: (("c",), ()), 1: wanted[1]}.items():
        port = wiring.levels[0].source[value]
        choices[port.node] = port.layouts.index(lies)
    took = exact_of(program, choices).estimate
    promised = sum(table[choices[a], choices[b]] for (a, b), table in wiring.tables.items())
    sent = [each.total_s for each in took.collectives if each.kind == "all-to-all"]
    around = [each.predicted_s for each in took.kernels if each.label in ("convert", "turned-copy")]
    assert [each.label for each in took.kernels].count("convert") == 1
    assert promised == pytest.approx(sum(sent) + sum(around), rel=0.1)


@pytest.mark.parametrize("is_one", [True, False])
def test_products_read_what_was_rounded_for_them_before_it_was_sent(is_one: bool) -> None:
    """Half the bytes of what is gathered along two ways; what is multiplied with itself is rounded once for both."""
    lies = (("a",), ("b", "c"))
    args: Pair = (lambda x, y: x @ (x if is_one else y), (shape(512, 512), shape(512, 512)))
    program = program_of(args, "{a: 2, b: 2, c: 2}", dict.fromkeys(("x", "y", "out"), lies), topology="v3:2x2")
    found = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert found.choices is not None
    took = exact_of(program, program.choices(found.choices)).estimate
    assert [each.label for each in took.kernels].count("convert") == 2 - is_one
    assert [each.kind for each in took.collectives] == ["all-gather", "all-gather"]
    assert found.cost / PER_S == pytest.approx(took.step_time_s, rel=1e-3)
