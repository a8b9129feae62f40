"""Tensors as a plan sees them, and the layouts that its rules give them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from .plan import DeviceAssignment

Role = Literal["argument", "result", "tagged", "op"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A value that a plan can name.

    ``path`` begins with the argument's name, ``out``, ``acts`` or, of untagged values, ``ops``. ``dtype``
    is NumPy's name (``float32``). ``returns`` is, for a result, the path of the argument that it is the next state of.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    role: Role
    itemsize: int = 4
    returns: str | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape) * self.itemsize

    def __str__(self) -> str:
        return f"{self.path} {self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How one tensor lies over the mesh.

    ``axes[i]`` are the mesh axes that dim ``i`` is split over, major first; ``padded`` the dims whose size the plan
    allows to be padded up to a multiple. ``how`` is ``infer`` where propagation decides and ``auto`` for a hole; then
    ``axes`` is empty. ``device_assignment`` is GShard's explicit form, in place of ``axes``.
    """

    how: Literal["split", "infer", "auto", "assigned"] = "split"
    axes: tuple[tuple[str, ...], ...] = ()
    padded: frozenset[int] = field(default_factory=frozenset)
    device_assignment: DeviceAssignment | None = None

    @property
    def replicated(self) -> bool:
        """Whether every device holds the whole tensor."""
        return self.how == "split" and not any(self.axes)
