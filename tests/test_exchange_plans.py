"""A plan says how tokens are exchanged, over which of its axes; what cannot be is told with what can."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import meshwright as mw
import numpy as np
import pytest
from extent import some
from meshwright.backends.jax.decoding.incremental import read_source
from meshwright.backends.jax.loading import load_workload, trace_workload
from meshwright.backends.jax.models.family import abstract_arguments, configure, gshard
from meshwright.backends.jax.open_settings import open_settings
from meshwright.dsl.checks import check
from meshwright.dsl.plan import Axis, Mesh

LAYER = "meshwright.backends.jax.models:moe_step"
SMALL = {
    "experts": 8,
    "layers": 4,
    "model_dim": 8,
    "hidden_dim": 16,
    "heads": 1,
    "head_dim": 8,
    "source_vocab": 16,
    "target_vocab": 16,
    "batch": 8,
    "length": 8,
}
LAID = """
meshwright: 1
model: meshwright.backends.jax.models:gshard
with: {{{settings}}}
topology: {topology}
mesh: {mesh}
tensors:
  batch/**: B@{tokens} T
  params/**/moe/wi: L E@expert M H@{hidden}
  params/**/moe/wo: L E@expert H@{hidden} M
  params/**: replicate
  opt/**: replicate
  acts/moe/combined: G@{tokens} S M
"""


def plan(
    topology: str = "cpu:8",
    sizes: Mapping[str, int] = MappingProxyType({"expert": 4, "model": 2}),
    *,
    tokens: str = "expert+model",
    hidden: str = "model",
    **settings: Any,
) -> mw.Plan:
    said = ", ".join(f"{name}: {value}" for name, value in {**SMALL, **settings}.items())
    mesh = ", ".join(f"{name}: {size}" for name, size in sizes.items())
    laid = {"settings": said, "mesh": f"{{{mesh}}}", "tokens": tokens, "hidden": hidden}
    return mw.loads(LAID.format(topology=topology, **laid))


def drawn(leaf: jax.ShapeDtypeStruct, random: np.random.Generator) -> np.ndarray:
    if leaf.dtype == np.int32:
        return random.integers(1, 16, leaf.shape, dtype=np.int32)
    return random.normal(0, 0.3, leaf.shape).astype(leaf.dtype)


def quickly(function: Any, args: Any) -> Any:
    """What it gives, compiled in little time."""
    return function.lower(*args).compile({"xla_backend_optimization_level": "0"})(*args)


@pytest.fixture(scope="module")
def annotated() -> tuple[Any, Any]:
    """A model's arguments, and its metrics without any plan."""
    workload = gshard(**SMALL)
    assert workload.evaluate is not None
    random = np.random.default_rng(0)
    args = jax.tree.map(lambda leaf: drawn(leaf, random), workload.args)
    for part in ("source", "target"):
        args[2][f"{part}_segments"] = np.ones((8, 8), np.int32)
        args[2][f"{part}_positions"] = np.tile(np.arange(8, dtype=np.int32), (8, 1))
    return args, quickly(jax.jit(workload.evaluate), args)


SHIPPED = sorted((Path(__file__).parent.parent / "plans" / "exchange").glob("*.yaml"))


@pytest.mark.parametrize("path", some(SHIPPED, of=3), ids=lambda path: path.stem)
def test_a_shipped_plan_has_its_tokens_exchanged_by_hand(path: Path, annotated: tuple[Any, Any]) -> None:
    """Nothing is dropped where capacity is automatic; else what is dropped is the same."""
    said = mw.load(path)
    assert mw.dumps(said) == path.read_text()
    assert (said.name, path.read_text()[:2]) == (path.stem, "# ")
    small = replace(said, settings={**said.settings, **SMALL})
    evaluate, (args, wanted) = load_workload(small).evaluate, annotated
    assert evaluate is not None
    assert check(said, trace_workload(said).tensors) == ()
    got = quickly(mw.apply(small, evaluate, args), args)
    if small.settings.get("capacity_mode") == "automatic":
        assert got["dropped"] == got["refused"] == 0
        wanted = quickly(jax.jit(gshard(**SMALL, dispatch="sorted", capacity_mode="automatic").evaluate), args)
    assert set(got) - {"refused"} == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"exchange_chunks": 2},
            {("all-to-all", ("expert",)): 8, ("all-gather", ("model",)): 4, ("reduce-scatter", ("model",)): 4},
        ),
        ({"expert_shards": 1}, {("all-to-all", ("expert",)): 4, ("all-gather", ("model",)): 4}),
        ({"expert_shards": 0}, {("all-gather", ("expert",)): 4, ("all-gather", ("model",)): 4}),
        (
            {"dispatch": "sorted", "expert_shards": 1, "exchange_bound": 2},
            {
                ("ragged-all-to-all", ("expert",)): 4,
                ("all-to-all", ("expert",)): 4,
                ("all-gather", ("model",)): 4,
                ("all-reduce", ("expert", "model")): 2,  # what was refused
            },
        ),
    ],
)
def test_what_a_region_communicates_is_predicted(settings: dict[str, Any], expected: dict[Any, int]) -> None:
    """Two MoE layers, forward: each has two ways, there and back, and two chunks, or two weights to gather."""
    said = plan("v5e:2x4", exchange="manual", hidden_axes="model", **settings)
    workload = load_workload(said)
    found: dict[Any, int] = {}
    assert ("refused" in jax.eval_shape(workload.evaluate, *workload.args)) == ("exchange_bound" in settings)
    for each in mw.estimate(said, workload.evaluate, workload.args).collectives:
        if "/exchange/" in str(each.origin):
            key = (each.kind, each.axes)
            found[key] = found.get(key, 0) + each.times
    assert found == expected


@pytest.mark.parametrize(
    ("shards", "scattered"),
    some([(2, [("reduce-scatter", ("a",))]), (0, [("reduce-scatter", ("a", "b")), ("reduce-scatter", ("expert",))])]),
)
def test_gradients_are_summed_over_exactly_the_replicas_of_each_tensor(shards: int, scattered: list[Any]) -> None:
    """Experts have replicas along ``data``, all else everywhere (FastMoE). What r gathers comes back in parts."""
    settings = {"exchange": "manual", "token_axes": "data", "hidden_axes": "a+b", "expert_shards": shards}
    sizes = {"data": 2, "expert": 2, "a": 2, "b": 2}
    laid = plan("v5e:4x4", sizes, tokens="data+expert+a+b", hidden="a+b", **settings, groups=16, batch=16)
    summed: dict[str, list[Any]] = {}
    workload = load_workload(laid)
    for each in mw.estimate(laid, workload.step, workload.args).collectives:
        for name in each.gradient_of:
            summed.setdefault(name, []).append((each.kind, each.axes))
    everywhere = ("all-reduce", ("data", "expert", "a", "b"))
    for stack in ("encoder", "decoder"):
        assert summed[f"params/{stack}/moe/wg"] == summed[f"params/{stack}/ffn/wi"] == [everywhere]
        for name in ("wi", "wo"):
            assert summed[f"params/{stack}/moe/{name}"] == [*scattered, ("all-reduce", ("data",))]


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))


@pytest.mark.parametrize(("slots", "best"), [(16, 4), (4096, 1)])
def test_few_tokens_travel_to_split_experts_and_many_have_the_weights_come(benchmarks, slots: int, best: int) -> None:
    """Tutel's Table 4: C_g·r + P/(E·r), so that r falls as the capacity grows."""
    layer = importlib.import_module("expert_shards")
    assert min((0, 1, 2, 4), key=lambda r: layer.seconds(slots, r)) == best


@pytest.mark.parametrize(("exchange_s", "work_s"), [(1.0, 1.0), (1.0, 5.0), (5.0, 1.0)])
def test_chunks_overlap_as_a_schedule_by_hand_does(benchmarks, exchange_s: float, work_s: float) -> None:
    layer = importlib.import_module("exchange").Layer(exchange_s=exchange_s, work_s=work_s, chunks=2)
    there = [exchange_s, 2 * exchange_s]
    first = there[0] + work_s
    second = max(first, there[1]) + work_s
    assert layer.overlapped_s == max(max(first, there[1]) + exchange_s, second) + exchange_s
    assert layer.overlapped_s < layer.in_turn_s == 2 * (2 * exchange_s + work_s)


def test_decoding_has_too_few_rows_for_a_region_and_needs_none() -> None:
    config = configure(None, {**SMALL, "exchange": "manual"}, {"expert": 8})
    params, _, batch = abstract_arguments(config)
    few = {name: jax.ShapeDtypeStruct((3, 5), row.dtype) for name, row in batch.items()}
    read = jax.eval_shape(functools.partial(read_source, config), params, few)
    assert read.mask.shape == (3, 5)


def problems(mesh: dict[str, int] | None, **settings: Any) -> dict[str, str]:
    with pytest.raises(mw.PlanError) as error:
        configure(None, {**SMALL, **settings}, mesh)
    return {found.code: str(found) for found in error.value.problems}


BY_HAND = {"exchange": "manual"}


@pytest.mark.parametrize(
    ("mesh", "settings", "code", "words"),
    [
        (None, BY_HAND, "MW615", "Say mesh"),
        ({"experts": 8}, BY_HAND, "MW616", "Did you mean 'experts'"),
        ({"expert": 8}, {**BY_HAND, "hidden_axes": "expert"}, "MW616", "Name expert once"),
        ({"expert": 8}, {**BY_HAND, "token_axes": "expert"}, "MW616", "Name expert once"),
        ({"expert": 8}, {"token_axes": "data"}, "MW612", "exchange: manual"),
        ({"expert": 16}, BY_HAND, "MW617", "Nearest legal groups: 16"),
        ({"expert": 8, "x": 3}, {**BY_HAND, "hidden_axes": "x"}, "MW617", "Nearest legal hidden_dim: 15, 18"),
        ({"expert": 4, "x": 2}, {**BY_HAND, "hidden_axes": "x", "expert_shards": 3}, "MW618", "0, 1, 2"),
        ({"expert": 8}, {"exchange": "hierarchical"}, "MW619", "OUTER+INNER"),
        (None, {"exchange_axes": "expert"}, "MW612", "exchange: manual"),
        (None, {"dispatch": "sorted", "exchange_chunks": 2}, "MW612", "dispatch: index"),
        ({"expert": 8}, {**BY_HAND, "exchange_bound": 2}, "MW612", "dispatch: sorted"),
        ({"expert": 8}, {**BY_HAND, "expert_shards": 0, "exchange_chunks": 2}, "MW612", "expert_shards: 1"),
    ],
)
def test_an_exchange_that_cannot_be_is_told_with_what_can(mesh, settings, code, words) -> None:
    assert words in problems(mesh, **settings)[code]


def test_an_open_mesh_has_all_axes_that_the_exchange_names() -> None:
    said = "member: tiny, dispatch: index, exchange: manual, token_axes: data, hidden_axes: x"
    left = open_settings(mw.loads(f"meshwright: 1\nmodel: {LAYER}\nwith: {{{said}}}\ntopology: cpu:8\nmesh: auto\n"))
    axes = left.axes_of(left.plan)
    assert axes == ("data", "expert", "x")
    mesh = Mesh(axes=tuple(Axis(name=name, size=2) for name in axes))
    assert load_workload(replace(left.plan, mesh=mesh)).args


def test_the_mesh_is_no_setting() -> None:
    with pytest.raises(mw.PlanError, match=r"MW312.*plan_mesh"):
        load_workload(plan(plan_mesh="{expert: 8}"))
