"""Synthetic images with labels: one shape each, drawn at a random place, size and colour over noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
_Draw = Callable[[Array, Array, float], Array]


def shape_images(*, batch: int, height: int, width: int, seed: int, split: str) -> Iterator[dict[str, Array]]:
    """Batches without end: ``image`` float32 [batch, height, width, 3], ``label`` int32 [batch] (a place in SHAPES).

    The same seed gives the same batches; ``split`` "held-out" draws others than "train".
    """
    rng = np.random.default_rng([seed, split == "held-out"])
    while True:
        label = rng.integers(0, len(SHAPES), batch, dtype=np.int32)
        image = np.stack([_image(rng, int(k), height, width) for k in label])
        yield {"image": image, "label": label}


def _image(rng: np.random.Generator, label: int, height: int, width: int) -> Array:
    radius = rng.uniform(0.15, 0.35) * min(height, width)
    rows, columns = np.mgrid[:height, :width].astype(np.float32)
    across = columns - rng.uniform(radius, width - radius)
    down = rows - rng.uniform(radius, height - radius)
    inside = list(SHAPES.values())[label](across, down, radius)
    noise = rng.normal(0, 0.1, (height, width, 3))
    return (noise + inside[..., None] * rng.uniform(0.4, 1.0, 3)).astype(np.float32)


def _circle(across: Array, down: Array, radius: float) -> Array:
    return np.less(np.hypot(across, down), radius)


def _square(across: Array, down: Array, radius: float) -> Array:
    inside: Array = np.maximum(abs(across), abs(down)) < 0.9 * radius
    return inside


def _ring(across: Array, down: Array, radius: float) -> Array:
    return np.less(abs(np.hypot(across, down) - 0.75 * radius), 0.25 * radius)


def _cross(across: Array, down: Array, radius: float) -> Array:
    arms = np.minimum(abs(across), abs(down)) < 0.3 * radius
    inside: Array = arms & (np.maximum(abs(across), abs(down)) < radius)
    return inside


def _stripes(across: Array, down: Array, radius: float) -> Array:
    bands = np.floor(down / max(radius / 3, 1)) % 2 == 0
    inside: Array = _square(across, down, radius) & bands
    return inside


SHAPES: dict[str, _Draw] = {
    "circle": _circle,
    "square": _square,
    "ring": _ring,
    "cross": _cross,
    "stripes": _stripes,
}
"""How each shape is drawn: bool [height, width] from offsets to its middle and its radius, in pixels."""
