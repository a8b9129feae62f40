"""What an estimate shows only to who asks: worked out when it is first looked at, from then on a value like others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MemberDescriptorType
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class _Late(Generic[T]):
    """What stands in a field's place until somebody looks at it."""

    work_out: Callable[[], T]


def late(work_out: Callable[[], T]) -> T:
    """The value that ``work_out`` gives, for a field that ``may_be_late``: nobody sees what stands for it till then."""
    return cast(T, _Late(work_out))


def may_be_late(*names: str) -> Callable[[type[C]], type[C]]:
    """Lets these fields of a dataclass with slots be given as ``late``; whoever reads them gets the value itself.

    So do ``asdict``, ``replace``, comparisons, copies and pickles, which read fields as anybody does.
    """

    def changed(cls: type[C]) -> type[C]:
        for name in names:
            setattr(cls, name, _LateField(cls.__dict__[name]))
        return cls

    return changed


class _LateField:
    """A slot that works out what is late when it is read, and keeps it."""

    def __init__(self, slot: MemberDescriptorType) -> None:
        self._slot = slot

    def __get__(self, holder: object, owner: type[Any] | None = None) -> Any:
        if holder is None:
            return self
        found = self._slot.__get__(holder, owner)
        if isinstance(found, _Late):
            found = found.work_out()
            self._slot.__set__(holder, found)
        return found

    def __set__(self, holder: object, value: object) -> None:
        self._slot.__set__(holder, value)
