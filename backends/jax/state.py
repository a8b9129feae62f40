"""Finds the state that a step returns: results that are the next value of an argument keep its layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from ...dsl.tensors import Tensor
from .paths import leaf_paths, segments

TakesOver = Callable[[str, str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subtree:
    """A part of a pytree: its path, its key, its structure with shapes and dtypes."""

    path: str
    key: str
    form: tuple[Any, ...]
    tree: Any

    @property
    def is_array(self) -> bool:
        """Whether it is one array."""
        return bool(self.form) and jax.tree_util.treedef_is_leaf(self.form[0])


def returned_state(
    out_info: Any, names: Sequence[str], args: Sequence[Any], results: Sequence[Tensor], takes_over: TakesOver
) -> tuple[Tensor, ...]:
    """``results`` with ``returns`` filled in wherever a part of the result has an argument's structure and shapes.

    Largest parts first, each argument once, the one of the same name before the first in order. So
    ``step(params, mu, nu, batch) -> (params, mu, nu, loss)`` is matched position by position, and a dictionary by
    its keys. Of a single array of another name its shape says nothing: it has to be what became of the argument, which
    ``takes_over`` says of the paths of a result and an argument.
    """
    free = [part for name, arg in zip(names, args, strict=True) for part in _parts(name, name, arg)]
    pairs: dict[str, str] = {}
    _match(_subtree("out", "out", out_info), free, pairs, takes_over)
    return tuple(replace(tensor, returns=pairs.get(tensor.path)) for tensor in results)


def _match(part: _Subtree, free: list[_Subtree], pairs: dict[str, str], takes_over: TakesOver) -> None:
    candidates = [f for f in free if f.form == part.form] if len(part.form) > 1 else []
    named = [each for each in candidates if each.key == part.key]
    if part.is_array and not named:
        candidates = [each for each in candidates if takes_over(part.path, each.path)]
    if not candidates:
        for child in _children(part):
            _match(child, free, pairs, takes_over)
        return
    chosen = [*named, *candidates][0]
    free[:] = [f for f in free if not _overlaps(f.path, chosen.path)]
    for result, argument in zip(leaf_paths(part.path, part.tree), leaf_paths(chosen.path, chosen.tree), strict=True):
        pairs[result] = argument


def _parts(path: str, key: str, tree: Any) -> Iterator[_Subtree]:
    """The tree itself and everything below it, outermost first."""
    part = _subtree(path, key, tree)
    yield part
    for child in _children(part):
        yield from _parts(child.path, child.key, child.tree)


def _children(part: _Subtree) -> Iterator[_Subtree]:
    pairs, _ = jax.tree_util.tree_flatten_with_path(part.tree, is_leaf=lambda x: x is not part.tree)
    for path, child in pairs:
        if path:
            below = segments(path)
            yield _subtree("/".join([part.path, *below]), below[-1], child)


def _subtree(path: str, key: str, tree: Any) -> _Subtree:
    leaves, structure = jax.tree.flatten(tree)
    avals = [leaf if hasattr(leaf, "dtype") else jax.typeof(leaf) for leaf in leaves]
    form = (structure, *((tuple(aval.shape), str(aval.dtype)) for aval in avals)) if leaves else ()
    return _Subtree(path=path, key=key, form=form, tree=tree)


def _overlaps(a: str, b: str) -> bool:
    return a == b or a.startswith(f"{b}/") or b.startswith(f"{a}/")
