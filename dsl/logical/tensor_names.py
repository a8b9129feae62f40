"""Whether a tensor can have the logical names that it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import Problem, listing, problem
from ..tensors import Tensor
from .rules import TensorNames


def name_problems(tensor: Tensor, named: TensorNames) -> Iterator[Problem]:
    """What keeps a tensor's names from meaning anything: too many, one twice, or strange metadata."""
    words = [name for name in named.names if isinstance(name, str)]
    twice = [name for i, name in enumerate(words) if name in words[:i]]
    if named.strange:
        yield problem("MW658", named.place, tensor=str(tensor), what=named.strange)
    elif len(named.names) > len(tensor.shape):
        shown = listing([str(name) for name in named.names])
        numbers: dict[str, Any] = {"dims": len(tensor.shape), "count": len(named.names), "names": shown}
        yield problem("MW654", named.place, tensor=str(tensor), **numbers)
    elif twice and not named.literal:
        yield problem("MW655", named.place, tensor=str(tensor), name=twice[0])
