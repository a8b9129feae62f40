"""How the dims of a plan are called: by their logical names, which the plan so keeps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..notation import NAMELESS, WORDS
from ..plan import Assignment, Dim, Dims, Replicate, Rest
from ..tensors import Tensor
from .rules import Name, TensorNames


@dataclass(frozen=True, slots=True, kw_only=True)
class DimNames:
    """The sizes that each logical name has in a workload: a plan's dims have one size a name."""

    sizes: Mapping[str, frozenset[int]]

    @classmethod
    def of(cls, tensors: Iterable[Tensor], names: Mapping[str, TensorNames]) -> DimNames:
        """The sizes of the names of these tensors."""
        found: dict[str, set[int]] = {}
        for tensor in tensors:
            named = names.get(tensor.path)
            for name, size in zip(named.names if named else (), tensor.shape, strict=False):
                if isinstance(name, str):
                    found.setdefault(_word(name), set()).add(size)
        return cls(sizes={name: frozenset(sizes) for name, sizes in found.items()})

    def assignment(self, tensor: Tensor, names: Sequence[Name], axes: Sequence[tuple[str, ...]]) -> Assignment:
        """The assignment that splits the tensor so, with its logical names for its dims.

        A name that has several sizes in the workload is written with its size: ``embed_512``.
        """
        if not any(axes):
            return Replicate()
        words = [self._dim(name, size) for name, size in zip(names, tensor.shape, strict=False)]
        words += [NAMELESS] * (len(tensor.shape) - len(words))
        dims: list[Dim | Rest] = []
        for i, (word, own) in enumerate(zip(words, axes, strict=True)):
            known = word if word not in words[:i] else NAMELESS
            dims.append(Dim(name=known, axes=own))
        while len(dims) > 1 and dims[-1] == Dim(name=NAMELESS):
            dims.pop()
        return Dims(dims=tuple(dims) if len(dims) == len(axes) else (*dims, Rest()))

    def _dim(self, name: Name, size: int) -> str:
        if not isinstance(name, str):
            return NAMELESS
        word = _word(name)
        return f"{word}_{size}" if len(self.sizes[word]) > 1 else word


def _word(name: str) -> str:
    """A logical name as the notation can write it."""
    word = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{word}" if not word or word[0].isdigit() or word in WORDS else word
