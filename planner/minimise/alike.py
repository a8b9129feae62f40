"""Layouts made alike where tensors are: of layouts that cost the same, a program's choice is by chance."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence

from ...dsl.tensors import Tensor
from ..graph import Axes, Sharding
from .dims import Classes
from .groups import stem_of

SMALL = 3e-3

Key = Callable[[Tensor, Collection[str]], Hashable]


def alike(
    layouts: Mapping[str, Sharding],
    tensors: Sequence[Tensor],
    sizes: Mapping[str, int],
    dims: Classes,
    pinned: Collection[str] = (),
) -> Iterator[dict[str, Sharding]]:
    """The layouts with those of like tensors made the same, in fewer kinds first: each has what most bytes have.

    Like are the turns of one place of the model, and, first, an argument's tensors of one shape; then only those whose
    paths differ in numbers; at last none. Results that are an argument's next value lie as that does. Of small
    arguments the state is whole and the data lie as what is computed along their ``dims``, and small values have no
    layout: they lie as propagation has it. What is ``pinned`` stays as it is.
    """
    small = _small(layouts, tensors, sizes)
    seen = [dict(layouts)]
    data = _small_data(layouts, tensors, sizes, dims, small)
    for key in (_by_shape, _by_name, None):
        found = dict(layouts)
        if key is not None:
            found = _made_alike(_without_small(layouts, tensors, small), tensors, key)
        found |= data
        found |= {path: layouts[path] for path in pinned if path in layouts}
        returned = {t.path: t.returns for t in tensors if t.path in found and t.path not in pinned}
        found |= {path: found[source] for path, source in returned.items() if source is not None and source in found}
        if found not in seen:
            seen.append(found)
            yield found


def _small(layouts: Mapping[str, Sharding], tensors: Sequence[Tensor], sizes: Mapping[str, int]) -> float:
    """The bytes up to which a tensor is small: next to nothing of what a device holds of all arguments."""
    held = [(t, layouts[t.path]) for t in tensors if t.role == "argument" and t.path in layouts]
    return SMALL * sum(t.num_bytes / math.prod(sizes[a] for axes in lies for a in axes) for t, lies in held)


def _without_small(layouts: Mapping[str, Sharding], tensors: Sequence[Tensor], small: float) -> dict[str, Sharding]:
    found = dict(layouts)
    for tensor in tensors:
        if tensor.num_bytes <= small and tensor.path in found:
            if tensor.role in ("argument", "result"):
                found[tensor.path] = ((),) * len(tensor.shape)
            else:
                del found[tensor.path]
    return found


def _small_data(
    layouts: Mapping[str, Sharding],
    tensors: Sequence[Tensor],
    sizes: Mapping[str, int],
    dims: Classes,
    small: float,
) -> dict[str, Sharding]:
    """The layouts of small arguments that are no state: each dim lies as most bytes of the values that have it do."""
    state = {t.returns.split("/")[0] for t in tensors if t.returns}
    shares: dict[Hashable, dict[Axes, int]] = defaultdict(lambda: defaultdict(int))
    for tensor in tensors:
        for i, axes in enumerate(layouts.get(tensor.path, ()) if tensor.role == "op" else ()):
            shares[dims.find((tensor.path, i))][axes] += tensor.num_bytes
    found: dict[str, Sharding] = {}
    for tensor in tensors:
        is_data = tensor.role == "argument" and tensor.path.split("/")[0] not in state
        if is_data and tensor.num_bytes <= small and tensor.path in layouts:
            found[tensor.path] = _split(
                tensor, [shares[dims.find((tensor.path, i))] for i in range(len(tensor.shape))], sizes
            )
    return found


def _split(tensor: Tensor, shares: Sequence[Mapping[Axes, int]], sizes: Mapping[str, int]) -> Sharding:
    """Each dim along the axes that have most of its share; whole where these do not divide it or are in use."""
    found: list[Axes] = []
    for size, share in zip(tensor.shape, shares, strict=True):
        axes = max(share, key=lambda each: share[each], default=())
        is_free = all(axis not in taken for axis in axes for taken in found)
        found.append(axes if is_free and size % math.prod(sizes[axis] for axis in axes) == 0 else ())
    return tuple(found)


def _made_alike(layouts: Mapping[str, Sharding], tensors: Sequence[Tensor], key: Key) -> dict[str, Sharding]:
    state = {t.returns.split("/")[0] for t in tensors if t.returns}
    known = [t for t in tensors if t.path in layouts and (t.role != "result" or t.returns is None)]
    weights: dict[Hashable, dict[Sharding, int]] = defaultdict(lambda: defaultdict(int))
    for tensor in known:
        weights[key(tensor, state)][layouts[tensor.path]] += tensor.num_bytes
    most = {kind: max(shares, key=lambda sharding: shares[sharding]) for kind, shares in weights.items()}
    return dict(layouts) | {tensor.path: most[key(tensor, state)] for tensor in known}


def _by_shape(tensor: Tensor, state: Collection[str]) -> Hashable:
    head = tensor.path.split("/")[0]
    if tensor.role != "argument":
        return stem_of(tensor), tensor.shape
    return "" if head in state else head, tensor.shape


def _by_name(tensor: Tensor, state: Collection[str]) -> Hashable:
    if tensor.role != "argument":
        return stem_of(tensor), tensor.shape
    head, *words = tensor.path.split("/")
    return "" if head in state else head, *("" if word.isdigit() else word for word in words), tensor.shape
