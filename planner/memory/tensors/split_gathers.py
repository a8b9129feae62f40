"""What lies beside gathers of groups: they are copied where the groups are told apart again.

A device that holds one group of several sends it without that dim, and what is gathered has all groups one after the
other along the next dim. Where that lies on the lanes, the two dims are no view of the one: the whole is copied, as
compiled for v3, v4 and v5e of ``f32[1,1024,32,64]`` from 32 devices, gathered as ``f32[32768,32,64]{0,2,1}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from types import MappingProxyType

from ...graph import Value
from ...kernels import Program
from ...kinds import ALL_GATHER
from .tiles import LANES, padding_growth

NONE_BESIDE: Mapping[int, tuple[int, int]] = MappingProxyType({})
FEWEST_DIMS = 3
"""Of fewer, a group's own dim and another are left, and rows of groups lie one after the other anyway."""


def split_gathers(program: Program, under_way: Mapping[int, tuple[int, int]] = NONE_BESIDE) -> dict[int, int]:
    """What such gathers make, by the point at which it is copied, where it lies twice: that which makes it, but of
    gathers beside products the last of those at which they are ``under_way`` (v5e).
    """
    graph, found = program.graph, dict[int, int]()
    for point, kernel in enumerate(program.kernels):
        op = graph.ops[kernel.ops[-1]]
        if op.kind == ALL_GATHER and len(kernel.ops) == 1:
            part, whole = graph.values[op.operands[0]], graph.values[op.results[0]]
            if _has_groups_on_lanes(part, whole):
                found[op.results[0]] = under_way.get(point, (point, point))[1]
    return found


def _has_groups_on_lanes(part: Value, whole: Value) -> bool:
    """Whether a device has one of what is gathered, and the next dim of that on the lanes however it lies best."""
    grown = [dim for dim, size in enumerate(whole.shape) if size > part.shape[dim]]
    kept = [dim for dim, size in enumerate(part.shape) if size > 1]
    if len(grown) != 1 or part.shape[grown[0]] != 1 or len(kept) < FEWEST_DIMS or grown[0] > kept[-1]:
        return False
    after = next(dim for dim in kept if dim > grown[0])
    pads = {pair: padding_growth(part.shape, pair, 32 // max(part.bits, 1)) for pair in permutations(kept, 2)}
    least = min(pads.values())
    return part.shape[after] >= LANES and all(pair[0] == after for pair, pad in pads.items() if pad == least)
