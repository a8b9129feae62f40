"""Layouts that need no solving: the ones that teams write by hand, for where the time does not reach for more."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ...dsl.tensors import Tensor
from ..graph import Axes, Sharding


def simple_layouts(
    tensors: Sequence[Tensor], pins: Mapping[str, Sharding], sizes: Mapping[str, int]
) -> Iterator[tuple[str, dict[str, Sharding]]]:
    """Layouts of a step's arguments and results, by what teams call them: data parallel, with the state split as well
    (FSDP), the state over one axis and the batch over the others (tensor parallel), all replicated.

    The last argument, the batch, is split along its first dim that the axes divide, the state along its largest. A pin
    stays; a result that is an argument's next value lies as that does.
    """
    axes: Axes = tuple(name for name, size in sizes.items() if size > 1)
    ways = {"data parallelism by hand": (axes, ()), "FSDP by hand": (axes, axes)}
    ways |= {"data and tensor parallelism by hand": (axes[:-1], axes[-1:])} if len(axes) > 1 else {}
    ways |= {"all replicated": ((), ())}
    last = next((t.path.split("/")[0] for t in reversed(tensors) if t.role == "argument"), "")
    for name, (of_batch, of_state) in ways.items():
        found: dict[str, Sharding] = {}
        for tensor in tensors:
            if tensor.role not in ("argument", "result"):
                continue
            is_batch = tensor.role == "argument" and tensor.path.split("/")[0] == last
            dims = range(len(tensor.shape)) if is_batch else _largest_first(tensor)
            split = of_batch if is_batch else of_state if tensor.role == "argument" else ()
            own = _over(split, tensor, dims, sizes)
            found[tensor.path] = pins.get(tensor.path) or found.get(tensor.returns or "") or own
        yield name, found


def argument_bytes(tensors: Sequence[Tensor], layouts: Mapping[str, Sharding], sizes: Mapping[str, int]) -> int:
    """Bytes of one device that a step's arguments take in these layouts."""
    arguments = (tensor for tensor in tensors if tensor.role == "argument")
    return sum(-(-t.num_bytes // math.prod(sizes[a] for dim in layouts[t.path] for a in dim)) for t in arguments)


def _largest_first(tensor: Tensor) -> list[int]:
    return sorted(range(len(tensor.shape)), key=lambda dim: -tensor.shape[dim])


def _over(axes: Axes, tensor: Tensor, dims: Sequence[int], sizes: Mapping[str, int]) -> Sharding:
    """The first of ``dims`` that these axes together divide split over them; else over as many of them as divide it."""
    for count in range(len(axes), 0, -1):
        ways = math.prod(sizes[name] for name in axes[:count])
        for dim in dims:
            if tensor.shape[dim] % ways == 0:
                return tuple(axes[:count] if i == dim else () for i in range(len(tensor.shape)))
    return ((),) * len(tensor.shape)
