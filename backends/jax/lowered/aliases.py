"""Which results are written in the place of which donated arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ....planner.graph import Value
from ....planner.memory.tensors.tiles import padded_bytes


def aliases(
    said: Sequence[Mapping[str, Any]], arguments: Sequence[Value], results: Sequence[Value], mesh: Mapping[str, int]
) -> dict[int, int]:
    """The position of a result and that of the argument in whose place it is written.

    ``said`` are the arguments' attributes: JAX pairs those laid out alike, and leaves the rest to the compiler, which
    gives each donated argument in turn to the first result whose part on a device takes as many bytes, be it of another
    shape or dtype.
    """
    found = {int(each["tf.aliasing_output"].value): i for i, each in enumerate(said) if "tf.aliasing_output" in each}
    donors = [i for i, each in enumerate(said) if "jax.buffer_donor" in each]
    free: dict[int, list[int]] = {}
    for position, value in enumerate(results if donors else ()):
        if position not in found:
            free.setdefault(_local_bytes(value, mesh), []).append(position)
    for i in donors:
        same = free.get(_local_bytes(arguments[i], mesh))
        if same:
            found[same.pop(0)] = i
    return found


def _local_bytes(value: Value, mesh: Mapping[str, int]) -> int:
    """What a value's part takes on a device: its tiles."""
    counts = (math.prod(mesh.get(axis, 1) for axis in axes) for axes in value.sharding or ())
    shape = tuple(-(-size // count) for size, count in zip(value.shape, counts, strict=False))
    return padded_bytes(Value(shape, value.dtype))
