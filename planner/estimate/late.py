"""What an estimate shows only to who asks: worked out when it is first looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class Late(Sequence[T]):
    """The sequence that ``work_out`` gives, called once. Copied and pickled it is a tuple."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, work_out: Callable[[], Sequence[T]]) -> None:
        self._work_out: Callable[[], Sequence[T]] | None = work_out
        self._known: Sequence[T] = ()

    def _all(self) -> Sequence[T]:
        if self._work_out is not None:
            self._known, self._work_out = self._work_out(), None
        return self._known

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        return self._all()[at]

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[T]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)


class LateMapping(Mapping[K, V]):
    """The mapping that ``work_out`` gives, called once. Copied and pickled it is a dictionary."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, work_out: Callable[[], Mapping[K, V]]) -> None:
        self._work_out: Callable[[], Mapping[K, V]] | None = work_out
        self._known: Mapping[K, V] = {}

    def _all(self) -> Mapping[K, V]:
        if self._work_out is not None:
            self._known, self._work_out = self._work_out(), None
        return self._known

    def __getitem__(self, key: K) -> V:
        return self._all()[key]

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[K]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return dict(self) == dict(other) if isinstance(other, Mapping) else NotImplemented

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)
