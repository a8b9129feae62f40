"""The devices of a topology."""

import importlib.util
import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import pytest
from meshwright.backends.jax import devices as module
from meshwright.backends.jax.devices import simulate_cpu, topology
from meshwright.dsl.errors import PlanError
from meshwright.dsl.machine import parse_topology

needs_libtpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")


def test_cpu_devices_are_jax_devices_by_number() -> None:
    assert [d.id for d in topology("cpu:2x4").devices()] == list(range(8))
    assert topology("cpu:4").devices() == jax.devices("cpu")[:4]


def test_too_few_cpu_devices_are_told_with_the_flag() -> None:
    with pytest.raises(PlanError, match="xla_force_host_platform_device_count=4096"):
        topology("cpu:4096").devices()


def test_gpus_that_are_not_here_are_told() -> None:
    with pytest.raises(PlanError, match="MW402"):
        topology("h100:8x8").devices()


@pytest.mark.tpu_compiler
@needs_libtpu
@pytest.mark.parametrize(
    ("name", "slices", "devices"),
    [
        ("v2:16x16", 1, 512),
        ("v3:32x32", 1, 2048),
        ("v4:16x16x16", 1, 8192),
        ("v5e:16x16", 1, 256),
        ("v5p:16x20x28", 1, 8960),
        ("v6e:16x16", 1, 256),
        ("tpu7x:4x4x4", 1, 128),
        ("v2:16x16", 4, 2048),
        ("v3:4x4", 4, 128),
        ("v4:4x4x4", 4, 512),
        ("v5e:16x16", 4, 1024),
        ("v5p:4x4x4", 4, 256),
        ("v6e:16x16", 4, 1024),
        ("tpu7x:4x4x4", 4, 512),
        ("v3:1x1", 1, 2),
        ("v5e:1x1", 1, 1),
    ],
)
def test_the_compiler_answers_with_devices_in_our_order(name: str, slices: int, devices: int) -> None:
    machine = topology(name, num_slices=slices)
    listed = machine.devices()
    assert len(listed) == machine.machine.num_devices == devices
    for number in range(0, devices, 7):
        at, device = machine.machine.coordinates(number), listed[number]
        assert [at.get(dim, 0) for dim in "xyz"] == list(device.coords)
        assert at.get("core", 0) == device.core_on_chip
        assert at.get("slice", 0) == getattr(device, "slice_index", 0)


def test_slices_may_stand_in_the_name() -> None:
    assert str(topology("4*v5e:16x16")) == "4*v5e:16x16" == str(topology("v5e:16x16", num_slices=4))
    assert topology(parse_topology("4*v5e:16x16")) == topology("4*v5e:16x16")


@pytest.mark.parametrize("slices", [0, -2, 1.5, "4"])
def test_numbers_of_slices_that_no_machine_has_are_refused(slices):
    with pytest.raises(PlanError, match="MW553 num_slices"):
        topology("v5e:16x16", num_slices=slices)


@pytest.mark.tpu_compiler
@needs_libtpu
def test_loading_the_compiler_prints_nothing() -> None:
    code = "from meshwright.backends.jax.devices import topology; print(len(topology('v3:2x2').devices()))"
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TPU_", "ALLOW_MULTIPLE"))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean, check=True)
    assert (done.stdout, done.stderr) == ("8\n", "")


def test_a_missing_compiler_is_told_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PlanError, match=r'pip install "meshwright\[tpu\]"') as refused:
        topology("v3:2x2").devices()
    assert refused.value.problems[0].code == "MW403"


@pytest.mark.tpu_compiler
@needs_libtpu
def test_a_topology_that_the_compiler_refuses_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "canonical", lambda kind: "v33")
    with pytest.raises(PlanError, match="Invalid TPU external name") as refused:
        topology("v3:2x2").devices()
    assert refused.value.problems[0].code == "MW404"
    assert "\n" not in refused.value.problems[0].message


def test_a_tpu_that_is_here_is_used_in_our_order(monkeypatch: pytest.MonkeyPatch) -> None:
    here = [
        SimpleNamespace(device_kind="TPU v3", coords=(x, y, 0), core_on_chip=core)
        for core in range(2)
        for y in range(2)
        for x in range(2)
    ]
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    monkeypatch.setattr(jax, "devices", lambda *_: here)
    assert [(*d.coords, d.core_on_chip) for d in topology("v3:2x2").devices()] == [
        (x, y, 0, core) for x in range(2) for y in range(2) for core in range(2)
    ]


def test_simulating_keeps_the_other_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1 --xla_force_host_platform_device_count=2 --xla_b=2")
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    simulate_cpu(16)
    assert os.environ["XLA_FLAGS"] == "--xla_a=1 --xla_b=2 --xla_force_host_platform_device_count=16"
    assert os.environ["JAX_PLATFORMS"] == "cpu"
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    simulate_cpu(16)
    assert os.environ["JAX_PLATFORMS"] == "tpu"


def test_devices_can_be_simulated_before_jax_is_imported() -> None:
    code = "import sys; from meshwright.backends.jax.devices import simulate_cpu; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
