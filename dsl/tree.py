"""A YAML document as values with their places: what the strict reader makes of a text, before it is a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .plan import Place
from .scalars import Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A scalar. ``quote`` is how many characters of quoting stand before its text; ``flawed`` says it was refused.

    ``verbatim`` says that the text stands in the file character by character: on one line, without escapes.
    """

    value: Scalar
    place: Place
    quote: int = 0
    flawed: bool = False
    verbatim: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A key of a mapping and its value. ``quote`` is how many characters of quoting stand before the key's text."""

    key: str
    place: Place
    value: Node
    quote: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A mapping. ``flow`` says that it was written with braces."""

    entries: Mapping[str, Entry]
    place: Place
    flow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A sequence."""

    items: tuple[Node, ...]
    place: Place


Node = Leaf | Branch | Items


def data(node: Node) -> Any:
    """The node as plain dicts, lists and scalars."""
    if isinstance(node, Branch):
        return {entry.key: data(entry.value) for entry in node.entries.values()}
    if isinstance(node, Items):
        return [data(item) for item in node.items]
    return node.value
