"""A cache that a loop's turn takes out of a stack, puts a product's rows into and multiplies by vectors.

It lies as the product leaves what is put in: the batch on the rows of registers, which a few sequences a device do not
fill, the features of a head on the lanes. So the turn copies it, and goes through more registers for what it
multiplies; of the scores each position has registers of its own, into which a mask's numbers come one by one. Seen on
v3, v4, v5e, v5p and v6e, of 2, 4 and 16 sequences, 4 and 8 heads of 64 and 128 features: never where heads share keys,
which the matrix unit multiplies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from ...fusion.nature import CONVERT, PRODUCTS, REDUCE, SLICE, UPDATE, VIEWS
from ...graph import Graph, Op
from ...kernels import Kernel
from ..coefficients import Coefficients
from ..manner import LATER, manner_of
from ..work import LANES, LOOP, REGISTER_ELEMENTS, SUBLANES, Work, padded_elements
from .turning import FIRST_CYCLES

COPIED = 1.5
"""What copying a tile there takes against one of few rows that is only moved, or on v3 one of any copy: 1.1 to 2.3.

Nothing is counted where positions lie on the lanes before, as they do of features that do not fill these, and a large
vector memory has both (v5e, v6e).
"""

SPREAD = 0.9
"""What a mask's number takes that is put into a register, against a row that lies in no tile: 0.9 on v6e, 1.2 on v4."""


class Cache(NamedTuple):
    """How it lies: ``tiles`` of a head's features for a batch, at so many ``positions`` for one ``batch`` of them."""

    tiles: float
    positions: int
    batch: int
    features: int


class BatchRows:
    """The caches of a turn that lie so, as its kernels are gone through."""

    def __init__(self, graph: Graph, of: Coefficients) -> None:
        self._graph, self._of = graph, of
        self._makers = {value: op for op in graph.ops for value in op.results}
        self._caches = dict(self._found())
        self._scores: dict[int, float] = {}

    @property
    def growth(self) -> dict[int, float]:
        """The caches, and how often they would fit into the registers that they take."""
        least = {value: padded_elements(self._graph.shape(value)) for value in self._caches}
        return {value: REGISTER_ELEMENTS * each.tiles / least[value] for value, each in self._caches.items()}

    def extra_cycles(self, kernel: Kernel, work: Work) -> float:
        """What a kernel takes more: of copies where it updates a cache, of a mask where it reads scores."""
        if not self._caches:
            return 0.0
        ops = [self._graph.ops[number] for number in kernel.ops]
        updated = [op.results[0] for op in ops if op.kind == UPDATE and op.results[0] in self._caches]
        copies = (self._caches[value] for value in updated)
        tiles = sum(each.tiles for each in copies if each.features >= LANES or manner_of(self._of) is not LATER)
        copied = COPIED * (self._of.few_rows_cycles or FIRST_CYCLES) * tiles
        if work.kind != LOOP:
            return copied
        if any(op.kind == REDUCE for op in ops):
            self._scores |= dict(self._scored(kernel))
        return copied + SPREAD * self._of.row_cycles * sum(self._scores.get(value, 0.0) for value in kernel.reads)

    def _found(self) -> Iterator[tuple[int, Cache]]:
        for op in self._graph.of_kind(UPDATE):
            product = self._maker(op.operands[1])
            if self._is_cut(op) and product is not None and product.kind in PRODUCTS and self._is_summed(op.results[0]):
                yield op.results[0], self._cache(op, product)

    def _is_cut(self, op: Op) -> bool:
        cut = self._maker(op.operands[0])
        return cut is not None and cut.kind == SLICE

    def _is_summed(self, cache: int) -> bool:
        """Whether no product takes it, but what is multiplied number by number."""
        return all(cache not in op.operands for op in self._graph.of_kind(*PRODUCTS))

    def _cache(self, op: Op, product: Op) -> Cache:
        whole, piece = (self._graph.values[value] for value in (op.results[0], op.operands[1]))
        left = self._graph.shape(product.operands[0])
        summed = product.attributes.get("lhs_contracting_dimensions", ())
        batch = math.prod(size for dim, size in enumerate(left) if dim not in summed)
        features, positions = whole.shape[-1], whole.num_elements // max(piece.num_elements, 1)
        each = math.ceil(batch / SUBLANES) * math.ceil(features / LANES)
        return Cache(whole.num_elements / (batch * features) * each, positions, batch, features)

    def _scored(self, kernel: Kernel) -> Iterator[tuple[int, float]]:
        """What a kernel makes a number of for each position of a cache, and the registers of it."""
        for cache in (self._caches[value] for value in kernel.reads if value in self._caches):
            for value in kernel.writes:
                heads = self._graph.values[value].num_elements / (cache.positions * cache.batch)
                if heads.is_integer():
                    yield value, cache.positions * math.ceil(cache.batch / LANES) * math.ceil(heads / SUBLANES)

    def _maker(self, value: int) -> Op | None:
        """The operation that makes a value, seen through those that move nothing and conversions."""
        op = self._makers.get(value)
        while op is not None and op.kind in VIEWS | {CONVERT, "broadcast_in_dim"}:
            op = self._makers.get(op.operands[0])
        return op
