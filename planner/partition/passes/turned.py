"""Copies that the TPU compiler makes around all-to-alls and all-gathers.

It cuts the dim that an all-to-all splits into a piece for each device, and needs these outermost in memory. What has
another dim outside of that one is copied first, and what arrives for a dim with another outside is copied into its
place: seen so for every pair of dims of shapes of two to four. What works number by number takes pieces as they lie.
Copies go over pieces in tiles: where these are narrow, over more bytes than the whole has (v3: bf16[16,16,1024] in 32
pieces of 32 columns takes 20092 cycles, in pieces of 256 an eighth for each byte). Pieces without a dim of whole lanes
are sent as rows of numbers, one after the other, and put into tiles as they arrive, whoever reads them.

Images lie with their places outermost, as ``planner/images`` says: rows of places are exchanged without a copy, and
what is exchanged of the batch is copied for it and from it. Where this brings the batch onto the lanes or down from
them, the numbers are sent with places there, which is a copy more.

An all-gather of several dims at once brings whole pieces, which are then copied into their places, twice where the last
dim is one of them. A device that holds one group of several sends it without that dim, and what is gathered has all
groups one after the other along the next. Where that lies on the lanes, the two dims are no view of the one, and groups
are told apart by a copy: seen on v3, v4 and v5e of ``f32[1,1024,32,64]`` from 32 devices, which is gathered as
``f32[32768,32,64]{0,2,1}``.

Masks, which are computed of what is spread, leave as they are wanted: their tokens on the lanes, experts outermost or
on the rows. So products read them as they arrive. What is multiplied with a gradient lies as that does: with experts on
the rows where these are more than the places of each. The two or four of a device are spread in tiles of so many rows
then, and a copy puts them beside those of others; whole registers of eight are put there in passing (v3, v4, v5e, v5p
and v6e, of 2 to 16 experts a device; with no more experts than places all are read as they arrive).

What arrives is never a result of the step itself, but is copied there; what is summed up is. What is spread to be sent
is spread in pieces (v5e: a token's places f32[4,512,64] for four experts a device).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ...fusion.nature import BROADCAST, ELEMENTWISE, LANES
from ...graph import Graph, Op
from ...images import Image, image_of, images, lies_by_batch, outside, tile_rows
from ...kinds import ALL_GATHER, ALL_TO_ALL, COPIED_IN_ORDER, ROWS, TILE_ROWS, TURNED_COPY

Shape = tuple[int, ...]
Pieces = tuple[int, ...]
COPIED = (ALL_GATHER, ALL_TO_ALL)
"""What a result of the step is not left in."""
FEWEST_DIMS = 3
"""Of fewer, a group's own dim and another are left, and rows of groups lie one after the other anyway."""
FEW_ROWS = (2, 4)
_TAKING = ELEMENTWISE | {"reduce"}


def turned(graph: Graph) -> Graph:
    """The graph with the copies around its exchanges, in loops too. The step's own results have names."""
    if not graph.nesting and graph.kinds.isdisjoint(COPIED):
        return graph
    return _Turning(graph).graph()


def turns(
    kind: str, dims: Sequence[int], before: Shape, after: Shape, *, in_order: bool, image: Image | None = None
) -> tuple[int, int]:
    """How often pieces are copied before a collective, and after it.

    ``before`` and ``after`` are what a device holds, of an ``image`` if it is one; ``in_order`` says that what reads it
    takes no pieces as they come.
    """
    if kind == ALL_TO_ALL and len(dims) == 2:
        joined, split = dims
        first = int(_has_outside(before, split, image))
        last = int(in_order and _has_outside(after, joined, image) and not _lies_outside(before, after, joined))
        if image and lies_by_batch(before, image) != lies_by_batch(after, image):
            return (first, last + 1) if split == image.batch else (first + 1, max(last, 1))
        return first, last
    if kind == ALL_GATHER and len(dims) > 1:
        return 0, 2 if len(after) - 1 in dims else 1
    return 0, 0


def tells_groups_apart(kind: str, dims: Sequence[int], part: Shape, image: Image | None = None) -> bool:
    """Whether what is gathered is copied, its numbers in their order: a device has one group of it, and the next dim on
    the lanes however that lies best.
    """
    kept = [dim for dim, size in enumerate(part) if size > 1]
    if kind != ALL_GATHER or image or len(dims) != 1 or part[dims[0]] != 1 or len(kept) < FEWEST_DIMS:
        return False
    after = next((dim for dim in kept if dim > dims[0]), kept[-1])
    if after < dims[0] or part[after] < LANES:
        return False
    pads = {pair: _padding_growth(part[pair[0]], part[pair[1]]) for pair in itertools.permutations(kept, 2)}
    least = min(pads.values())
    return all(pair[0] == after for pair, pad in pads.items() if pad == least)


def _padding_growth(lanes: int, rows: int) -> float:
    """By how much padding makes an array larger with dims of these sizes on the lanes and on the rows."""
    return math.prod(-(-size // full) * full / size for size, full in ((lanes, LANES), (rows, tile_rows(rows, 1))))


def _has_outside(shape: Shape, dim: int, image: Image | None) -> bool:
    return any(shape[other] > 1 for other in (outside(shape, image, dim) if image else range(dim)))


def _lies_outside(before: Shape, after: Shape, joined: int) -> bool:
    """Whether what arrives one by one may stay outermost: what follows fills no lanes, which one before it does, as the
    tokens of masks do that go to experts (an expert a device on v3, v4 and v5p; with several they are copied).
    """
    inside, outside = after[joined + 1 :], after[:joined]
    return before[joined] == 1 and max(inside, default=LANES) < LANES <= max(outside, default=0)


def has_tokens_on_lanes(kind: str, dims: Sequence[int], after: Shape) -> bool:
    """Whether what arrives for a dim has one before it that fills lanes, as masks have their tokens."""
    return kind == ALL_TO_ALL and len(dims) == 2 and max(after[: dims[0]], default=0) >= LANES


def rows_of_tiles(dims: Sequence[int], before: Shape, after: Shape) -> int:
    """In tiles of how few rows what is spread is sent for a gradient with that dim on its rows; none if not so."""
    joined = dims[0]
    places = max(after[joined + 1 :], default=LANES)
    return before[joined] if before[joined] in FEW_ROWS and places < min(after[joined], LANES) else 0


def pieces(kind: str, dims: Sequence[int], before: Shape, after: Shape) -> tuple[Pieces, Pieces]:
    """The dim of which what is copied before a collective lies in pieces, with their number, and that after it."""
    if kind != ALL_TO_ALL or len(dims) != 2:
        return (), ()
    joined, split = dims
    count = max(-(-before[split] // max(after[split], 1)), 1)
    return (split, count), (joined, count)


def arrives_in_rows(kind: str, dims: Sequence[int], before: Shape, after: Shape) -> bool:
    """Whether an exchange's pieces have no dim of whole lanes: what arrives are rows of numbers, yet to be put into
    tiles.
    """
    if kind != ALL_TO_ALL or len(dims) != 2:
        return False
    shape, (dim, count) = after, pieces(kind, dims, before, after)[1]
    return all(size < LANES for size in (*shape[:dim], -(-shape[dim] // count), *shape[dim + 1 :]))


def in_order(graph: Graph) -> set[int]:
    """The values that are read by something that does not take pieces as they lie."""
    inner = set() if graph.result_names else set(graph.results)
    return inner.union(*(op.operands for op in graph.ops if op.kind not in _TAKING))


def masks(graph: Graph, spread: Set[int]) -> set[int]:
    """What is spread, and what is computed number by number of nothing else."""
    found = {*spread}
    for op in graph.ops:
        if op.kind in ELEMENTWISE and op.operands and found.issuperset(op.operands):
            found.update(op.results)
    return found


class _Turning:
    """A graph in which exchanges get their copies."""

    def __init__(self, graph: Graph):
        self.source = graph
        self.values = list(graph.values)
        self.in_order = in_order(graph)
        self.images = images(graph)
        self.results = frozenset(graph.results) if graph.result_names else frozenset[int]()
        self.spread = {op.results[0] for op in graph.ops if op.kind == BROADCAST}
        self.masks = masks(graph, self.spread) if ALL_TO_ALL in graph.kinds else self.spread
        self.tiled = dict[int, int]()

    def graph(self) -> Graph:
        """The graph with the copies."""
        ops: list[Op] = []
        for op in self.source.ops:
            if op.bodies:
                op = replace(op, bodies=tuple(map(turned, op.bodies)))
            if op.kind not in COPIED or len(op.operands) != 1:
                ops.append(op)
            else:
                ops += self._turned(op)
        ops = [self._tiled(op) if self.tiled and op.kind == BROADCAST else op for op in ops]
        return replace(self.source, values=tuple(self.values), ops=tuple(ops))

    def _tiled(self, op: Op) -> Op:
        """What is spread, which may lie in tiles of few rows."""
        rows = self.tiled.get(op.results[0], 0)
        said = op.attributes
        return replace(op, attributes=_spread_said(tuple(said["broadcast_dimensions"]), rows)) if rows else op

    def _turned(self, op: Op) -> Iterator[Op]:
        (sent,), (got,) = op.operands, op.results
        shapes = (self.values[sent].shape, self.values[got].shape)
        dims = op.attributes.get("dimensions", ())
        image = image_of(self.images, shapes)
        before, after = turns(op.kind, dims, *shapes, in_order=got in self.in_order, image=image)
        before = 0 if sent in self.spread else before
        first, last = pieces(op.kind, dims, *shapes)
        rows_said, said = _rows_said(last if after else ()), _said_of(last)
        in_rows = arrives_in_rows(op.kind, dims, *shapes)
        if sent in self.masks and not image and has_tokens_on_lanes(op.kind, dims, shapes[1]):
            rows = rows_of_tiles(dims, *shapes) if sent in self.spread and got not in self.in_order else 0
            after, said = (1, _tile_said(rows)) if rows else (0, said)
            self.tiled |= {sent: rows} if rows else {}
        if tells_groups_apart(op.kind, dims, shapes[0], image):
            after, said = 1, COPIED_IN_ORDER
        if got in self.results and self.values[got].shape and not after:
            after, said = 1, said if in_rows or last else COPIED_IN_ORDER
        for _ in range(before):
            yield (copy := self._copy(op, op.operands[0], self._like(sent), first))
            op = replace(op, operands=copy.results)
        steps = [*(self._like(got) for _ in range(after + in_rows)), got]
        yield replace(op, results=(steps[0],))
        for place, (source, made) in enumerate(itertools.pairwise(steps)):
            of_copy = rows_said if in_rows and place == 0 else said
            yield replace(op, kind=TURNED_COPY, operands=(source,), results=(made,), attributes=of_copy)

    def _copy(self, op: Op, value: int, result: int, cut: Pieces) -> Op:
        return replace(op, kind=TURNED_COPY, operands=(value,), results=(result,), attributes=_said_of(cut))

    def _like(self, value: int) -> int:
        self.values.append(self.values[value])
        return len(self.values) - 1


@lru_cache(maxsize=1024)
def _said_of(cut: Pieces) -> Mapping[str, Any]:
    """The attributes of a copy: one mapping for all alike, by which alike kernels are known."""
    return {"pieces": cut} if cut else {}


@lru_cache(maxsize=1024)
def _tile_said(rows: int) -> Mapping[str, Any]:
    """The attributes of a copy in tiles of so many rows."""
    return {TILE_ROWS: rows}


@lru_cache(maxsize=1024)
def _spread_said(dims: tuple[int, ...], rows: int) -> Mapping[str, Any]:
    """The attributes of what is spread in such tiles."""
    return {"broadcast_dimensions": dims, TILE_ROWS: rows}


@lru_cache(maxsize=1024)
def _rows_said(cut: Pieces) -> Mapping[str, Any]:
    """The attributes of a copy that puts rows into tiles, of pieces if something reads them in their order."""
    return {ROWS: True, **_said_of(cut)}
