"""What teams found out by hand, found by search: which axes split which dims of what, where each layout pays."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import small_steps
from extent import some
from in_process import search
from meshwright.backends.jax.drafts import Drafts
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.patterns import compile_pattern
from meshwright.dsl.resolve import key_of, resolve
from meshwright.planner.graph import Graph
from meshwright.planner.search.result import SearchResult
from meshwright.planner.topology import physical
from small_steps import Pair
from written_plans import Layout, as_state, edges, written

MESH = {"a": 4, "b": 2}
ALL = frozenset(MESH)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A searched plan and what it makes of the step: the layouts of arguments, and those of computed values."""

    result: SearchResult
    workload: Drafts
    arguments: Mapping[str, Layout]
    values: Mapping[str, Layout] = field(default_factory=dict)

    def axes(self, path: str, dim: int) -> frozenset[str]:
        """The axes that split a dim of an argument or a value."""
        layout = self.arguments[path] if path in self.arguments else self.values[path]
        return frozenset(layout[dim])


@functools.cache
def experts_planned(*sizes: int) -> Planned:
    """What is found for a layer of experts, which several tests look at; searched once."""
    return planned(small_steps.experts(*sizes))


def planned(pair: Pair, topology: str = "v5e:2x4", mesh: Mapping[str, int] = MESH, **options: Any) -> Planned:
    step, args = pair
    result = search(step, args, topology=topology, mesh=mesh, time_limit_s=120, **options)
    assert result.plan is not None
    workload = Drafts(step, args)
    laid = resolve(result.plan, workload.tensors).layouts
    graph = workload.laid(result.plan)
    assert graph is not None
    return Planned(
        result=result,
        workload=workload,
        arguments={t.path: laid[key_of(t)].axes for t in workload.tensors if t.role == "argument"},
        values=dict(values_of(graph)),
    )


def values_of(graph: Graph) -> Iterator[tuple[str, Layout]]:
    """The layouts of computed values after propagation."""
    for inner, op, _ in graph.walk():
        value = inner.values[op.results[0]] if op.results else None
        if op.origin.value is not None and value is not None:
            yield op.origin.value, value.sharding or ((),) * len(value.shape)


UP, DOWN = "ops/loss/dot_general.0/0", "ops/loss/dot_general.1/0"  # of the first layer of products
MADE = "ops/loss/dot_general.2"  # by experts: experts, groups, slots, hidden


@pytest.mark.parametrize(
    "sizes",
    some([(64, 256, 512, 2048, 64, 8), (64, 256, 512, 2048, 64, 16, 2)], first=1),
    ids=lambda sizes: "two experts a token" if len(sizes) == 7 else "one expert a token",
)
def test_experts_lie_over_all_devices(sizes: tuple[int, ...]) -> None:
    found = experts_planned(*sizes)
    assert found.axes("params/wi", 0) == found.axes("params/wo", 0) == ALL
    assert found.axes(MADE, 0) == ALL


def test_a_wide_layer_with_few_tokens_is_tensor_parallel() -> None:
    """Every weight stays split over all devices, by the features that its product has or adds up, and no tokens are."""
    found = planned(small_steps.mlp(256, 4096, 16384))
    assert found.axes("params/0/wi", 0) | found.axes("params/0/wi", 1) == ALL
    assert found.axes("params/0/wo", 0) | found.axes("params/0/wo", 1) == ALL
    assert found.axes(UP, 1) == found.axes("params/0/wi", 1) >= {"a"}
    assert found.axes(UP, 0) == frozenset()


def test_a_step_on_wide_matrix_units_is_proven_close() -> None:
    """Among its layouts are some whose first gradient lies transposed and is copied, other updates with it, where their
    parts have one shape; the best has none. What is left are sums that kernels write together (``duplicated``).
    """
    found = planned(small_steps.mlp(256, 2048, 8192), topology="v6e:2x4", mesh={"x": 8})
    assert found.result.gap < 0.05


def test_what_norms_are_made_of_is_said_where_the_layout_hangs_on_it() -> None:
    """How rows are normed is said; their means are gathered before they are broadcast, which no line has to say."""

    def loss(weights: Any, x: Any) -> Any:
        normed = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weights["scale"]
        return jnp.mean((x + jnp.tanh(normed @ weights["wi"]) @ weights["wo"]) ** 2)

    weights = {"wi": (2048, 4096), "wo": (4096, 2048), "scale": (2048,)}
    step = small_steps.trained(
        loss, {name: small_steps.shape(*sizes) for name, sizes in weights.items()}, small_steps.shape(2048, 2048)
    )
    found = search(*step, topology="v3:2x2", mesh={"x": 2, "y": 4}, time_limit_s=60)
    said = [compile_pattern(rule.pattern) for rule in found.plan.rules if rule.pattern.startswith("ops/")]
    normed = [f"ops/loss/mul.{number}{read}" for number in (0, 1) for read in ("", ".in0", ".in1")]
    assert any(pattern.matches(path) for pattern in said for path in normed)
    assert found.gap < 0.03


MESHES = [{"a": 2, "b": 4}, MESH]


@pytest.mark.parametrize("mesh", MESHES[:1])
def test_a_large_model_with_many_tokens_is_fully_sharded(mesh: dict[str, int]) -> None:
    """Tokens over all devices; weights and momentum too, which would not fit whole, each gathered where it is used."""
    step = small_steps.mlp(65536, 2048, 8192, 4, momentum=True)
    found = planned(step, mesh=mesh, limits={"hbm": "3 GiB"}, ask_compiler=False)
    assert found.result.estimate is not None
    assert found.result.estimate.peak_bytes <= 3 * 2**30
    weights = [path for path in found.arguments if path.startswith(("params/", "mu/"))]
    assert all(found.axes(path, 0) | found.axes(path, 1) == ALL for path in weights)
    assert found.axes("batch0", 0) >= {"a"}
    assert all(found.axes(path, 0) == ALL and not found.axes(path, 1) for path in (UP, DOWN))


@pytest.mark.parametrize("mesh", MESHES[1:])
def test_tokens_are_held_by_all_devices_that_compute_with_them(mesh: dict[str, int]) -> None:
    found = planned(
        small_steps.mlp(65536, 2048, 8192, 4, momentum=True), mesh=mesh, limits={"hbm": "3 GiB"}, ask_compiler=False
    )
    assert found.axes("batch0", 0) == ALL


def test_a_convolution_over_few_large_images_is_split_in_space() -> None:
    found = planned(small_steps.convolved(batch=2, size=1024, channels=64))
    made = "ops/loss/conv_general_dilated.0/0"
    assert found.axes(made, 0) <= {"b"}
    assert {"a"} <= found.axes(made, 1) | found.axes(made, 2)
    assert found.axes(made, 0) | found.axes(made, 1) | found.axes(made, 2) == ALL


def balance_tokens(topology: str, rings: bool) -> float:
    """Tokens a device from which on products take longer than handing their weights round one axis: C / W in bf16."""
    chip = physical(parse_topology(topology)).chip
    assert chip.ici is not None
    one_way = chip.ici.link_gb_per_s * 1e9 * chip.ici.efficiency
    flops = chip.peak_flops_per_s("bfloat16")
    assert flops is not None
    return float(flops / (one_way * (2 if rings else 1)))


FACTOR = 4


@pytest.mark.parametrize(
    ("topology", "mesh", "rings"), some([("v5e:4x4", (4, 4), False), ("v5p:4x4x4", (16, 4), True)])
)
def test_the_layout_turns_at_the_balance_of_computing_and_communicating(
    topology: str, mesh: tuple[int, int], rings: bool
) -> None:
    """A factor beyond the balance tokens alone are split, a factor below it the hidden dim is too."""
    sizes = {"a": mesh[0], "b": mesh[1]}
    for factor in (FACTOR, 1 / FACTOR):
        each = 2 ** round(jnp.log2(balance_tokens(topology, rings) * factor).item())
        found = planned(small_steps.mlp(each * mesh[0] * mesh[1], 4096, 16384, dtype=jnp.bfloat16), topology, sizes)
        if factor > 1:
            assert found.axes(UP, 0) == ALL
        else:
            assert found.axes(UP, 1)


def test_experts_are_split_where_a_dense_layer_would_not_be() -> None:
    """Of eight experts each device's tokens use little, so that the balance is eight times as far."""
    dense = planned(small_steps.mlp(131072, 1024, 4096, 1))
    assert dense.axes("ops/loss/dot_general.0", 0) == ALL
    sparse = planned(small_steps.experts(1024, 128, 1024, 4096, 8, 16))
    assert sparse.axes(MADE, 0)


@pytest.mark.parametrize(
    "sizes",
    [
        *some([(8, 64, 1024, 8192, 4, 16), (64, 512, 1024, 4096, 4, 128), (64, 512, 512, 256, 8, 64)], of=3),
        (64, 256, 512, 2048, 64, 8),
    ],
    ids=lambda sizes: f"{sizes[4]} experts of {sizes[3]}, {sizes[0] * sizes[1]} tokens",
)
def test_data_parallel_or_experts_with_model_and_data_parallel_is_all_that_is_needed(sizes: tuple[int, ...]) -> None:
    found = experts_planned(*sizes)
    experts, hidden = found.axes(MADE, 0), found.axes(MADE, 3)
    groups = found.axes(MADE, 1) | found.axes(MADE, 2)
    assert experts or (groups == ALL and not hidden)


def test_experts_lie_over_the_axis_that_attention_is_split_over() -> None:
    found = planned(small_steps.experts(2, 2048, 2048, 4096, 8, 256, heads=16))
    heads, experts = found.axes("params/attention/q", 1), found.axes("params/wi", 0)
    assert heads & experts
    assert found.axes("ops/attend/dot_general.0", 1) & found.axes(MADE, 0)


@pytest.mark.parametrize(
    "sizes",
    some([(64, 256, 512, 2048, 8, 64), (8, 64, 1024, 8192, 4, 16)]),
    ids=lambda sizes: "many tokens" if sizes[0] == 64 else "few tokens",
)
def test_nothing_found_is_worse_than_the_five_layouts_of_switch(sizes: tuple[int, ...]) -> None:
    """Data, model, model and data, expert and data, expert, model and data parallel."""
    found = experts_planned(*sizes)
    every, expert, model = ("a", "b"), ("a",), ("b",)
    five = {
        "data": (every, (), ()),
        "model": ((), (), every),
        "model and data": (expert, (), model),
        "expert and data": (every, every, ()),
        "expert, model and data": (expert, expert, model),
    }
    tensors = found.workload.tensors
    for name, (tokens, experts, hidden) in five.items():
        layouts: dict[str, Layout] = {t.path: ((),) * len(t.shape) for t in edges(tensors)}
        layouts |= {"params/wi": (experts, (), hidden), "params/wo": (experts, hidden, ()), "batch0": (tokens, (), ())}
        if any(t.path == "params/wi" and t.shape[0] % 8 for t in tensors) and experts == every:
            layouts |= {"params/wi": (expert, (), ()), "params/wo": (expert, (), ())}
        plan = written(found.result.plan.topology, MESH, as_state(tensors, layouts))
        assert found.result.step_time_s <= found.workload.estimate(plan).step_time_s * (1 + 1e-9), name
