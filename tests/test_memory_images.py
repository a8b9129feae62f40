"""What images take that convolutions read."""

from __future__ import annotations

import pytest
from meshwright.planner.graph import Op, Value
from meshwright.planner.memory import memory
from programs import of_ops

BATCH, SIDE, PATCH, FEATURES = 16, 224, 16, 768
ROLES = {
    f"{side}_{role}_dimension": dim for side in ("input", "output") for role, dim in (("batch", 0), ("feature", 3))
} | {"kernel_output_feature_dimension": 3}


def patches(colours: int) -> int:
    """The temporary bytes of an image convolved patch by patch."""
    image = Value((BATCH, SIDE, SIDE, colours), "f32")
    weights = Value((PATCH, PATCH, colours, FEATURES), "bf16")
    result = Value((BATCH, SIDE // PATCH, SIDE // PATCH, FEATURES), "f32")
    ops = (Op(kind="convolution", operands=(0, 1), results=(2,), attributes=ROLES),)
    return memory(of_ops((image, weights, result), ops, (0, 1), (2,))).temp_bytes


def test_an_image_of_few_colours_is_copied_with_its_batch_on_the_lanes() -> None:
    assert patches(3) == pytest.approx(SIDE * SIDE * 4 * 128 * 2, rel=0.01)


def test_one_of_many_features_is_not() -> None:
    assert patches(64) < 2**20
