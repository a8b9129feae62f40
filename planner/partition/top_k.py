"""The largest of a split dim: each device's own, gathered, and of these the largest; of many in order as for TPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..graph import Op, Sharding, Value
from ..kinds import ALL_GATHER
from ..ranked import TOP_K, is_ranked
from .builder import Builder
from .layout import Mesh, used, ways

PACKED = "s32"
"""As what numbers of bfloat16 are ranked: each beside its place, in one whole number (seen on v5e and v6e)."""


def is_packed(value: Value) -> bool:
    """Whether numbers are ranked in one with their places."""
    return value.dtype == "bf16"


def is_ranked_whole(op: Op, layout: Sharding, value: Value, mesh: Mesh) -> bool:
    """Whether every device ranks all of an operand: XLA splits the operation that ranks matrices over all devices or
    over none (``HandleCustomCallTopK``), that which ranks packed ones not at all, and what is sorted in its place as it
    lies. A row by itself is gathered and sorted (seen of 65536 numbers over all of eight devices on v3, v5e and v6e,
    float32 and bfloat16, of the largest, 8, 64 and 300; over a part of the devices, and on other chips, nobody looked).
    """
    if op.kind != TOP_K or not used(layout):
        return False
    if len(layout) == 1:
        return True
    if not is_ranked(op, value):
        return False
    return is_packed(value) or ways(used(layout), mesh) < ways(mesh, mesh)


def top_k_layout(builder: Builder, op: Op, layout: Sharding, size: int) -> Sharding | None:
    """How the results lie of an operand that is split so and of this size, if each part has so many; or None."""
    parts = ways(layout[-1], builder.mesh)
    if op.kind != TOP_K or parts < 2 or int(op.attributes["k"]) * parts > size:
        return None
    return (*layout[:-1], ())


def top_of_parts(builder: Builder, op: Op, number: int, axes: Sequence[str], dtypes: Sequence[str]) -> tuple[int, ...]:
    """Writes the largest and their places of a value whose last dim is split over ``axes``, whole."""
    own, k = builder.values[number], int(op.attributes["k"])
    few, all_ = ((*own.shape[:-1], k * parts) for parts in (1, ways(axes, builder.mesh)))
    found = builder.op(op.kind, (number,), [Value(few, dtype) for dtype in dtypes], op.attributes, op.origin)
    moved = {"axes": tuple(axes), "dimensions": (len(few) - 1,)}
    gathered = [
        builder.op(ALL_GATHER, (each,), (Value(all_, dtype),), moved, op.origin)[0]
        for each, dtype in zip(found, dtypes, strict=True)
    ]
    in_order = [Value(all_, dtype) for dtype in dtypes]
    ranked = builder.op("sort", gathered, in_order, {"dimension": len(few) - 1}, op.origin)
    firsts = (builder.op("slice", (n,), (Value(few, d),), {}, op.origin) for n, d in zip(ranked, dtypes, strict=True))
    return tuple(first for (first,) in firsts)


def best_of_parts(
    builder: Builder, op: Op, made: Sequence[int], firsts: Sequence[int], axes: Sequence[str]
) -> tuple[int, ...]:
    """Writes what a reduction of several arrays finds of a dim split over ``axes``, as the place of the largest: what
    each device has ``made`` is gathered, and reduced again from the same ``firsts``.
    """
    found, values = list[int](), [builder.values[number] for number in made]
    count = ways(axes, builder.mesh)
    for number, value in zip(made, values, strict=True):
        one, all_ = (replace(value, shape=(parts, *value.shape)) for parts in (1, count))
        (row,) = builder.op("reshape", (number,), (one,), {}, op.origin)
        found += builder.op(ALL_GATHER, (row,), (all_,), {"axes": tuple(axes), "dimensions": (0,)}, op.origin)
    said = {**op.attributes, "dimensions": (0,)}
    return builder.op(op.kind, (*found, *firsts), values, said, op.origin)
