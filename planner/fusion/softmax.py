"""Softmax whose maximum is found where it is subtracted, as a window over the row, and what is written of it.

The TPU compiler does so with scores that a product makes narrower than they are computed with, where nothing but its
product is left of it: forward passes whose backward pass computes them again. It writes the exponentials instead of the
scores: in float32, with their sum, out of the kernel of the product that makes the scores. Where less memory is near,
the scores are written too, as wide, and the exponentials made from those. It does so too where such scores are kept for
the backward pass, if probabilities are rounded before products read them: those that products read as wide are computed
again from the scores, which stay (v4, v5e, v5p and v6e). What a backward pass computes again, and what is added up over
devices first, stays as it lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..graph import Graph, Op
from ..kinds import ALL_REDUCE, REDUCE_SCATTER
from .nature import BROADCAST, ELEMENTWISE, PRODUCTS, REDUCE, SPREAD, VIEWS, batch_dims, free_dims, widens
from .operands import beyond_views
from .recomputed import is_rematted, recomputed
from .uses import Uses

SPREADING = VIEWS | {BROADCAST}


class Softmax(NamedTuple):
    """The operations that make the scores, the maximum of each row and the exponentials.

    ``source`` is what these are computed from number by number, narrow if it ``is_narrow``; it ``lies`` in memory, in
    another form, whatever else is written. ``is_again`` if a backward pass computes it again for products that stand
    side by side, ``is_rematted`` if a remat policy has it computed again, ``is_for_one`` if it is for one product
    alone.
    """

    scores: int
    maximum: int
    exponentials: int
    source: int
    is_narrow: bool
    lies: bool
    is_again: bool
    is_rematted: bool
    is_for_one: bool

    @property
    def is_kept(self) -> bool:
        """Whether it is kept for the backward pass as exponentials."""
        return self.lies and self.is_narrow and not (self.is_again or self.is_rematted or self.is_for_one)

    def is_apart(self, *, near: bool) -> bool:
        """Whether what is computed of it for several products is written, however narrow these are.

        Of wide scores only where less memory is near.
        """
        return self.lies and (self.is_narrow or not (self.is_again or near)) and not self.is_for_one


def softmaxes(graph: Graph, uses: Uses) -> Iterator[Softmax]:
    """Each softmax whose scores and maximum nothing else reads."""
    found = {n: _rows(graph, uses, op) for n, op in enumerate(graph.ops) if op.kind == "exponential"}
    rows = {number: pair for number, pair in found.items() if pair is not None}
    again = recomputed(graph, uses, rows) if rows else frozenset()
    for number, (scores, maximum) in rows.items():
        source, is_narrow = _source(graph, uses, scores)
        alone = _is_for_one_product(graph, uses, graph.ops[number])
        lies = _lies(graph, source, is_narrow) and not (
            is_narrow and _is_multiplied_wide(graph, uses, graph.ops[number])
        )
        rematted = is_rematted(graph.ops[number])
        yield Softmax(scores, maximum, number, source, is_narrow, lies, number in again, rematted, alone)


def write_exponentials(graph: Graph, uses: Uses, written: set[int], found: Iterable[Softmax], near: bool) -> None:
    """Writes what softmaxes make of their scores instead of these; both for one product where little memory is near."""
    for each in found:
        if each.is_kept:
            written.add(each.exponentials)
            written.discard(each.maximum)
        if not (each.is_for_one and each.is_narrow):
            continue
        before = each.scores if each.scores in written else _behind(graph, uses, each.scores, written)
        if before is None:
            continue
        written.discard(before)
        written.add(each.exponentials)
        if near:
            written.discard(each.maximum)
        else:
            written.add(each.scores)


def _behind(graph: Graph, uses: Uses, number: int, written: set[int]) -> int | None:
    """What is written, and read by nothing else, that an operation's result is made of number by number."""
    size = graph.values[graph.ops[number].results[0]].num_elements
    while True:
        near = [uses.makers[v] for v in graph.ops[number].operands if v in uses.makers]
        wide = [
            n
            for n in near
            if graph.ops[n].kind in ELEMENTWISE | VIEWS | PRODUCTS
            and graph.values[graph.ops[n].results[0]].num_elements == size
        ]
        if len(wide) != 1 or len(uses.next_ops(graph.ops[wide[0]].results[0])) != 1:
            return None
        (number,) = wide
        if number in written:
            return number


def _rows(graph: Graph, uses: Uses, op: Op) -> tuple[int, int] | None:
    """What makes the rows of which an exponential takes the maximum away, and that, if nothing else reads the two."""
    shift = uses.makers.get(op.operands[0])
    if shift is None or graph.ops[shift].kind != "subtract" or not _is_read_once(graph, uses, shift):
        return None
    value, most = graph.ops[shift].operands
    above = uses.makers.get(most)
    while above is not None and graph.ops[above].kind in SPREADING and _is_read_once(graph, uses, above):
        above = uses.makers.get(graph.ops[above].operands[0])
    if above is None or graph.ops[above].kind != REDUCE or graph.ops[above].operands[0] != value:
        return None
    scores = uses.makers.get(value)
    alone = _is_read_once(graph, uses, above) and len(uses.next_ops(value)) == 2
    return (scores, above) if alone and scores is not None else None


def _source(graph: Graph, uses: Uses, scores: int) -> tuple[int, bool]:
    """What makes what scores are computed from number by number, as far as that is one array; and if it is narrower."""
    size = graph.values[graph.ops[scores].results[0]].num_elements
    number, wider = scores, False
    while graph.ops[number].kind in ELEMENTWISE | VIEWS:
        wider |= widens(graph, graph.ops[number])
        near = {uses.makers.get(v) for v in graph.ops[number].operands if graph.values[v].num_elements == size}
        wide = [n for n in near if n is not None and graph.ops[n].kind not in SPREAD]
        if len(wide) != 1:
            break
        (number,) = wide
    return number, wider


def _lies(graph: Graph, source: int, is_narrow: bool) -> bool:
    """Whether it lies in memory: sums over devices, or a product's narrow result whose rows are one dim."""
    op = graph.ops[source]
    if op.kind == "dot_general":
        return is_narrow and batch_dims(graph, op) > 1 and all(free_dims(graph, op, side) < 2 for side in (0, 1))
    return op.kind in (ALL_REDUCE, REDUCE_SCATTER)


def _is_multiplied_wide(graph: Graph, uses: Uses, op: Op) -> bool:
    """Whether products read what exponentials are divided to, as wide as these."""
    shares = (graph.ops[n] for n in uses.next_ops(op.results[0]) if graph.ops[n].kind == "divide")
    return any(reader.kind in PRODUCTS for each in shares for reader, _ in beyond_views(graph, uses, each.results[0]))


def _is_for_one_product(graph: Graph, uses: Uses, op: Op) -> bool:
    """Whether exponentials are only summed and divided, and what that makes is read by one product."""
    readers = [graph.ops[n] for n in uses.next_ops(op.results[0])]
    if sorted(reader.kind for reader in readers) != ["divide", REDUCE]:
        return False
    last = next(reader for reader in readers if reader.kind == "divide")
    while len(after := uses.next_ops(last.results[0])) == 1 and graph.ops[after[0]].kind in VIEWS | {"convert"}:
        last = graph.ops[after[0]]
    return len(after) == 1 and graph.ops[after[0]].kind in PRODUCTS and batch_dims(graph, graph.ops[after[0]]) > 1


def _is_read_once(graph: Graph, uses: Uses, number: int) -> bool:
    return len(uses.next_ops(graph.ops[number].results[0])) == 1
