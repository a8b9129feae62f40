"""Calibration against the TPU compiler: programs measured, graphs read, tables that predict what no fit has seen."""

from __future__ import annotations

import importlib.util
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from meshwright.backends.jax.calibration import calibrate as package
from meshwright.backends.jax.calibration.calibrate import graph_of_one, measure
from meshwright.backends.jax.calibration.samples import Sample, samples
from meshwright.backends.jax.devices import topology
from meshwright.dsl.errors import PlanError
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute import shipped, speed_of
from meshwright.planner.compute.fit import errors

needs_compiler = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")


def of(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def layer(w: Any, x: Any) -> Any:
    hidden = jax.nn.relu(x @ w["up"])
    return x + hidden @ w["down"]


def test_samples_are_many_and_each_is_there_once() -> None:
    names = [sample.name for sample in samples()]
    assert len(names) == len(set(names)) > 100


def test_every_sample_can_be_traced() -> None:
    for sample in samples():
        jax.eval_shape(sample.function, *sample.arguments)


def test_the_graph_of_a_program_for_one_device_is_what_it_computes() -> None:
    lowered = jax.jit(lambda a, b: jnp.tanh(a @ b)).lower(of(64, 256), of(256, 128))
    graph = graph_of_one(lowered)
    assert [op.kind for op in graph.ops] == ["dot_general", "tanh"]
    assert [graph.shape(value) for value in graph.arguments] == [(64, 256), (256, 128)]


@needs_compiler
@pytest.mark.parametrize("name", ["v3:2x2", "v5e:2x2"])
def test_a_table_predicts_cycles_of_programs_that_no_fit_has_seen(name: str) -> None:
    described = topology(name)
    device = described.devices()[0]
    weights = {"up": of(768, 2304), "down": of(2304, 768)}
    unseen = (
        Sample("layer", layer, (weights, of(1536, 768))),
        Sample("sum", lambda a, b: ((a - b) ** 2).sum(-1), (of(5000, 1280), of(5000, 1280))),
        Sample("product", lambda a, b: jax.nn.silu(a @ b), (of(3072, 1536), of(1536, 2560))),
        Sample("update", lambda w, g: w - 0.1 * g / (1 + jnp.abs(g)), (of(3000, 2048), of(3000, 2048))),
    )
    found = [measure(sample, device) for sample in unseen]
    measured = [each for each in found if each is not None]
    assert len(measured) == len(unseen)
    speed = speed_of(described.machine.chip)
    median, worst = errors(measured, speed.coefficients, speed.edge)
    assert median < 0.15
    assert worst < 0.4


@needs_compiler
def test_what_the_compiler_counts_nothing_for_is_left_out() -> None:
    device = topology("v3:2x2").devices()[0]
    assert measure(Sample("one", lambda a: a + 1, (of(),)), device) is None


def test_where_there_is_no_compiler_calibration_says_so() -> None:
    with pytest.raises(PlanError):
        package("h100:8")


def test_shipped_tables_name_chips_of_the_catalogue() -> None:
    kinds = {chip.jax_kind for chip in catalogue().values()}
    tables = [table for kind in kinds if (table := shipped(kind)) is not None]
    assert len(tables) >= 6
    assert all(table.jax_kind in kinds for table in tables)
