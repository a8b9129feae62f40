"""What one operation takes that is a kernel of its own, as copies around collectives and kernels are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ..graph import Graph, Op, Value
from ..images import Image
from ..kernels import Kernel, Program
from ..kinds import COPIED_IN_ORDER, ROWS, TURNED_COPY
from ..lookups import FILL
from .apart import Apart, Shape
from .compared import COMPARE
from .images.gathered_features import features_cycles
from .price import price_at
from .speed import Speed


def turn_seconds(value: Value, pieces: tuple[int, ...], speed: Speed) -> float:
    """Seconds of a copy of a value with its numbers in another order, in ``pieces`` of a dim if it says so many."""
    return _seconds_alone(TURNED_COPY, value, value, speed, {"pieces": pieces} if pieces else {})


def copy_seconds(value: Value, speed: Speed) -> float:
    """Seconds of a copy of a value with its numbers in their order, from memory and to it."""
    return _seconds_alone(TURNED_COPY, value, value, speed, COPIED_IN_ORDER)


def rows_seconds(value: Value, pieces: tuple[int, ...], speed: Speed) -> float:
    """Seconds of putting a value into tiles that arrived as rows of numbers, of pieces if they are to be in order."""
    return _seconds_alone(TURNED_COPY, value, value, speed, {ROWS: True, **({"pieces": pieces} if pieces else {})})


def gather_seconds(piece: Value, whole: Value, image: Image, speed: Speed) -> float:
    """Seconds of the copies around a gather of an image's features."""
    return features_cycles(piece, whole, image, speed.coefficients) / speed.clock_hz if speed.edge > 1 else 0.0


def convert_seconds(value: Value, dtype: str, speed: Speed) -> float:
    """Seconds of a copy of a value in another dtype."""
    return _seconds_alone("convert", value, replace(value, dtype=dtype), speed)


def fill_seconds(value: Value, speed: Speed) -> float:
    """Seconds of filling a table with one number, for rows to be added to it."""
    return _seconds_alone(FILL, Value((), value.dtype), value, speed, apart=Apart(tables=(1,)))


def packing_seconds(value: Value, images: Mapping[Shape, Image], speed: Speed) -> float:
    """Seconds of the kernels of their own that make bits of a value, and a mask of these again (``packed_apart``)."""
    apart = Apart(packed=(0,), images=images)
    return _seconds_alone(COMPARE, value, replace(value, dtype="pred"), speed, apart=apart)


def _seconds_alone(
    kind: str,
    value: Value,
    result: Value,
    speed: Speed,
    said: Mapping[str, Any] = MappingProxyType({}),
    apart: Apart | None = None,
) -> float:
    op = Op(kind=kind, operands=(0,), results=(1,), attributes=said)
    graph = Graph(values=(value, result), ops=(op,), arguments=(0,), results=())
    kernel = Kernel(ops=(0,), reads=(0,), writes=(1,))
    return sum(each.seconds for each in price_at(Program(graph=graph, kernels=(kernel,)), speed, apart=apart))
