"""Checks of the long forms: each takes what a file holds, gives what a plan holds, or raises ``FlawError``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from .errors import flaw, listing, shorten
from .notation import check_name, repeats
from .plan import DeviceAssignment, OverDim

MAX_DEVICE = 2**20


def axes(names: Sequence[str]) -> tuple[str, ...]:
    """The axes of one dim: names, none of them twice."""
    for name in names:
        check_name(name)
    for _, name in repeats(names):
        raise flaw("MW046", name=shorten(name))
    return tuple(names)


def splits(forms: list[Any]) -> list[Any]:
    """The dims of a split: no position and no axis twice."""
    for _, dim in repeats([form.dim for form in forms]):
        raise flaw("MW031", dim=dim)
    for _, name in repeats([axis for form in forms for axis in form.axis]):
        raise flaw("MW046", name=shorten(name))
    return forms


def over(dims: list[OverDim]) -> list[OverDim]:
    """The physical dims that an axis lies on, none of them twice."""
    for _, name in repeats([dim.name for dim in dims]):
        raise flaw("MW032", name=shorten(name))
    return dims


def distinct(names: list[str]) -> list[str]:
    """Names, none of them twice."""
    for _, name in repeats(names):
        raise flaw("MW033", name=shorten(name))
    return names


def model(text: str, pattern: str) -> str:
    """A model's name: ``package.module:callable``."""
    if not re.fullmatch(pattern.strip("^$"), text):
        raise flaw("MW023", text=shorten(text))
    return text


def device_assignment(nested: list[Any]) -> DeviceAssignment:
    """An array of device numbers: rectangular, not empty, none negative, none twice."""
    shape = assignment_shape(nested)
    numbers: list[int] = []
    frozen = _frozen(nested, shape, numbers)
    twice = sorted({number for _, number in repeats(numbers)})
    if twice:
        raise flaw("MW035", devices=listing(twice))
    return frozen


def assignment_shape(nested: Sequence[Any]) -> tuple[int, ...]:
    """The shape of a device assignment, taken along its first entries."""
    shape = []
    level: Any = nested
    while isinstance(level, (list, tuple)):
        shape.append(len(level))
        level = level[0] if level else None
    return tuple(shape)


def device_numbers(nested: Iterable[Any]) -> list[int]:
    """The numbers of a device assignment, row by row."""
    numbers: list[int] = []
    for entry in nested:
        numbers += device_numbers(entry) if isinstance(entry, (list, tuple)) else [entry]
    return numbers


def _frozen(nested: Any, shape: tuple[int, ...], numbers: list[int]) -> DeviceAssignment:
    """The array as tuples; its numbers are added to ``numbers``."""
    if not isinstance(nested, list) or len(nested) != shape[0] or not nested:
        raise flaw("MW034", shape="x".join(map(str, shape)))
    if len(shape) > 1:
        return tuple(_frozen(row, shape[1:], numbers) for row in nested)
    for number in nested:
        if isinstance(number, list):
            raise flaw("MW034", shape="x".join(map(str, shape)))
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < MAX_DEVICE:
            raise flaw("MW036", number=shorten(str(number)))
    numbers += nested
    return tuple(nested)
