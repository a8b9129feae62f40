"""Puts what a workload gives, the state it begins with and its batches, onto the devices as a plan lays it out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from ....dsl.errors import PlanError, listing, problem
from ..paths import leaf_paths
from ..workload import PyTree


def placed_state(init: Callable[[int], tuple[PyTree, ...]], seed: int, expected: PyTree, shardings: PyTree) -> Any:
    """``init(seed)``, made where it is to lie: no device ever holds more than its part.

    An ``init`` that JAX cannot trace (it reads a file, say) is called as it is and its result sent to the devices.
    Raises ``PlanError`` (MW510) where the result is not what ``expected``, the abstract state, says.
    """
    try:
        require_same("init", expected, jax.eval_shape(lambda: tuple(init(seed))))
        return jax.jit(lambda: tuple(init(seed)), out_shardings=tuple(shardings))()
    except jax.errors.JAXTypeError:
        state = tuple(init(seed))
        require_same("init", expected, state)
        return jax.device_put(state, tuple(shardings))


def placed_batch(batch: PyTree, expected: PyTree, shardings: PyTree) -> Any:
    """A host batch as arrays laid out by ``shardings``; each process sends only the parts of its own devices.

    Raises ``PlanError`` (MW510) where the batch is not what ``expected``, the abstract batch, says.
    """
    require_same("batches", expected, batch)
    return jax.tree.map(_spread, batch, shardings)


def require_same(part: str, expected: PyTree, given: PyTree) -> None:
    """Raises ``PlanError`` (MW510) with what differs in path, shape or type."""
    found = differences(expected, given)
    if found:
        raise PlanError([problem("MW510", part=part, differences=listing(found))])


def differences(expected: PyTree, given: PyTree) -> list[str]:
    """What differs in path, shape or type, a phrase each; empty where nothing does."""
    told = differing(dict(forms(expected)), dict(forms(given)))
    structures: list[Any] = [jax.tree.structure(tree) for tree in (expected, given)]
    return told if told or structures[0] == structures[1] else ["its containers are of other types"]


def differing(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """What differs between two tables of forms by path, a phrase each."""
    both = [path for path in wanted if path in found]
    told = [f"{path} is {found[path]} instead of {wanted[path]}" for path in both if found[path] != wanted[path]]
    told += [f"{path} is missing" for path in wanted if path not in found]
    return [*told, *(f"{path} is not expected" for path in found if path not in wanted)]


def forms(tree: PyTree) -> Iterator[tuple[str, str]]:
    """Path and form (``float32[8,16]``) of each array."""
    for path, leaf in zip(leaf_paths("", tree), jax.tree.leaves(tree), strict=True):
        array = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
        yield path.strip("/"), f"{array.dtype}[{','.join(map(str, array.shape))}]"


def _spread(leaf: Any, sharding: Any) -> Any:
    array = np.asarray(leaf)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])
