"""A user's own machine, in a file beside the plan."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from meshwright.dsl.errors import PlanError
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.plan import Place, Topology
from meshwright.dsl.reader import load
from meshwright.planner.catalogue import catalogue
from meshwright.planner.collectives import price
from meshwright.planner.device_order import check
from meshwright.planner.kinds import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL
from meshwright.planner.placement import place
from meshwright.planner.topology import Machine, physical

BOX = """\
platform: gpu
jax_kind: My GPU
dims: [gpu, node]
order: [node, gpu]
optional_dims: 1
largest: [4, 16]
hbm_mib: {physical: 24576}
hbm_gb_per_s: 936
peak_tflops: {bfloat16: 71}
tile: {lanes: 128, sublanes: {'32': 8}}
switch: {device_gb_per_s: 28, hop_us: 5}
uplink: {chip_gb_per_s: 3, latency_us: 20}
algorithms: [{name: ring, protocol: Simple, base_us: 8, hop_us: 5, net_us: 20, bandwidth: 1}]
"""


def machine(folder: Path, text: str, dims: str = "4x2") -> Machine:
    (folder / "box.yaml").write_text(text)
    return physical(named(f"box.yaml:{dims}", Place(file=str(folder / "plan.yaml"))))


def named(topology: str, place: Place) -> Topology:
    return replace(parse_topology(topology), place=place)


def refused(folder: Path, text: str) -> list[str]:
    with pytest.raises(PlanError) as error:
        machine(folder, text)
    return [str(problem).replace(f"{folder}/", "") for problem in error.value.problems]


def test_a_plan_names_the_file_beside_it(tmp_path: Path) -> None:
    box = machine(tmp_path, BOX)
    assert (box.num_devices, box.hbm_bytes, box.jax_kind) == (8, 24 * 2**30, "My GPU")
    assert box.chip.peak_flops_per_s("bfloat16") == 71e12
    assert price(ALL_REDUCE, 1e9, place(box, np.arange(8)[None, :])).bottleneck == "the data-centre network"


def test_a_plan_is_checked_against_it(tmp_path: Path) -> None:
    (tmp_path / "box.yaml").write_text(BOX)
    plan = tmp_path / "plan.yaml"
    plan.write_text("meshwright: 1\ntopology: box.yaml:4x2\nmesh: {a: 4}\ntensors:\n  '**': replicate\n")
    (found,) = check(load(plan))
    assert (found.code, found.numbers["devices"]) == ("MW210", 8)


def test_without_a_plan_it_stands_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "box.yaml").write_text(BOX)
    monkeypatch.chdir(tmp_path)
    assert physical(parse_topology("box.yaml:4")).num_devices == 4


def test_its_sizes_have_limits_too(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"MW204 There is no box\.yaml:8x2: gpu is at most 4"):
        machine(tmp_path, BOX, dims="8x2")


def test_a_file_that_is_not_there_is_told_where_it_was_asked_for() -> None:
    with pytest.raises(PlanError) as error:
        physical(named("none.yaml:4", Place(file="/nowhere/plan.yaml", line=3, column=11)))
    (found,) = error.value.problems
    assert str(found).startswith("/nowhere/plan.yaml:3:11: MW207 The machine's file /nowhere/none.yaml cannot be read")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("platform: gpu", "platform: npu"), "box.yaml:1:1: MW208 'platform' is wrong: input should be 'tpu'"),
        (("switch:", "swich:"), "box.yaml:11:1: MW208 'swich' is not a key here.\n    Did you mean 'switch'"),
        (("device_gb_per_s: 28", "device_gb_per_s: -28"), "box.yaml:11:10: MW208 'switch.device_gb_per_s' is wrong"),
        (("device_gb_per_s: 28", "device_gb_per_s: fast"), "box.yaml:11:10: MW208 'switch.device_gb_per_s' is wrong"),
        (("device_gb_per_s: 28, ", ""), "box.yaml:11:1: MW208 'switch.device_gb_per_s' is missing"),
        (("dims: [gpu, node]", "dims: [gpu, core]"), "box.yaml:1:1: MW208 The machine is wrong"),
        (("largest: [4, 16]", "largest: [4]"), "MW208 The machine is wrong: host and largest have one entry a dim"),
        (
            ("jax_kind: My GPU\n", ""),
            "MW208 'jax_kind' is missing.\n    A machine has at least platform, jax_kind, dims",
        ),
        (("platform: gpu", "platform: gpu\nplatform: gpu"), "box.yaml:2:1: MW010"),
    ],
)
def test_what_is_wrong_in_it_is_told_with_its_place(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    assert any(says in found for found in refused(tmp_path, BOX.replace(*change))), refused(
        tmp_path, BOX.replace(*change)
    )


@pytest.mark.parametrize(
    ("left_out", "says"),
    [
        ("switch:", "one of them says at what rate its devices reach each other"),
        ("uplink:", "where there are nodes, uplink says at what rate they reach each other"),
    ],
)
def test_a_machine_whose_collectives_would_be_free_is_none(tmp_path: Path, left_out: str, says: str) -> None:
    lines = [line for line in BOX.splitlines() if not line.startswith(left_out)]
    assert says in refused(tmp_path, "\n".join(lines))[0]
    tree = BOX.replace("name: ring", "name: tree")
    assert "one of the algorithms is a ring or plain" in refused(tmp_path, tree)[0]


@pytest.mark.parametrize("kind", [ALL_REDUCE, ALL_GATHER, ALL_TO_ALL])
def test_where_no_algorithm_is_said_a_ring_of_the_switchs_hops_runs_over_it(tmp_path: Path, kind: str) -> None:
    plain = BOX[: BOX.index("algorithms")]
    said = "algorithms: [{name: ring, protocol: Simple, base_us: 0, hop_us: 5, net_us: 20, bandwidth: 1}]\n"
    every, group = np.arange(8)[None, :], np.arange(8).reshape(2, 4)
    for groups in (every, group):
        times = [price(kind, 1e9, place(machine(tmp_path, text), groups)).total_s for text in (plain, plain + said)]
        assert times[0] == times[1] > 0


def test_several_slices_need_an_uplink(tmp_path: Path) -> None:
    torus = "platform: tpu\njax_kind: x\ndims: [x]\nici: {link_gb_per_s: 1, hop_us: 1}\n"
    (tmp_path / "box.yaml").write_text(torus)
    with pytest.raises(PlanError, match=r"MW205(.|\n)*uplink"):
        physical(named("2*box.yaml:4", Place(file=str(tmp_path / "plan.yaml"))))
    assert machine(tmp_path, torus, "4").num_devices == 4


@pytest.mark.parametrize("text", ["", "- 1", "word"])
def test_what_is_no_mapping_is_no_machine(tmp_path: Path, text: str) -> None:
    assert "MW208 The machine is no mapping" in refused(tmp_path, text)[0]


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    text = BOX.replace("platform: gpu", "platform: npu").replace("base_us: 8", "base_us: -8")
    assert [found.split(" ")[2] for found in refused(tmp_path, text)] == ["'platform'", "'algorithms.0.base_us'"]


def test_a_rate_is_of_a_dtype(tmp_path: Path) -> None:
    (found,) = refused(tmp_path, BOX.replace("{bfloat16: 71}", "{bf16: 71, float8_e4m3fn: 142}"))
    assert "'peak_tflops.bf16" in found
    assert "a dtype is bfloat16" in found


def test_two_rules_of_wrapping_exclude_each_other(tmp_path: Path) -> None:
    torus = "platform: tpu\njax_kind: x\ndims: [x]\nici: {link_gb_per_s: 1, hop_us: 1, wraps: {each: 4, at_least: 2}}\n"
    assert "exclude each other" in refused(tmp_path, torus)[0]


def test_the_catalogue_that_ships_has_the_same_shape() -> None:
    assert all(chip.sources for chip in catalogue().values())
