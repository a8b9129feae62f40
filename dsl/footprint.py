"""Bytes of a device's memory that tensors take under their layouts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from .layout import partitions
from .long_forms import assignment_shape
from .plan import Mesh
from .resolve import Resolution
from .tensors import Layout, Tensor


def device_bytes(mesh: Mesh, tensor: Tensor, layout: Layout) -> int | None:
    """Bytes that one device holds of the tensor, padding included; None where planner or propagation decides."""
    parts = _parts(mesh, tensor, layout)
    if parts is None:
        return None
    return math.prod(-(-size // n) for size, n in zip(tensor.shape, parts, strict=True)) * tensor.itemsize


def argument_bytes(mesh: Mesh, tensors: Sequence[Tensor], resolution: Resolution) -> Mapping[str, int | None]:
    """Bytes that one device holds of each argument of the step; None where a part of it is not decided."""
    totals: dict[str, int | None] = {}
    for tensor in tensors:
        if tensor.role != "argument":
            continue
        layout = resolution.layout(tensor)
        held = device_bytes(mesh, tensor, layout) if layout else None
        name = tensor.path.split("/")[0]
        before = totals.get(name, 0)
        totals[name] = None if held is None or before is None else before + held
    return totals


def _parts(mesh: Mesh, tensor: Tensor, layout: Layout) -> list[int] | None:
    """Into how many parts each dim is split."""
    if layout.how == "assigned":
        return list(assignment_shape(layout.device_assignment or ()))
    if layout.how != "split":
        return None
    parts = [partitions(mesh, axes) for axes in layout.axes]
    known = [n for n in parts if n is not None]
    return known if len(known) == len(tensor.shape) else None
