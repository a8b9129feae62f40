"""Ten partial plans for each of some models: what is pinned is kept to the letter, in the plan and as it is applied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import meshwright as mw
import pytest
import small_steps
import toy
from extent import EVERY, some
from in_process import search
from layouts import assert_layouts
from meshwright.backends.jax.trace import trace
from meshwright.dsl.plan import Auto, Plan
from meshwright.dsl.reader import loads
from meshwright.dsl.resolve import key_of, resolve
from meshwright.dsl.writer import dumps
from meshwright.planner.search.result import SearchResult
from small_steps import Pair

MODELS: dict[str, Callable[[], Pair]] = {
    "toy": toy.pair,
    "blocks": lambda: small_steps.blocks(tokens=64, width=32, hidden=64, layers=2),
    "experts": lambda: small_steps.experts(8, 16, 32, 64, 8, 4),
    "a loop": lambda: small_steps.scanned(tokens=64, width=32, hidden=64, layers=4),
}

MESH = "mesh: {a: 4, b: 2}"
DEVICES = "[[0, 2, 4, 6], [1, 3, 5, 7]]"

PINS: dict[str, list[str]] = {
    "toy": [
        MESH + "\ntensors: {params/w: D@a H}",
        MESH + '\ntensors: {"params/*": _ _@b}',
        MESH + '\ntensors: {"params/**": replicate}',
        f"{MESH}\ntensors: {{batch/x: {{shard: {{device_assignment: {DEVICES}}}}}}}",
        MESH + "\ntensors: {batch/y: infer}",
        "mesh: {a: 2, b: 4}",
        "mesh: {a: {size: 4, over: [y]}, b: {size: 2, over: [x]}}",
        "mesh: {rows: 2, columns: auto}\ntensors: {batch/x: B@rows D}",
        MESH + "\ntensors: {out/0/w: D H@a}",
        "mesh: {a: 8}\ntensors: {batch/x: B@a D, params/v: H@a K}",
    ],
    "blocks": [
        MESH + "\ntensors: {params/0/wi: M H@a}",
        MESH + '\ntensors: {"params/*/wo": H@a+b M}',
        MESH + '\ntensors: {"params/**": replicate}',
        MESH + "\ntensors: {acts/stream: B@a M@b}",
        MESH + "\nremat: full",
        MESH + "\nremat: dots\ntensors: {acts/stream: replicate}",
        MESH + "\nremat: {save: [stream]}",
        MESH + "\nremat: auto\ntensors: {batch0: infer}",
        "mesh: {b: {size: 2, over: [x]}, a: {size: 4, over: [y]}}\nremat: none",
        MESH + "\ntensors: {out/0/0/wi: M@b H, batch0: B M@a}",
    ],
    "experts": [
        MESH + "\ntensors: {params/wi: E@a M H@b}",
        MESH + '\ntensors: {"params/w?": E@a+b ...}',
        MESH + "\ntensors: {params/router: replicate}",
        f"{MESH}\ntensors: {{params/router: {{shard: {{device_assignment: {DEVICES}}}}}}}",
        MESH + '\ntensors: {"out/**": infer}',
        "mesh: {a: 8}\ntensors: {params/wi: {split: {dim: 0, axis: a}}}",
        "mesh: {expert: auto, model: 2}\ntensors: {params/wo: E@expert H@model M}",
        "mesh: {a: {size: 4, over: [y]}, b: {size: 2, over: [x]}}\ntensors: {batch0: G@a S@b M}",
        MESH + "\ntensors: {ops/loss/dot_general.2: E@a G@b C H}",
        MESH + "\ntensors: {params/wo: auto, params/wi: E M@a H, batch0: replicate}",
    ],
    "a loop": [
        MESH + "\ntensors: {params/wi: L M H@a}",
        MESH + '\ntensors: {"params/*": L@a _ _@b}',
        MESH + '\ntensors: {"params/*": replicate}',
        f"{MESH}\ntensors: {{batch0: {{shard: {{device_assignment: {DEVICES}}}}}}}",
        MESH + '\ntensors: {"out/0/*": infer}',
        "mesh: {a: 2, b: 2, c: 2}",
        "mesh: {x: {size: 4, over: [y]}, y: {size: 2, over: [x]}}\ntensors: {batch0: B@x+y M}",
        MESH + "\ntensors: {ops/layer/dot_general.0: B@b H@a}",
        MESH + "\ntensors: {out/0/wo: L H@b M}",
        "mesh: {a: 4, b: auto}\ntensors: {params/wo: L H@a M@b, batch0: B@b M}",
    ],
}
SOME = {"toy": range(10), "blocks": (3, 7), "experts": (8,), "a loop": (4,)}
"""Those tried by default, a kind each: device assignments, results, policies, values of the step."""
CASES = [(m, number) for m, texts in PINS.items() for number in (range(len(texts)) if EVERY else SOME[m])]


def kept(asked: Plan, found: Plan) -> None:
    """All that the partial plan says and leaves not open stands in the plan that is found."""
    rules = [rule for rule in asked.rules if not isinstance(rule.assignment, Auto)]
    mine = [replace(rule, place=None) for rule in found.rules]
    assert [rule for rule in mine if rule in [replace(r, place=None) for r in rules]] == [
        replace(rule, place=None) for rule in rules
    ]
    sizes = {name: size for name, size in asked.mesh.sizes.items() if size is not None}
    assert found.mesh.sizes.items() >= sizes.items()
    assert list(found.mesh.sizes) == list(asked.mesh.sizes)
    orders = {axis.name: axis.over for axis in asked.mesh.axes or () if axis.over}
    assert {axis.name: axis.over for axis in found.mesh.axes or () if axis.name in orders} == orders
    if asked.remat is not None and asked.remat.policy != "auto":
        assert found.remat == asked.remat


@pytest.mark.parametrize(("model", "number"), CASES)
def test_what_is_pinned_is_kept_to_the_letter(model: str, number: int) -> None:
    step, args = MODELS[model]()
    asked = loads(f"meshwright: 1\ntopology: cpu:2x4\n{PINS[model][number]}\n")
    result = search(step, args, plan=asked, time_limit_s=30)
    assert result.plan is not None
    kept(asked, result.plan)
    assert loads(dumps(result.plan)) == result.plan
    tensors = trace(step, args, result.plan.remat).tensors
    pinned = resolve(replace(asked, mesh=result.plan.mesh), tensors)
    lies = resolve(result.plan, tensors)
    for tensor in tensors:
        if pinned.rules[key_of(tensor)] is not None and pinned.layouts[key_of(tensor)].how != "auto":
            assert lies.layouts[key_of(tensor)] == pinned.layouts[key_of(tensor)], tensor.path
    planned = mw.apply(result.plan, step, args)
    assert planned.traced.num_remat_blocks == trace(step, args, result.plan.remat).num_remat_blocks
    if number % 3 == 1 or model != "toy":
        assert_layouts(planned, planned.lower(*args).compile())


@pytest.fixture(scope="module")
def free() -> SearchResult:
    """What is found without pins of tensors."""
    step, args = small_steps.mlp(8192, 1024, 4096, 1)
    return search(step, args, topology="v5e:2x4", plan="meshwright: 1\n" + MESH + "\n")


@pytest.mark.parametrize("pin", some(["params/0/wi: M@a H", "params/0/wo: replicate", "batch0: replicate"], of=3))
def test_a_pin_costs_what_it_costs(pin: str, free: SearchResult) -> None:
    """Pins never make a plan better: the plan found without pins has no price above that of one with them."""
    step, args = small_steps.mlp(8192, 1024, 4096, 1)
    found = search(step, args, topology="v5e:2x4", plan=f"meshwright: 1\n{MESH}\ntensors: {{{pin}}}\n")
    assert found.step_time_s is not None
    assert free.step_time_s is not None
    assert found.step_time_s >= free.step_time_s * (1 - 1e-3)
