"""Searched plans run: on eight devices a step gives the loss and the weights that it gives on one."""

from __future__ import annotations

import os
from typing import Any

import jax
import meshwright as mw
from drawn_models import Model, models
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from in_process import search
from layouts import assert_close

MODELS = int(os.environ.get("MESHWRIGHT_DRAWN_MODELS", "3"))
"""How many models are drawn; fifty and more by hand."""

MESHES: list[dict[str, int] | None] = [{"a": 8}, {"a": 2, "b": 4}, {"a": 4, "b": 2}, {"a": 2, "b": 2, "c": 2}]
MESHES += [None] if MODELS >= 50 else []  # finding a mesh as well takes several times as long


@settings(
    max_examples=MODELS,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(models(), st.sampled_from(MESHES), st.booleans())
def test_a_searched_plan_computes_what_one_device_does(model: Model, mesh: Any, exact: bool) -> None:
    args, whole = model.init(0), jax.jit(model.step)
    expected = whole(*args)
    shapes = jax.eval_shape(lambda: args)
    found = search(model.step, shapes, topology="cpu:8", mesh=mesh, exact=exact, time_limit_s=20)
    assert found.plan is not None
    planned = mw.apply(found.plan, model.step, shapes)
    once = planned(*args)
    assert_close(once, expected)
    state = len(args) - 1
    twice = planned(*once[:state], args[-1])
    assert_close(twice, whole(*expected[:state], args[-1]), 1e-4)
