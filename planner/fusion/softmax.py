"""What the TPU compiler writes of a softmax: its exponentials instead of the scores, or the scores alone.

Where the maximum is found over one dim and taken away from what it was found of, chips from v4 on make the two one
operation, a maximum over a window of the whole row (``RwbFusion`` in the log of libtpu's fusion), which the product's
kernel holds near. That kernel then writes the exponentials, in float32, and their sum; gradients read these (v4, v5e,
v5p, v6e and tpu7x). Where the product puts both its operands together, as of rotated queries and keys, the scores are
written wide and the maximum is taken away in a kernel of its own (v4, v5e and v5p). Over several dims it does not, and
so not where a device's part has a dim of one (a row of a batch, a query of a group of heads): XLA's simplifier reduces
that dim with the row. Nor where the scores are the product's own made wider, whose maximum is found narrow, nor where
products read what exponentials are divided to as wide as these.

Other scores leave the kernel of their product with the maximum of each row, as narrow as the product makes them. What
is computed of these number by number, the exponentials first of all, each kernel that reads it computes for itself: no
operation of it reads more than one array of that size, so XLA's instruction fusion copies it into all its readers. So
do the two products that read the gradient of the scores. On v5p and tpu7x, which have less memory near, a kernel's
reading what is computed of narrow scores again costs more than that is worth: what products share of a forward pass's
softmax is written there, and the gradient of scores that a remat policy has computed again. Sums over devices are
written there too.

Narrow scores of queries of several heads that share their keys lie one product's way: their gradient is written for its
products on all chips but v5e (12 programs of v3 to tpu7x, with remat and without), on v5p and tpu7x also what products
share of the softmax. Wide ones have theirs written on tpu7x alone, whose narrow arrays lie in other tiles than wide
ones (programs for v4, v5p, v6e and tpu7x, with remat and without). The exponentials of narrow ones are kept as others
are where one product alone reads them, as in a forward pass (v4, v5e and v6e), and where a scan puts them into a stack,
which it then does from where they lie (tpu7x, and v5e's and v5p's peaks agree; of a group of one query, whose maximum
has no window, they are computed into the stack).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from ..graph import Graph, Op
from ..kinds import ALL_REDUCE, REDUCE_SCATTER
from .nature import (
    BROADCAST,
    ELEMENTWISE,
    PRODUCTS,
    REDUCE,
    SPREAD,
    UPDATE,
    VIEWS,
    batch_dims,
    free_dims,
    takes,
    widens,
)
from .operands import MANY_PRODUCTS, beyond_views
from .recomputed import is_rematted, recomputed
from .uses import Uses

SPREADING = VIEWS | {BROADCAST}
SUBLANES = 8
LARGE_PIECES = 1 << 19
"""The bytes of an operand of one product of a batch from which on putting halves together is no part of a kernel that
has the maximum in a window: 2048 places of 128 in bfloat16 are not (v4, v5e and v5p), 1536 of 128 and 2048 of 64 are.
"""


class Softmax(NamedTuple):
    """The operation that makes the exponentials.

    ``source`` is what these are computed from number by number, narrow if it ``is_narrow``; it ``lies`` in memory, in
    another form, whatever else is written; they are of queries of several heads that share their keys if it
    ``is_grouped``. ``windowed`` are the operations that the kernel of the exponentials computes
    in passing otherwise than others do, if it has the maximum in a window: that, and the product where nothing else
    reads what it makes. ``is_again`` if a backward pass computes it again for products that stand side by side,
    ``is_rematted`` if a remat policy has it computed again, ``is_for_one`` if it is for one product alone. ``written``
    makes the scores as they are written where the kernel with the window does not compute them.
    """

    exponentials: int
    source: int
    is_narrow: bool
    lies: bool
    is_grouped: bool
    windowed: tuple[int, ...]
    is_again: bool
    is_rematted: bool
    is_for_one: bool
    written: int | None = None

    @property
    def is_apart(self) -> bool:
        """Whether the gradient of the scores is written for its products where less memory is near."""
        again = self.is_rematted and not self.windowed if self.is_narrow else not (self.is_for_one or self.is_again)
        return self.lies and again

    @property
    def is_shared(self) -> bool:
        """Whether what products read of it is written where less memory is near."""
        usual = self.lies and self.is_narrow and not (self.is_again or self.is_rematted)
        return (usual or (self.is_grouped and self.is_narrow)) and not self.is_for_one


def softmaxes(graph: Graph, uses: Uses) -> Iterator[Softmax]:
    """Each softmax whose scores and maximum nothing else reads."""
    found = {n: _rows(graph, uses, op) for n, op in enumerate(graph.ops) if op.kind == "exponential"}
    rows = {number: pair for number, pair in found.items() if pair is not None}
    again = recomputed(graph, uses, rows) if rows else frozenset()
    for number, (scores, most) in rows.items():
        source, is_narrow = _source(graph, uses, scores)
        alone = _is_for_one_product(graph, uses, graph.ops[number])
        is_grouped = _is_of_groups(graph, source)
        is_narrow |= _is_made_wide(graph, source) and (alone or not is_grouped)
        lies = _lies(graph, source, is_narrow) and not (
            is_narrow and _is_multiplied_wide(graph, uses, graph.ops[number])
        )
        is_kept = lies or (is_grouped and (alone or _is_stacked(graph, uses, graph.ops[number])))
        is_windowed = is_kept and is_narrow and _has_window(graph, uses, scores, most)
        is_own = is_windowed and _is_its_own(graph, uses, source)
        is_cut = is_own and _is_made_of_pieces(graph, uses, source)
        windowed = ((source, most) if is_own else (most,)) if is_windowed else ()
        rematted = is_rematted(graph.ops[number])
        own = scores if is_cut else None
        yield Softmax(number, source, is_narrow, lies, is_grouped, windowed, number in again, rematted, alone, own)


def shares(graph: Graph, uses: Uses, softmax: Softmax) -> set[int]:
    """The operations whose results several products read, of those that divide the exponentials by their sums."""
    divided = (n for n in uses.next_ops(graph.ops[softmax.exponentials].results[0]) if graph.ops[n].kind == "divide")
    found = set()
    for number in divided:
        value = graph.ops[number].results[0]
        after = uses.next_ops(value)
        if len(after) == 1 and graph.ops[after[0]].kind == "convert":
            number, value = after[0], graph.ops[after[0]].results[0]
        readers = beyond_views(graph, uses, value)
        if len(readers) >= MANY_PRODUCTS and all(reader.kind in PRODUCTS for reader, _ in readers):
            found.add(number)
    return found


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


def _is_made_wide(graph: Graph, source: int) -> bool:
    """Whether it is a product of narrow numbers that leaves wide ones, as with a ``preferred_element_type``."""
    op = graph.ops[source]
    wide = graph.values[op.results[0]].bits
    return op.kind == "dot_general" and all(graph.values[value].bits < wide for value in op.operands)


def _lies(graph: Graph, source: int, is_narrow: bool) -> bool:
    """Whether it lies in memory: sums over devices, or a product's narrow result whose rows are one dim."""
    op = graph.ops[source]
    if op.kind == "dot_general":
        return is_narrow and batch_dims(graph, op) > 1 and all(free_dims(graph, op, side) < 2 for side in (0, 1))
    return op.kind in (ALL_REDUCE, REDUCE_SCATTER)


def _is_of_groups(graph: Graph, source: int) -> bool:
    """Whether it is a batch of products in each of which one side has rows of several dims, the other of one."""
    op = graph.ops[source]
    is_batch = op.kind == "dot_general" and batch_dims(graph, op) > 0
    return is_batch and sum(free_dims(graph, op, side) > 1 for side in (0, 1)) == 1


def _has_window(graph: Graph, uses: Uses, scores: int, most: int) -> bool:
    """Whether the maximum of rows is found where it is taken away."""
    shape = graph.shape(graph.ops[most].operands[0])
    dims = graph.ops[most].attributes["dimensions"]
    maker: int | None = scores
    while maker is not None and graph.ops[maker].kind in VIEWS:
        maker = uses.makers.get(graph.ops[maker].operands[0])
    return len(dims) == 1 and 1 not in shape and not (maker is not None and widens(graph, graph.ops[maker]))


def _is_stacked(graph: Graph, uses: Uses, op: Op) -> bool:
    """Whether a loop puts what it makes into a stack."""
    return any(reader.kind == UPDATE and at == 1 for reader, at in beyond_views(graph, uses, op.results[0]))


def _is_its_own(graph: Graph, uses: Uses, source: int) -> bool:
    """Whether the kernel that has the maximum in a window makes the scores itself, for none but itself."""
    op = graph.ops[source]
    return op.kind == "dot_general" and op.results[0] not in uses.results and _is_read_once(graph, uses, source)


def _is_made_of_pieces(graph: Graph, uses: Uses, source: int) -> bool:
    """Whether a product puts both its operands together from pieces as it reads them: rows of pairs of numbers, or
    halves that are large.
    """
    return all(_has_pieces(graph, uses, graph.ops[source], position) for position in (0, 1))


def _has_pieces(graph: Graph, uses: Uses, product: Op, position: int) -> bool:
    value = product.operands[position]
    made = uses.makers.get(value)
    while made is not None and graph.ops[made].kind in SPREADING | {"convert"}:
        before, after = (graph.shape(each) for each in (graph.ops[made].operands[0], graph.ops[made].results[0]))
        if graph.ops[made].kind == "reshape" and (1,) < before[-1:] < (SUBLANES,) and before[-1:] != after[-1:]:
            return True
        made = uses.makers.get(graph.ops[made].operands[0])
    if made is None or graph.ops[made].kind != "concatenate" or not takes(graph, product, position, graph.ops[made]):
        return False
    whole, dims = graph.values[value], product.attributes[f"{('lhs', 'rhs')[position]}_batching_dimensions"]
    return whole.num_bytes >= LARGE_PIECES * math.prod([int(whole.shape[dim]) for dim in dims])


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
