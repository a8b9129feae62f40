"""Ways by which what several read is brought on once: the program with them, and what a plan says of them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
import pytest
import small_steps
from in_process import search
from meshwright.backends.jax.drafts import Drafts
from meshwright.planner.program import Program, build
from meshwright.planner.program.solving import rounds
from meshwright.planner.program.solving.decode import laid_out
from meshwright.planner.program.solving.learnt import Learnt
from meshwright.planner.program.solving.named import named_layouts
from meshwright.planner.program.solving.solutions import PER_S
from meshwright.planner.program.wiring import reading, ways
from meshwright.planner.program.wiring.wires import Wiring
from meshwright.planner.solver.solve import solve
from meshwright.planner.topology import physical

Choices = list[int]


def dispatched(experts: int = 8, groups: int = 8, capacity: int = 32, width: int = 512, hidden: int = 2048) -> Any:
    """A step whose product with the first weights reads what is dispatched, and so does that of its gradient."""

    def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        sent = jnp.einsum("gecs,gsm->egcm", params["masks"], x)
        made = jnp.einsum("egch,ehm->egcm", jax.nn.relu(jnp.einsum("egcm,emh->egch", sent, params["wi"])), params["wo"])
        return jnp.mean(made**2)

    shape = small_steps.shape
    params = {
        "masks": shape(groups, experts, capacity, 2 * capacity),
        "wi": shape(experts, width, hidden),
        "wo": shape(experts, hidden, width),
    }
    return small_steps.trained(loss, params, shape(groups, 2 * capacity, width))


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    """The step's program as that of a long step, whose ways are not choices at first."""
    monkeypatch.setattr(reading, "FEW", 0)
    drafts = Drafts(*dispatched())
    plan = mw.loads("meshwright: 1\ntopology: v4:2x2x4\nmesh: {x: 4, y: 8}\n")
    returned = {tensor.path: tensor.returns for tensor in drafts.tensors if tensor.returns}
    return build(drafts.graph(plan), plan.mesh, physical(plan.topology), returned=returned)


def paid_twice(program: Program) -> tuple[int, Choices]:
    """What several read that can be left in between, and choices under which two of them pay the same second step."""
    wiring = program.wiring
    for node, sharing in wiring.sharing.items():
        if not ways.can_be_left(wiring.levels[0], sharing.value):
            continue
        for way in ways.ways_to(wiring, sharing.known, sharing.source.layouts, sharing.offered):
            table, made = wiring.reshards.table, sharing.source.layouts
            at_once, first = table(sharing.known, made, [way.to])[:, 0], table(sharing.known, made, [way.by])[:, 0]
            choices = [0] * len(wiring.nodes)
            choices[sharing.source.node] = int(np.argmax(at_once - first))
            choices[node] = max(at for at, layout in enumerate(sharing.layouts) if layout == way.by)
            wanting = [port for port in sharing.ports if way.to in port.layouts]
            for port in wanting:
                choices[port.node] = port.layouts.index(way.to)
            if way.then_s > 0 and len(wanting) == len(sharing.ports):
                return node, choices
    raise AssertionError("nothing is paid twice")


def cost_s(program: Program, choices: Choices) -> float:
    wiring = program.wiring
    own = sum(float(node.costs[choice]) for node, choice in zip(wiring.nodes, choices, strict=True))
    return own + sum(float(table[choices[a], choices[b]]) for (a, b), table in wiring.tables.items())


def test_what_is_paid_twice_has_ways_and_all_else_costs_what_it_did(program: Program) -> None:
    node, choices = paid_twice(program)
    wiring = program.wiring
    sharing = wiring.sharing[node]
    draw = np.random.default_rng(0)
    others = [[int(draw.integers(len(each.costs))) for each in wiring.nodes] for _ in range(20)]
    before = [cost_s(program, each) for each in others]
    fixed, paid_s = len(wiring.nodes[node].costs), cost_s(program, choices)
    assert ways.open_ways(wiring, program.leader, choices, 0.0)
    assert [cost_s(program, each) for each in others] == before
    want = {port.layouts[choices[port.node]] for port in sharing.ports}
    by = sharing.layouts[choices[node]]
    [way] = [
        at
        for at in range(fixed, len(wiring.nodes[node].costs))
        if wiring.nodes[node].layouts[sharing.value][at] == by and {wiring.ways[node][at]} == want
    ]
    choices[node] = way
    once_s = wiring.nodes[node].costs[way]
    assert cost_s(program, choices) <= paid_s - (len(sharing.ports) - 1) * once_s * (1 - 1e-6)
    elsewhere = sharing.ports[0]
    choices[elsewhere.node] = next(at for at, lies in enumerate(elsewhere.layouts) if lies not in (*want, by))
    assert cost_s(program, choices) == np.inf


def test_a_plan_leaves_what_is_brought_on_once_in_between(program: Program) -> None:
    node, choices = paid_twice(program)
    wiring = program.wiring
    sharing = wiring.sharing[node]
    level, by = wiring.levels[0], sharing.layouts[choices[node]]
    want = sharing.ports[0].layouts[choices[sharing.ports[0].node]]
    assert laid_out(wiring, level, choices).between == {sharing.value: by}
    said = named_layouts(wiring, choices)
    maker = next(op for op in level.graph.ops if sharing.value in op.results)
    assert said[str(maker.origin.value)] == by
    read = [path for path, layout in said.items() if ".in" in path and layout == want]
    assert len(read) >= len(sharing.ports)


def test_what_has_ways_gets_no_more(program: Program) -> None:
    node, choices = paid_twice(program)
    assert ways.open_ways(program.wiring, program.leader, choices, 0.0)
    counts = [len(each.costs) for each in program.wiring.nodes]
    assert node not in program.wiring.sharing
    choices[node] = counts[node] - 1
    ways.open_ways(program.wiring, program.leader, choices, 0.0)
    assert len(program.wiring.nodes[node].costs) == counts[node]
    assert program.solve().layouts is not None


def test_what_is_pinned_is_not_left_elsewhere() -> None:
    head = "meshwright: 1\ntopology: v4:2x2x4\nmesh: {x: 4, y: 8}\ntensors:\n"
    found = search(*dispatched(), plan=f"{head}  ops/loss/transpose.0: _ _ _@x _@y\n", ask_compiler=False)
    assert found.gap is not None
    assert found.gap < 0.02


def test_what_others_are_guessed_to_take_bounds_no_step_once_ways_are_opened(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened after some solutions were priced: what these taught is a guess for all others."""
    _, choices = paid_twice(program)
    asked: list[bool] = []

    def later(wiring: Wiring, leader: Any, *_: Any) -> bool:
        asked.append(len(asked) == 2 and ways.open_ways(wiring, leader, choices, 0.0))
        return asked[-1]

    monkeypatch.setattr(rounds, "open_ways", later)
    found = program.solve()
    assert any(asked)
    costs = program.problem(None, Learnt.nothing(program.leader, program.wiring), guess=False)
    least_s = solve(costs, time_limit_s=60).cost / PER_S
    assert 0.9 * least_s < found.floor_s <= least_s * (1 + 1e-9)
