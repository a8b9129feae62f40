"""The largest of a split dim, as for TPUs: each device's own, gathered, and of these the largest."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph import Op, Sharding, Value
from ..kinds import ALL_GATHER
from .builder import Builder
from .layout import ways

TOP_K = "top_k"


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
