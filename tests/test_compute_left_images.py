"""Images that a step leaves: microseconds as the TPU compiler counts them."""

from __future__ import annotations

import jax
import meshwright as mw
import pytest
from small_steps import shape


@pytest.mark.parametrize(
    ("topology", "devices", "sizes", "compiled"),
    [
        ("v3:2x2", 8, (16, 32, 64, 128), 103.6),
        ("v5e:2x2", 4, (16, 32, 64, 128), 39.7),
        ("v6e:2x2", 4, (16, 32, 64, 128), 17.8),
        ("v3:2x2", 8, (16, 14, 64, 128), 14.5),
        ("v5p:2x2x1", 4, (16, 14, 64, 128), 4.8),
    ],
)
def test_images_that_a_step_leaves_are_copied_where_their_places_fill_rows(
    topology: str, devices: int, sizes: tuple[int, ...], compiled: float
) -> None:
    """Those of 32 places a row lie as they come, of 14 as they are convolved: microseconds compiled."""
    batch, size, entering, leaving = sizes

    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        names = ("NHWC", "HWIO", "NHWC")
        return jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=names))

    text = f"meshwright: 1\ntopology: {topology}\nmesh: {{x: {devices}}}\ntensors:\n  '**': replicate\n"
    args = (shape(batch, size, size, entering), shape(3, 3, entering, leaving))
    assert mw.estimate(mw.loads(text), step, args).compute_s * 1e6 == pytest.approx(compiled, rel=0.2)
