"""The names of collectives: HLO's. They stand here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ALL_GATHER = "all-gather"
ALL_REDUCE = "all-reduce"
REDUCE_SCATTER = "reduce-scatter"
ALL_TO_ALL = "all-to-all"
COLLECTIVE_PERMUTE = "collective-permute"
RAGGED_ALL_TO_ALL = "ragged-all-to-all"
COLLECTIVE_BROADCAST = "collective-broadcast"
TURNED_COPY = "turned-copy"
"""No collective, but the copy that one takes: a value's numbers in another order in memory."""
ROWS = "rows"
"""The attribute of a copy that puts rows of numbers, as they arrived, into tiles."""
IN_ORDER = "in_order"
"""The attribute of a copy that leaves the numbers in their order."""
COPIED_IN_ORDER: Mapping[str, Any] = {IN_ORDER: True}
TILE_ROWS = "tile_rows"
"""The attribute of a copy, or of what is spread, that lies in tiles of so few rows."""
BETWEEN_PARTS = "between_parts"
"""Said of copies that put images together that lie in parts, or part them, and of what adds up or spreads such."""
GATHERED = "gathered"
"""Said of a sum over devices that takes the place of a gather: of the parts of all, each among zeros."""
ROUNDED = "rounded"
"""Said of a sum over devices that leaves what it adds up in a narrower dtype."""
RING_PADDING = "padding_bytes"
"""Said of a reduce-scatter: the bytes by which its ring's pieces are larger than what is summed up."""
KINDS = (
    ALL_GATHER,
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    COLLECTIVE_PERMUTE,
    RAGGED_ALL_TO_ALL,
    COLLECTIVE_BROADCAST,
)
