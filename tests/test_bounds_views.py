"""Bounds of steps that cut or pad what they view as one dim: no plan takes less, and the best is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import pytest
from in_process import search
from small_steps import shape
from test_bounds import I32, assert_lawful, every_plan


def put(x: jax.Array, place: jax.Array) -> jax.Array:
    """Rows that are viewed as one to be padded, among others."""
    rows = jnp.pad(x.reshape(-1)[2048:], (2048, 0)).reshape(8, 1024)
    return jax.lax.dynamic_update_slice(jnp.zeros((512, 1024), x.dtype), rows, (place, 0))


def shifted(x: jax.Array, y: jax.Array) -> jax.Array:
    """All elements of rows a few places on."""
    return jnp.tanh(jnp.pad(x.reshape(-1)[:-256], (256, 0)).reshape(x.shape)) * y


@pytest.mark.parametrize(
    ("topology", "mesh", "step_us"), [("v4:2x2x2", {"a": 4, "b": 4}, 2.36), ("cpu:8", {"a": 8}, 23.1)]
)
def test_what_nobody_can_split_before_a_view_is_split_behind_it(
    topology: str, mesh: dict[str, int], step_us: float
) -> None:
    """A device that has all of what it views goes on with its part: there was 7.84 us proven, and 141 on CPUs."""
    step: tuple[Callable[..., jax.Array], Sequence[jax.ShapeDtypeStruct]] = (put, [shape(8, 1024), shape(dtype=I32)])
    found = search(*step, topology=topology, mesh=mesh)
    assert_lawful(found, step, every_plan(step, topology, mesh))
    assert found.step_time_s == pytest.approx(step_us * 1e-6, rel=0.01)
    assert found.gap < 0.01


@pytest.mark.parametrize(("topology", "mesh", "step_us"), [("v4:2x2x2", {"a": 16}, 10.8), ("cpu:8", {"a": 8}, 82.9)])
def test_devices_send_each_other_the_ends_of_rows_that_are_viewed_as_one(
    topology: str, mesh: dict[str, int], step_us: float
) -> None:
    """As they are for any other dim that is cut: there was 15.26 us proven, and 330 on CPUs, where all had all."""
    step: tuple[Callable[..., jax.Array], Sequence[jax.ShapeDtypeStruct]] = (shifted, [shape(256, 1024)] * 2)
    found = search(*step, topology=topology, mesh=mesh)
    assert_lawful(found, step, every_plan(step, topology, mesh))
    assert found.step_time_s == pytest.approx(step_us * 1e-6, rel=0.01)
    assert found.gap < 0.01
