"""Rules as Python writes them, ``(('batch', 'data'), ('embed', None))``, as a tree with places."""

from __future__ import annotations

import ast

from ..plan import Place
from ..tree import Items, Leaf, Node


def tree_of(text: str, file: str | None) -> Node | None:
    """The tree of a Python list or tuple of literals; None where the text is anything else (YAML, JSON)."""
    try:
        root = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    before = text[: len(text) - len(text.lstrip())].count("\n")
    return _node(root, file, before) if isinstance(root, (ast.List, ast.Tuple)) else None


def _node(node: ast.expr, file: str | None, before: int) -> Node | None:
    place = Place(file=file, line=node.lineno + before, column=node.col_offset + 1)
    if isinstance(node, (ast.List, ast.Tuple)):
        items = [_node(item, file, before) for item in node.elts]
        found = tuple(item for item in items if item is not None)
        return Items(items=found, place=place) if len(found) == len(items) else None
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, (str, int, float))):
        return Leaf(value=node.value, place=place)
    return None
