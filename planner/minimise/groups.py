"""The values of a step that a plan may annotate, those that are alike together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...dsl.rule_matches import without_turn
from ...dsl.tensors import Layout, Tensor
from ..operands import OPERAND, maker_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Values that are alike and lie alike: the turns of one place of the model, or what it gives one tag.

    ``paths`` are what a plan calls them, ``makers`` the computed values that they are, or whose operands.
    """

    stem: str
    layout: Layout
    paths: tuple[str, ...]
    makers: tuple[str, ...] = field(repr=False)
    is_operand: bool = False
    is_tag: bool = False
    num_bytes: int = 0


def grouped(
    tensors: Sequence[Tensor],
    layouts: Mapping[str, Layout],
    tags: Mapping[str, Sequence[str]],
    same: Mapping[str, str],
) -> list[Group]:
    """The groups of these values, in their order. ``tags`` has the computed values that each tag names, ``same`` the
    value that one is computed once with: they are of one group.
    """
    found: dict[tuple[str, Layout], list[Tensor]] = {}
    for tensor in tensors:
        found.setdefault((_stem(tensor, same), layouts[tensor.path]), []).append(tensor)
    return [_group(stem, layout, members, tags) for (stem, layout), members in found.items()]


def _group(stem: str, layout: Layout, members: Sequence[Tensor], tags: Mapping[str, Sequence[str]]) -> Group:
    paths = tuple(dict.fromkeys(tensor.path for tensor in members))
    makers = [maker for path in paths for maker in (tags.get(path, ()) if members[0].role == "tagged" else (path,))]
    return Group(
        stem=stem,
        layout=layout,
        paths=paths,
        makers=tuple(maker_path(maker) for maker in makers),
        is_operand=members[0].role == "op" and maker_path(stem) != stem,
        is_tag=members[0].role == "tagged",
        num_bytes=sum(tensor.num_bytes for tensor in members),
    )


def _stem(tensor: Tensor, same: Mapping[str, str]) -> str:
    """The stem of what a value is computed once with, or of what that reads in its place."""
    maker = maker_path(tensor.path)
    if maker not in same:
        return stem_of(tensor)
    operand = OPERAND.search(tensor.path)
    return without_turn(same[maker]) + (operand[0] if operand is not None else "")


def stem_of(tensor: Tensor) -> str:
    """The path of a tensor less its turn."""
    return without_turn(tensor.path) if tensor.role == "op" else tensor.path
