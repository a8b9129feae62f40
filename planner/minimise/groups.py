"""The values of a step that a plan may annotate, those that are alike together, the most valuable first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...dsl.tensors import Layout, Tensor

BACKWARD = ("grad", "remat")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Values that are alike and lie alike: the turns of one place of the model."""

    stem: str
    layout: Layout
    paths: tuple[str, ...]
    num_bytes: int

    @property
    def tagged(self) -> bool:
        """Whether the model itself names these values."""
        return not self.stem.startswith("ops/")

    @property
    def backward(self) -> bool:
        """Whether they are gradients, or computed again for them."""
        return any(segment in BACKWARD for segment in self.stem.split("/"))


def grouped(tensors: Sequence[Tensor], layouts: Mapping[str, Layout]) -> list[Group]:
    """The groups of these values. Tagged ones come first, then the larger, then the forward ones of equal bytes."""
    found: dict[tuple[str, Layout], list[Tensor]] = {}
    for tensor in tensors:
        found.setdefault((_stem(tensor), layouts[tensor.path]), []).append(tensor)
    groups = [
        Group(
            stem=stem,
            layout=layout,
            paths=tuple(dict.fromkeys(t.path for t in members)),
            num_bytes=sum(t.num_bytes for t in members),
        )
        for (stem, layout), members in found.items()
    ]
    return sorted(groups, key=lambda g: (not g.tagged, -g.num_bytes, g.backward))


def _stem(tensor: Tensor) -> str:
    head, _, turn = tensor.path.rpartition("/")
    return head if tensor.role == "op" and turn.isdigit() else tensor.path
