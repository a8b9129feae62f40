"""The machine that a topology names."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from meshwright.dsl.errors import PlanError
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.plan import Topology
from meshwright.planner.catalogue import canonical, catalogue
from meshwright.planner.topology import Machine, physical, problems


def machine(text: str) -> Machine:
    return physical(parse_topology(text))


@pytest.mark.parametrize(
    ("text", "devices", "dims"),
    [
        ("v2:16x16", 512, "x y core"),
        ("v3:32x32", 2048, "x y core"),
        ("v4:16x16x16", 8192, "x y z core"),
        ("v5e:16x16", 256, "x y"),
        ("v5p:16x20x28", 8960, "x y z"),
        ("v6e:16x16", 256, "x y"),
        ("tpu7x:4x4x4", 128, "x y z core"),
        ("v7x:4x4x4", 128, "x y z core"),
        ("4*v5e:16x16", 1024, "slice x y"),
        ("2*v3:4x4", 64, "slice x y core"),
        ("h100:8x2", 16, "node gpu"),
        ("a100:8", 8, "gpu"),
        ("cpu:8", 8, "x"),
        ("cpu:2x4", 8, "x y"),
    ],
)
def test_a_topology_has_these_devices_and_dims(text: str, devices: int, dims: str) -> None:
    m = machine(text)
    assert m.num_devices == devices == math.prod(m.sizes)
    assert " ".join(name for name, _ in m.dims) == dims


def test_device_numbers_follow_slice_x_y_core() -> None:
    m = machine("2*v3:4x2")
    assert m.coordinates(0) == {"slice": 0, "x": 0, "y": 0, "core": 0}
    assert m.coordinates(1) == {"slice": 0, "x": 0, "y": 0, "core": 1}
    assert m.coordinates(4) == {"slice": 0, "x": 1, "y": 0, "core": 0}
    assert m.coordinates(31) == {"slice": 1, "x": 3, "y": 1, "core": 1}
    with pytest.raises(ValueError, match="0 to 31"):
        m.coordinates(32)


def test_gpus_are_numbered_node_by_node() -> None:
    assert machine("h100:8x2").coordinates(9) == {"node": 1, "gpu": 1}


def test_a_v3_core_gives_what_the_compiler_gives() -> None:
    m = machine("v3:4x4")
    assert round(m.hbm_bytes / 2**30, 2) == 15.48
    assert m.hbm_physical_bytes == 16 * 2**30
    assert m.clock_hz == 0.94e9


@pytest.mark.parametrize("name", list(catalogue()))
def test_every_figure_of_the_catalogue_says_its_source(name: str) -> None:
    chip = catalogue()[name]
    said = chip.model_dump(exclude_defaults=True, exclude={"sources"})
    shape = {"aliases", "platform", "jax_kind", "dims", "order", "optional_dims", "cores", "host", "hbm_mib"}
    figures = set(said) - shape
    figures |= {f"hbm_mib.{f}" for f in ("physical", "usable") if chip.hbm_mib and getattr(chip.hbm_mib, f)}
    figures |= {"ici.wraps"} if chip.ici else set()
    assert figures <= set(chip.sources)


@pytest.mark.parametrize("name", [name for name, chip in catalogue().items() if chip.platform == "tpu"])
def test_peak_rates_are_a_devices(name: str) -> None:
    """Against the table that JAX ships, but for where the catalogue says that it parts from it."""
    from jax._src.pallas.mosaic import tpu_info

    version = tpu_info.ChipVersion({"tpu7x": "7x"}.get(name, name))
    chip = catalogue()[name]
    physical_cores = version.num_physical_tensor_cores_per_chip
    info = tpu_info._get_tpu_info_impl(version, physical_cores // chip.cores)
    of_device = physical_cores // chip.cores
    assert chip.peak_flops_per_s("bfloat16") == pytest.approx(info.bf16_ops_per_second * of_device, rel=0.13)
    assert chip.hbm_bytes_per_s == pytest.approx(info.mem_bw_bytes_per_second * of_device, rel=0.13)
    assert chip.vmem_bytes == info.vmem_capacity_bytes * of_device
    assert chip.matrix_unit.count == info.num_mxus * of_device
    assert chip.matrix_unit.edge == info.mxu_column_size
    assert chip.tile.sublanes == {
        bits: info.get_sublane_tiling(dtype)
        for bits, dtype in {32: "float32", 16: "bfloat16", 8: "int8", 4: "int4"}.items()
    }


def test_float32_products_take_passes_of_bfloat16() -> None:
    v3 = catalogue()["v3"]
    assert v3.peak_flops_per_s("float32") == v3.peak_flops_per_s("bfloat16") == 61.5e12
    assert v3.peak_flops_per_s("float32", "highest") == 61.5e12 / 6
    assert v3.peak_flops_per_s("int8") is None
    assert catalogue()["h100"].peak_flops_per_s("float8_e4m3fn") == 1979e12
    assert catalogue()["h100"].peak_flops_per_s("float32") == 495e12
    assert catalogue()["h100"].peak_flops_per_s("float32", "highest") == 67e12


def test_measured_shares_are_by_dtype_and_bfloat16s_of_what_was_not_measured() -> None:
    had = catalogue()["h200"].measured
    assert had is not None
    assert had.share("float16", is_turned=False) == had.share("float16", is_turned=True) == had.matrix["bfloat16"]
    assert had.share("tfloat32", is_turned=True) == had.turned["tfloat32"] < had.share("tfloat32", is_turned=False)
    assert {name for name, chip in catalogue().items() if chip.measured} == {"h200", "h100"}


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("v33:4x4", "MW202", "'v3'"),
        ("v3:4x4x1", "MW203", "v3:4x4"),
        ("v4:4x4", "MW203", "v4:"),
        ("v3:16", "MW203", "v3:4x4"),
        ("v3:3x5", "MW204", "v3:4x4"),
        ("v3:64x32", "MW204", "v3:32x32"),
        ("v5e:17x16", "MW204", "v5e:16x16"),
        ("v4:16x16x32", "MW204", "at most 4096 chips"),
        ("h100:16", "MW204", "h100:8"),
        ("2*cpu:8", "MW205", "cpu:8"),
        ("2000*v3:32x32", "MW206", "4096000 devices"),
        ("v3:999999x999999", "MW204", "v3:32x32"),
        ("v5p:999999x999999x999999", "MW204", "v5p:"),
    ],
)
def test_a_machine_that_there_is_not_is_refused_with_the_nearest(text: str, code: str, says: str) -> None:
    with pytest.raises(PlanError) as refused:
        machine(text)
    assert [p.code for p in refused.value.problems] == [code]
    assert says in str(refused.value)


@given(st.sampled_from(list(catalogue())), st.lists(st.integers(-2, 70), min_size=1, max_size=4), st.integers(0, 5))
def test_choices_offered_are_legal(kind: str, dims: list[int], slices: int) -> None:
    found = problems(Topology(kind=kind, dims=tuple(dims), num_slices=slices))
    for problem in found:
        offered = problem.numbers.get("choices")
        if offered is not None:
            assert offered
            assert not [p for text in offered.split(", ") for p in problems(parse_topology(text))]


def test_an_alias_is_its_chip() -> None:
    assert canonical("7x") == "tpu7x"
    assert canonical("nothing") == "nothing"


def test_where_there_are_too_few_chips_the_nearest_choice_has_all_of_them() -> None:
    (found,) = problems(parse_topology("cpu:999999"))
    assert "cpu:65536" in found.remedy
