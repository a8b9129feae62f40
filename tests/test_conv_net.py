"""The conv net learns its synthetic shapes, and says what it cannot be."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from meshwright.backends.jax.models import conv_net
from meshwright.dsl.errors import PlanError


def test_learns_its_shapes() -> None:
    workload = conv_net(batch=16, height=32, width=32)
    assert workload.init is not None
    assert workload.batches is not None
    state, batches, step = workload.init(0), workload.batches(0, "train"), jax.jit(workload.step)
    losses = []
    for _ in range(160):
        *state, metrics = step(*state, next(batches))
        losses.append(float(metrics["loss"]))
    assert np.mean(losses[-10:]) < 0.75 * np.mean(losses[:10])


def test_batches_are_as_announced_and_repeat_with_the_seed() -> None:
    workload = conv_net(batch=4, height=16, width=24)
    assert workload.batches is not None
    one, same, other = (next(workload.batches(3, split)) for split in ("train", "train", "held-out"))
    shapes = {name: (x.shape, x.dtype) for name, x in workload.args[2].items()}
    assert {name: (x.shape, x.dtype) for name, x in one.items()} == shapes
    np.testing.assert_array_equal(one["image"], same["image"])
    assert not np.array_equal(one["image"], other["image"])


@pytest.mark.parametrize(
    ("settings", "code"), [({"height": 30}, "MW608"), ({"wide": 8}, "MW601"), ({"features": "many"}, "MW602")]
)
def test_a_bad_setting_is_told(settings: dict[str, Any], code: str) -> None:
    with pytest.raises(PlanError) as caught:
        conv_net(**settings)
    assert [p.code for p in caught.value.problems] == [code]
