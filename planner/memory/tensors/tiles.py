"""What a tensor takes in memory: a TPU pads its two minor dims to tiles of 8 rows of 128 lanes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import permutations

from ...chip import Chip
from ...graph import Graph, Value

LANES = 128
ROWS = 8
VECTOR_ELEMENTS = LANES * ROWS
ALIGNMENT_BYTES = 512
NEARLY_FULL = 1.01
"""What tiles of all their rows may take more than smaller ones that fit better: seen of logits ``f32[2,1023,V]``."""


def padded_bytes(value: Value) -> int:
    """Bytes of a value with its tiles filled up and its start aligned.

    The compiler's layout assignment may put any dim minor, and takes two that pad least: ``f32[1024,2,64]`` is stored
    with 1024 on the lanes and 64 on the rows, and so not padded. A minor dim of up to four rows has a smaller tile.
    """
    return _padded_bytes(value.shape, value.bits)


def on_tpu(chip: Chip | None) -> bool:
    """Whether a program runs on a TPU, as is meant where no chip is said."""
    return chip is None or chip.platform == "tpu"


def stored_bytes(*, is_tpu: bool) -> Callable[[Value], int]:
    """The bytes of values where they are stored: on a TPU those of ``padded_bytes``; CPUs and GPUs fill up no tiles."""
    return padded_bytes if is_tpu else _unpadded_bytes


def _unpadded_bytes(value: Value) -> int:
    return aligned(value.num_bytes)


@lru_cache(maxsize=4096)
def _padded_bytes(shape: tuple[int, ...], bits: int) -> int:
    elements = _padded_elements(tuple(size for size in shape if size != 1), 32 // max(bits, 1))
    return aligned((elements * bits + 7) // 8)


@lru_cache(maxsize=4096)
def bytes_gathered(piece: Value, whole: Value) -> int:
    """Bytes of what devices gather: it is laid out as the piece of each, and may so be padded where it need not be.

    Of layouts that pad the piece alike, the one counts that does not have the gathered dim on the lanes.
    """
    kept = [d for d, size in enumerate(whole.shape) if size != 1]
    dims, parts = ([value.shape[d] for d in kept] for value in (whole, piece))
    if len(dims) < 2 or not math.prod(dims):
        return padded_bytes(whole)
    packed = 32 // max(whole.bits, 1)
    pads = {pair: padding_growth(parts, pair, packed) for pair in permutations(range(len(dims)), 2)}
    least = min(pads.values())
    growth = max(padding_growth(dims, pair, packed) for pair, pad in pads.items() if pad == least)
    return aligned((round(math.prod(dims) * growth) * whole.bits + 7) // 8)


@lru_cache(maxsize=4096)
def batched_bytes(value: Value, batch: frozenset[int]) -> int:
    """Bytes of a value of which no dim of a ``batch`` lies on the lanes or on the rows, if it has two others."""
    dims, packed = value.shape, 32 // max(value.bits, 1)
    others = [d for d, size in enumerate(dims) if size > 1 and d not in batch]
    if len(others) < 2 or not math.prod(dims):
        return padded_bytes(value)
    growth = min(padding_growth(dims, pair, packed) for pair in permutations(others, 2))
    return aligned((round(math.prod(dims) * growth) * value.bits + 7) // 8)


Sizes = Callable[[Graph, int], int]
"""The bytes of a graph's value, by its number."""


def memoised(sizes: Callable[[Value], int]) -> Callable[[Value], int]:
    """The same sizes, each shape and dtype worked out once."""
    known: dict[tuple[tuple[int, ...], str], int] = {}

    def look_up(value: Value) -> int:
        key = (value.shape, value.dtype)
        found = known.get(key)
        if found is None:
            found = known[key] = sizes(value)
        return found

    return look_up


def _padded_elements(dims: tuple[int, ...], packed: int) -> int:
    elements = math.prod(dims)
    if elements == 0 or not dims:
        return elements
    if len(dims) == 1:
        return round_up(elements, VECTOR_ELEMENTS if elements >= VECTOR_ELEMENTS else LANES)
    lanes = [round_up(size, LANES) / size for size in dims]
    rows = [round_up(size, tile_rows(size, packed)) / size for size in dims]
    growths = [(lanes[lane] * rows[row], dims[row] < ROWS) for lane, row in permutations(range(len(dims)), 2)]
    growth, is_small = min(growths)
    if is_small:
        whole = [full for full, is_part in growths if not is_part and full <= NEARLY_FULL * growth]
        growth = min(whole, default=growth)
    return round(elements * growth)


def padding_growth(dims: Sequence[int], pair: tuple[int, int], packed: int) -> float:
    """By how much padding makes an array larger with a pair of dims on the lanes and on the rows."""
    lane, row = (dims[d] for d in pair)
    return round_up(lane, LANES) / lane * round_up(row, tile_rows(row, packed)) / row


def tile_rows(size: int, packed: int) -> int:
    """The rows of the tile: 8, or the power of two that holds a smaller dim; packed dtypes pair or quadruple rows."""
    return min(ROWS, max(packed, 1 << (size - 1).bit_length()))


def round_up(size: int, multiple: int) -> int:
    """The least multiple that is no smaller."""
    return -(-size // multiple) * multiple


def aligned(num_bytes: int) -> int:
    """Bytes up to where the next tensor may start."""
    return round_up(num_bytes, ALIGNMENT_BYTES)
