"""The family's members are what Table 1 says; settings that cannot be are told of, all at once."""

from __future__ import annotations

import math
import time
from typing import Any

import jax
import pytest
from meshwright.backends.jax.models import gshard, moe_step
from meshwright.backends.jax.models.family import MEMBERS, configure
from meshwright.backends.jax.models.moe import Capacity
from meshwright.backends.jax.models.parameters import Table, initial_parameters, parameter_table
from meshwright.dsl.errors import PlanError


def elements(table: Table, *, experts: bool) -> int:
    return sum(math.prod(p.shape) for p in table.values() if (p.dims[:3] == "L E") == experts)


def table_of(member: str) -> Table:
    return parameter_table(configure(member, {}))


@pytest.mark.parametrize(
    ("member", "experts", "others", "printed"),
    [
        ("moe-2048e-36l", 618.5e9, 0.853e9, 600e9),
        ("moe-2048e-12l", 206.2e9, 0.350e9, 200e9),
        ("moe-512e-36l", 154.6e9, 0.853e9, 150e9),
        ("moe-512e-12l", 51.5e9, 0.350e9, 50e9),
        ("moe-128e-36l", 38.65e9, 0.853e9, 37e9),
        ("moe-128e-12l", 12.88e9, 0.350e9, 12.5e9),
        ("moe-2048e-60l", 1031e9, 1.357e9, 1000e9),
    ],
)
def test_members_have_the_weights_of_table_1(member: str, experts: float, others: float, printed: float) -> None:
    table = table_of(member)
    gates_and_norms = sum(math.prod(p.shape) for path, p in table.items() if "norm" in path or path.endswith("wg"))
    assert elements(table, experts=True) == pytest.approx(experts, rel=1e-3)
    assert elements(table, experts=False) - gates_and_norms == pytest.approx(others, rel=2e-3)
    assert 1.0 < elements(table, experts=True) / printed < 1.07  # the paper rounds down


@pytest.mark.parametrize("member", [m for m in MEMBERS if m.startswith("moe")])
def test_members_keep_2048_source_tokens_a_core_and_a_whole_capacity(member: str) -> None:
    config = configure(member, {})
    assert config.tokens == 2048 * config.experts
    assert config.group_count == config.experts
    assert config.moe("encoder").capacity == Capacity(slots=2 * 2048 // config.experts)


@pytest.mark.parametrize(("member", "printed"), [("switch-base", 7.4e9), ("switch-large", 26.3e9)])
def test_switch_members_have_the_experts_of_its_table_9(member: str, printed: float) -> None:
    """Two matrices an expert here, three there: two thirds of what is printed, nearly all of it experts."""
    table, config = table_of(member), configure(member, {})
    assert elements(table, experts=True) == pytest.approx(2 / 3 * printed, rel=0.05)
    assert config.tokens == 2**20
    assert config.moe("encoder").capacity.slots == int(1.25 * 8192 / 128)


def test_a_trillion_weights_are_described_at_once_and_never_allocated() -> None:
    start = time.process_time()
    workload = gshard(member="moe-2048e-60l")
    assert time.process_time() - start < 2
    leaves = jax.tree.leaves(workload.args)
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)
    assert sum(leaf.size for leaf in jax.tree.leaves(workload.args[0])) > 1.03e12


def test_plain_settings_are_those_of_appendix_a2() -> None:
    params, opt, batch = gshard(experts=2048, layers=36).args
    assert params["encoder"]["moe"]["wi"].shape == (9, 2048, 1024, 8192)
    assert params["decoder"]["moe_cross_attention"]["wq"].shape == (9, 1024, 16, 128)
    assert opt["v_row"]["encoder"]["moe"]["wi"].shape == (9, 2048, 1024)
    assert opt["v_col"]["encoder"]["moe"]["wi"].shape == (9, 2048, 8192)
    assert opt["count"].shape == ()
    assert sorted(batch) == sorted(f"{s}{p}" for s in ("source", "target") for p in ("", "_segments", "_positions"))
    assert batch["source"].shape == (4096, 1024)


def test_settings_override_a_members() -> None:
    assert configure("tiny", {"layers": 8}).blocks == 2
    assert configure("tiny", {"experts": 0}).blocks == 2


@pytest.mark.parametrize("member", ["tiny", "small"])
def test_what_init_gives_has_the_abstract_shapes(member: str) -> None:
    workload = gshard(member=member)
    assert workload.init is not None
    state = jax.eval_shape(lambda: workload.init(0))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), state) == jax.tree.map(
        lambda x: (x.shape, x.dtype), workload.args[:2]
    )


def problems(**settings: Any) -> dict[str, str]:
    with pytest.raises(PlanError) as caught:
        gshard(**settings)
    return {p.code: f"{p.message} {p.remedy}" for p in caught.value.problems}


def test_every_bad_setting_is_told_at_once() -> None:
    told = problems(expertz=4, layers="twelve", dropout=1.5, random_routing=1, activations="float16", heads=True)
    assert sorted(told) == ["MW601", "MW602", "MW603"]
    with pytest.raises(PlanError) as caught:
        gshard(expertz=4, layers="twelve", dropout=1.5, random_routing=1, activations="float16", heads=True)
    assert len(caught.value.problems) == 6


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"member": "tinny"}, "MW604", "'tiny'"),
        ({"member": 7}, "MW604", "moe-2048e-36l"),
        ({"expert": 8}, "MW601", "'experts'"),
        ({"membr": "tiny"}, "MW601", "'member'"),
        ({"aux_weight": "x"}, "MW602", "a number or null"),
        ({"layers": 6}, "MW605", "4, 8"),
        ({"member": "tiny", "groups": 7}, "MW606", "4, 8"),
        ({"member": "tiny", "groups": 512}, "MW607", "256"),
        ({"member": "tiny", "experts": 3}, "MW607", "none"),
        ({"layers": float("nan")}, "MW602", "whole number"),
        ({"dropout": float("nan")}, "MW603", "at least 0"),
        ({"batch": 0}, "MW603", "at least 1"),
        ({"heads": 10**30}, "MW603", "below"),
        ({"batch": 2**31 - 1, "length": 2**31 - 2}, "MW607", "none"),
        ({"gate": "switsch"}, "MW603", "switch"),
        ({"gate": "switch", "published": "lingvo"}, "MW609", "pseudo-code"),
        ({"gate": "switch", "top_k": 2}, "MW610", "top_k: 1"),
        ({"member": "tiny", "gate": "top_k", "top_k": 9}, "MW610", "8 experts"),
        ({"gate": "expert_choice"}, "MW611", "noisy_top_k"),
        ({"gate": "switch", "sets": 2}, "MW612", "hierarchical"),
        ({"capacity": 4, "capacity_factor": 2}, "MW612", "capacity: null"),
        ({"capacity_mode": "automatic", "capacity": 4}, "MW612", "bounded"),
        ({"gate": "top_k", "top_k": 3, "random_threshold": 0.2}, "MW612", "top_k: 2"),
        ({"fill_to": 128}, "MW612", "dispatch: sorted"),
        ({"gate": "noisy_top_k", "uniform_steps": 2}, "MW612", "gate: gshard or"),
        ({"decoder_gate": "noisy_top_k", "uniform_steps": 2}, "MW612", "decoder_gate: gshard or"),
        ({"decoder_gate": "hierarchical", "uniform_steps": 2}, "MW612", "decoder_gate: hierarchical"),
        ({"member": "tiny", "gate": "hierarchical", "sets": 3}, "MW613", "2, 4"),
        ({"dispatch": "sorted", "kernel": "megablox", "fill_to": 8}, "MW614", "fill_to: 128"),
        ({"member": "tiny", "gate": "switch", "capacity_factor": 0}, "MW607", "rule switch"),
    ],
)
def test_a_bad_setting_is_told_with_what_is_legal(settings: dict[str, Any], code: str, words: str) -> None:
    assert words in problems(**settings)[code]


def test_one_layer_alone_refuses_what_only_a_model_has() -> None:
    with pytest.raises(PlanError) as caught:
        moe_step("tiny", uniform_steps=5, layers=8, dropout=0.1, random_routing=True, experts=0)
    assert [found.code for found in caught.value.problems] == ["MW612"] * 5
    refused = [found.message.split(":")[0] for found in caught.value.problems]
    assert refused == ["layers", "uniform_steps", "dropout", "random_routing", "experts"]
    assert moe_step("tiny", uniform_steps=0, dropout=0.0, random_routing=False, seed=0, jitter=None).args


def test_the_auxiliary_loss_weighs_a_hundredth_where_loads_are_equal() -> None:
    assert configure(None, {"experts": 128}).aux_multiplier == pytest.approx(0.01 * 128**2)  # it is 1/E² there
    assert configure("tiny", {"aux_weight": 0}).aux_multiplier == 0
    assert configure("tiny", {"experts": 0}).aux_multiplier == 0


def test_an_explicit_capacity_need_not_be_2s_over_e() -> None:
    assert configure("tiny", {"experts": 3, "capacity": 5}).moe("decoder").capacity.slots == 5


def test_a_gates_weights_are_its_own() -> None:
    def gate(**settings: Any) -> dict[str, tuple[int, ...]]:
        table = parameter_table(configure("tiny", settings))
        return {path[12:]: p.shape for path, p in table.items() if path.startswith("encoder/moe/")}

    assert gate()["wg"] == (1, 64, 8)
    assert gate(gate="noisy_top_k")["wg_noise"] == (1, 64, 8)
    assert (
        gate(gate="hierarchical", sets=4)["wg_set"] == gate(gate="hierarchical", sets=4)["wg_set_noise"] == (1, 64, 4)
    )
    assert gate(gate="batchwise", decoder_gate="gshard")["threshold"] == (1, 8)
    assert {
        p.std for path, p in parameter_table(configure("tiny", {"gate": "noisy_top_k"})).items() if "/wg" in path
    } == {0}


def test_weights_start_smaller_and_cut_as_in_switch() -> None:
    config = configure("tiny", {"init": "truncated", "init_scale": 0.1})
    plain, scaled = parameter_table(configure("tiny", {})), parameter_table(config)
    wi = initial_parameters({"wi": scaled["encoder/moe/wi"]}, jax.random.key(0))["wi"]
    std = plain["encoder/moe/wi"].std * 0.1**0.5
    assert scaled["encoder/moe/wi"].std == pytest.approx(std)
    assert float(abs(wi).max()) <= 2 * std
    assert float(wi.std()) == pytest.approx(0.88 * std, rel=0.02)  # of a normal cut at two deviations


def test_a_decoder_has_the_gate_that_it_is_given() -> None:
    config = configure("tiny", {"gate": "expert_choice", "decoder_gate": "switch", "z_weight": 0.001})
    assert type(config.moe("encoder").gate).__name__ == "ExpertChoiceGate"
    gate: Any = config.moe("decoder").gate
    assert gate.rules.choices == 1
    assert config.moe("decoder").capacity.slots == int(1.25 * 128 / 8)


def test_dropout_and_routing_follow_from_the_step_count_and_the_seed() -> None:
    workload = gshard(member="tiny", experts=2, length=16, batch=8)
    assert workload.init is not None
    state = workload.init(0)
    batch = {name: jax.numpy.ones(x.shape, x.dtype) for name, x in workload.args[2].items()}
    loss = jax.jit(lambda count: workload.step(state[0], {**state[1], "count": count}, batch)[2]["loss"])
    losses = [float(loss(jax.numpy.int32(t))) for t in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]


def test_the_program_does_not_grow_with_depth() -> None:
    def operations(layers: int) -> int:
        workload = gshard(member="tiny", layers=layers)
        return jax.jit(workload.step).lower(*workload.args).as_text().count("stablehlo.")

    assert operations(8) == operations(24)
