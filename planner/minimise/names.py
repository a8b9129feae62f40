"""Names of dims: one letter a logical dim, the same in every tensor that has it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import count
from string import ascii_uppercase

from ...dsl.notation import NAMELESS
from ...dsl.plan import Dim, Dims, Rule
from ...dsl.tensors import Tensor
from .dims import Classes

ROWS, LENGTH = "B", "T"


class Names:
    """Gives names to dims as they come. Dims of one class have one name; two dims of one tensor never share one."""

    def __init__(self, classes: Classes, tensors: Sequence[Tensor], axes: Sequence[str]):
        self.classes = classes
        self.known: dict[Hashable, list[str]] = {}
        self.sizes: dict[str, int] = {}
        self.hints = _hints(classes, tensors)
        self.taken = set(axes)
        self.split: list[Hashable] = []

    def learn(self, rule: Rule, tensor: Tensor) -> None:
        """Notes the names that a rule of the user's gives to the dims of a tensor."""
        written = positions(rule.assignment, len(tensor.shape)) if isinstance(rule.assignment, Dims) else {}
        for i, dim in written.items():
            if dim.name != NAMELESS:
                self._keep(self.classes.find((tensor.path, i)), dim.name, tensor.shape[i])

    def meet(self, tensors: Sequence[Tensor], dim: int) -> None:
        """Notes that a dim is to be split, at this position in all of ``tensors`` (negative from the end)."""
        if len({tensor.shape[dim] for tensor in tensors}) == 1:
            places = [(tensor.path, dim % len(tensor.shape)) for tensor in tensors]
            self._join(places)
            self.split.append(places[0])

    def of(self, tensors: Sequence[Tensor], dim: int, used: Sequence[str]) -> str:
        """The name of a dim of ``tensors``, at this position in all of them, not in ``used``.

        They are one logical dim from now on. There is no name for it where their sizes differ, nor where it is split
        nowhere and nobody has named it.
        """
        if len({tensor.shape[dim] for tensor in tensors}) > 1:
            return NAMELESS
        places = [(tensor.path, dim % len(tensor.shape)) for tensor in tensors]
        self._join(places)
        class_ = self.classes.find(places[0])
        worth_it = [*self.split, *self.hints]
        if class_ not in self.known and all(self.classes.find(place) != class_ for place in worth_it):
            return NAMELESS
        return self._name(class_, tensors[0].shape[dim], used)

    def _join(self, places: Sequence[Hashable]) -> None:
        named = [name for place in places for name in self.known.get(self.classes.find(place), ())]
        self.classes.join(places)
        if named:
            self.known[self.classes.find(places[0])] = list(dict.fromkeys(named))

    def _name(self, class_: Hashable, size: int, used: Sequence[str]) -> str:
        fitting = (n for n in self.known.get(class_, ()) if n not in used and self.sizes[n] == size)
        name = next(fitting, None) or next(n for n in self._new(class_) if n not in self.sizes and n not in self.taken)
        self._keep(class_, name, size)
        return name

    def _keep(self, class_: Hashable, name: str, size: int) -> None:
        self.sizes[name] = size
        known = self.known.setdefault(class_, [])
        known += [name] if name not in known else []

    def _new(self, class_: Hashable) -> Iterator[str]:
        """Names to choose from: what the dim is for where that is known, then letters."""
        hint = next((name for place, name in self.hints.items() if self.classes.find(place) == class_), None)
        yield from [hint] if hint else []
        letters = [letter for letter in ascii_uppercase if letter not in (ROWS, LENGTH)]
        yield from letters
        yield from (f"{letter}{number}" for number in count(2) for letter in letters)


def positions(dims: Dims, rank: int) -> Mapping[int, Dim]:
    """The named dims of a tensor of this rank, by position."""
    rest = next((i for i, dim in enumerate(dims.dims) if not isinstance(dim, Dim)), None)
    behind = 0 if rest is None else len(dims.dims) - rest - 1
    found = {}
    for i, dim in enumerate(dims.dims):
        if isinstance(dim, Dim):
            found[i if rest is None or i < rest else rank - behind + i - rest - 1] = dim
    return found


def _hints(classes: Classes, tensors: Sequence[Tensor]) -> dict[Hashable, str]:
    """The rows and the length of the largest argument that is no state."""
    state = {tensor.returns for tensor in tensors}
    data = [t for t in tensors if t.role == "argument" and t.path not in state and t.shape]
    if not data or not any(state - {None}):
        return {}
    largest = max(data, key=lambda tensor: tensor.num_bytes)
    hints: dict[Hashable, str] = {(largest.path, 0): ROWS}
    if len(largest.shape) == 2:
        hints[largest.path, 1] = LENGTH
    return hints
