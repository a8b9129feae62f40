"""What a step takes at least on a mesh, whatever its layouts: no plan takes less, of a host's simulated devices too."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
import small_steps
from extent import some
from in_process import search
from meshwright.backends.jax.drafts import Drafts
from meshwright.planner.search.floor import Products
from meshwright.planner.topology import physical
from small_steps import Pair
from written_plans import by_hand, drawn

SIZES = {"a": 4, "b": 2}
SHAPE = small_steps.shape


def spread() -> Pair:
    """Products that sum nothing, which are multiplications number by number: on a CPU these are as quick as others."""

    def step(x: jax.Array, y: jax.Array, w: jax.Array) -> jax.Array:
        outer = jnp.einsum("i,j->ij", x, y, precision="highest")
        return jnp.sum(jnp.einsum("ij,ij->ij", outer, w), 0)

    return step, (SHAPE(8192), SHAPE(4096), SHAPE(8192, 4096))


STEPS: dict[str, Callable[[], Pair]] = {
    "products": lambda: small_steps.mlp(1024, 256, 512, 2),
    "experts": small_steps.experts,
    "a loop": lambda: small_steps.scanned(1024, 256, 512, 3),
    "convolutions": lambda: small_steps.convolved(8, 64, 16, 1),
    "what sums nothing": spread,
}


@pytest.mark.parametrize("topology", some(["cpu:8", "v3:2x2", "a100:8"]))
@pytest.mark.parametrize("name", STEPS)
def test_no_plan_takes_less(name: str, topology: str) -> None:
    workload = Drafts(*STEPS[name]())
    asked = mw.loads(f"meshwright: 1\ntopology: {topology}\nmesh: {{a: 4, b: 2}}\n")
    assert asked.topology is not None
    machine, graph = physical(asked.topology), workload.graph(asked)
    floor_s = Products.of(graph).seconds(list(SIZES.values()), machine.chip)
    assert (floor_s > 0) == (name != "what sums nothing")
    plans = [*by_hand(workload.tensors, asked.topology, SIZES).values()]
    plans += drawn(workload.tensors, asked.topology, SIZES, 5)
    assert floor_s <= min(workload.estimate(plan).step_time_s for plan in plans)


def test_what_nobody_solved_in_time_on_a_host_is_bounded_by_its_products() -> None:
    step, args = small_steps.mlp(1024, 256, 512, 2)
    found = search(step, args, topology="cpu:8", time_limit_s=1e-3)
    assert found.bound_s is not None
    assert 0 < found.bound_s <= (found.step_time_s or 0.0)
