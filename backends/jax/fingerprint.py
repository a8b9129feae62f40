"""What a plan remembers of the workload that it was made for, and what has changed since."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

from ...dsl.plan import ArgumentPrint, Fingerprint
from ...dsl.tensors import Tensor
from .trace import Traced


def fingerprint(traced: Traced, dims: Mapping[str, int]) -> Fingerprint:
    """The print of each argument of a step; ``dims`` are the sizes of the dims that the plan names."""
    return Fingerprint(
        arguments={name: _print([t for t in traced.arguments if _belongs(t, name)]) for name in traced.names},
        dims=dict(dims),
    )


def changes(planned: Fingerprint, traced: Traced, dims: Mapping[str, int]) -> list[str]:
    """How a step differs from the one planned for, one phrase each; empty where it does not.

    ``dims`` are the sizes that the plan's named dims have on this step.
    """
    now = fingerprint(traced, {}).arguments
    sizes = [f"dim {d} was {n}, is {dims[d]}" for d, n in planned.dims.items() if d in dims and dims[d] != n]
    gone = [f"argument '{name}' is gone" for name in planned.arguments if name not in now]
    new = [f"argument '{name}' is new" for name in now if name not in planned.arguments]
    both = [(name, planned.arguments[name], now[name]) for name in planned.arguments if name in now]
    return [*sizes, *gone, *new, *(f"'{name}' {_difference(a, b)}" for name, a, b in both if a != b)]


def _difference(planned: ArgumentPrint, now: ArgumentPrint) -> str:
    if (planned.tensors, planned.elements) == (now.tensors, now.elements):
        return f"has the same {now.tensors} tensors and {now.elements} elements in other shapes, names or dtypes"
    return f"had {planned.tensors} tensors with {planned.elements} elements, has {now.tensors} with {now.elements}"


def _print(tensors: list[Tensor]) -> ArgumentPrint:
    text = "\n".join(map(str, tensors))
    return ArgumentPrint(
        tensors=len(tensors),
        elements=sum(math.prod(t.shape) for t in tensors),
        digest=hashlib.sha256(text.encode()).hexdigest()[:16],
    )


def _belongs(tensor: Tensor, name: str) -> bool:
    return tensor.path == name or tensor.path.startswith(f"{name}/")
