"""Groups of operations that become kernels."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from ..graph import Graph, Op
from ..lookups import LOOK_UP, tables_of
from .cut_out import is_cut_of_product
from .nature import (
    AFTER,
    BEHIND,
    BROADCAST,
    CONSTANT,
    CONVERT,
    ELEMENTWISE,
    IN_PASSING,
    PRODUCTS,
    REDUCE,
    UPDATE,
    VIEWS,
    stands_alone,
    takes,
)
from .parts import NO_PARTS, Parts, is_computed_anew
from .shifted import is_made_wider_again, is_shared_shift
from .uses import Uses

WHOLE_NUMBERS = frozenset("su")
_CLOSED = VIEWS | {BROADCAST, "concatenate", "pad", "slice", "iota"}


@dataclass(slots=True)
class Group:
    """A kernel in the making. ``roots`` are the operations whose results may be written, ``space`` the elements that it
    goes through, ``open`` whether others of the same space may join it, ``waits`` what has to be written before it
    though it does not read it, ``behind`` what it reads behind barriers.
    """

    ops: set[int]
    roots: set[int]
    reads: set[int]
    space: int
    open: bool
    products: int
    reduces: bool
    waits: set[int]
    behind: set[int]


def groups(
    graph: Graph,
    uses: Uses,
    written: set[int],
    masks: frozenset[int],
    shared: Parts = NO_PARTS,
    *,
    closed: Set[int] = frozenset(),
    is_gpu: bool = False,
) -> list[Group]:
    """One group a written operation, each with all that is computed in passing for it; none joins ``masks``, nor a
    product what is ``closed``.

    What every reader computes again has none. On a GPU (``is_gpu``) products pad nothing that is written.
    """
    found: dict[int, Group | None] = {number: None for number, op in enumerate(graph.ops) if op.kind == CONSTANT}
    barred = any(BEHIND in op.attributes for op in graph.ops)
    shifts = {number for number in written if is_shared_shift(graph, uses, graph.ops[number])}
    sliced = not is_gpu and "slice" in graph.kinds
    cuts = {n for n in written if is_cut_of_product(graph, uses, written, graph.ops[n])} if sliced else set[int]()
    for number in sorted(written):
        is_mask = number in masks
        group = found[number] = _group(
            graph, uses, found, shifts, cuts, shared, number, is_mask=is_mask, pads=not is_gpu
        )
        group.open &= number not in closed
        if barred:
            read = (value for n in group.ops for value, _ in graph.ops[n].attributes.get(BEHIND, ()))
            group.behind = group.reads.intersection(read)
    _drop_unread(graph, uses, found)
    kept = [group for group in found.values() if group is not None]
    for group in kept if any(AFTER in op.attributes for op in graph.ops) else ():
        group.waits = _waits(graph, uses, found, group.ops) - group.reads
    return kept


def _drop_unread(graph: Graph, uses: Uses, found: dict[int, Group | None]) -> None:
    """Drops the groups whose work is done, in passing, by all that read it."""
    read = set(uses.results)
    for number, group in sorted(found.items(), reverse=True):
        if group is None:
            continue
        if graph.ops[number].kind in IN_PASSING and read.isdisjoint(graph.ops[number].results):
            del found[number]
        else:
            read |= group.reads


def _group(
    graph: Graph,
    uses: Uses,
    stored: Mapping[int, Group | None],
    shifts: Set[int],
    cuts: Set[int],
    shared: Parts,
    root: int,
    *,
    is_mask: bool,
    pads: bool,
) -> Group:
    """The group of an operation; ``stored`` are those before it by what they write, and the constants with none, of
    which ``shifts`` are shared ones, ``cuts`` are cut out anew and ``shared`` read in part. Products may pad what they
    read themselves (``pads``).
    """
    ops, reads, waiting = {root}, set[int](), [root]

    def kept(maker: int, reader: int, position: int) -> bool:
        """Whether it is read where it lies in memory."""
        made = stored[maker]
        if made is None:
            return True
        if maker in shifts and is_made_wider_again(graph, uses, everything[maker], everything[root]):
            return False
        anew = maker in shared and not made.products and is_computed_anew(graph, reader, maker, shared)
        if anew and _is_of_one(graph, uses, made):
            return False
        if maker in cuts and not stands_alone(graph.ops[reader]):
            return False
        if pads and _is_padded_anew(graph, (reader, position), everything[maker]):
            return False
        if pads and _is_turned_anew(graph, uses, everything[reader], everything[maker]):
            return False
        if values[everything[maker].results[0]].dtype[0] in WHOLE_NUMBERS:
            return not _is_made_anew(graph, uses, made, maker, (reader, position), root)
        return not (pads and _is_activated_anew(graph, uses, made, (reader, position), everything[maker]))

    makers, everything, values, products = uses.makers, graph.ops, graph.values, 0
    while waiting:
        reader = waiting.pop()
        op = everything[reader]
        products += op.kind in PRODUCTS
        for position, value in enumerate(op.operands):
            maker = makers.get(value)
            if maker is None or (maker in stored and kept(maker, reader, position)):
                reads.add(value)
            elif maker not in ops:
                ops.add(maker)
                waiting.append(maker)
    return Group(
        ops=ops,
        roots={root},
        reads=reads,
        space=_space(graph, root),
        open=products > 0 or root in cuts or (not is_mask and _is_open(graph, root)),
        products=products,
        reduces=everything[root].kind == REDUCE,
        waits=set(),
        behind=set(),
    )


def _waits(graph: Graph, uses: Uses, stored: Mapping[int, Group | None], ops: set[int]) -> set[int]:
    """What is written of all that operations wait for, and of what that is computed from in passing."""
    found = set[int]()
    waiting = [value for number in ops for value in graph.ops[number].attributes.get(AFTER, ())]
    seen = set(waiting)
    while waiting:
        value = waiting.pop()
        maker = uses.makers.get(value)
        if maker is None:
            continue
        if maker not in stored:
            new = [operand for operand in graph.ops[maker].operands if operand not in seen]
            seen.update(new)
            waiting += new
        elif stored[maker] is not None:
            found.add(value)
    return found


def _is_made_anew(graph: Graph, uses: Uses, made: Group, maker: int, read: tuple[int, int], root: int) -> bool:
    """Whether whole numbers that lie in memory are computed again, in passing, where an operation reads them.

    So are indices in the shape in which rows are looked up, and what is computed of one array alone.
    """
    producer, reader = graph.ops[maker], graph.ops[read[0]]
    if stands_alone(reader):
        return False
    if _is_thin(graph, producer):
        return True
    if producer.kind not in ELEMENTWISE:
        return False
    if read[0] == root and _is_index(uses, graph, reader):
        return True
    return takes(graph, reader, read[1], producer) and _is_of_one(graph, uses, made)


def _is_padded_anew(graph: Graph, read: tuple[int, int], made: Op) -> bool:
    """Whether a product pads what it reads in passing, though the padded whole is written for others, as for a loop
    that goes round: XLA copies an operation of one array into all that take it (seen on v5e and v5p).
    """
    product = graph.ops[read[0]]
    return made.kind == "pad" and product.kind in PRODUCTS and takes(graph, product, read[1], made)


def _is_activated_anew(graph: Graph, uses: Uses, made: Group, read: tuple[int, int], producer: Op) -> bool:
    """Whether a plain product computes what is made of one array again, in passing, though that is written for what
    stands alone, as activations are for a loop that goes round: XLA copies an operation of one array into all that take
    it (seen on v4, v5e and v5p). What is only rounded is read as it lies.
    """
    if graph.ops[read[0]].kind != "dot_general" or producer.kind not in ELEMENTWISE or producer.kind == CONVERT:
        return False
    is_for_others = any(stands_alone(graph.ops[reader]) for reader in uses.after[producer.results[0]])
    return is_for_others and _is_of_one(graph, uses, made)


def _is_turned_anew(graph: Graph, uses: Uses, reader: Op, made: Op) -> bool:
    """Whether a product reads an argument as it lies, though what that is under another shape is written for others:
    rounded, for a loop (seen on v4: tied embeddings, whose second product goes round a ring).
    """
    return made.kind in VIEWS and reader.kind in PRODUCTS and made.operands[0] not in uses.makers


def _is_thin(graph: Graph, op: Op) -> bool:
    """Whether it only adds or drops dims of one."""
    if op.kind != "reshape":
        return False
    before, after = ([size for size in graph.shape(v) if size > 1] for v in (op.operands[0], op.results[0]))
    return before == after


def _is_index(uses: Uses, graph: Graph, op: Op) -> bool:
    """Whether it only brings indices into the shape in which rows are looked up."""
    readers = uses.readers[op.results[0]]
    return op.kind in VIEWS and any(
        graph.ops[n].kind in LOOK_UP and position == _index_at(graph.ops[n]) for n, position in readers
    )


def _index_at(lookup: Op) -> int:
    """At which position a lookup is given its indices: behind its tables."""
    return len(tables_of(lookup))


def _is_of_one(graph: Graph, uses: Uses, made: Group) -> bool:
    """Whether one array is all that is read; what lies beside another is two."""
    arrays = [uses.makers.get(value) for value in made.reads if graph.values[value].num_elements > 1]
    return len(arrays) == 1 and (arrays[0] is None or graph.ops[arrays[0]].kind != "concatenate")


def _space(graph: Graph, root: int) -> int:
    op = graph.ops[root]
    if op.kind in (REDUCE, UPDATE):
        return graph.values[op.operands[op.kind == UPDATE]].num_elements
    return max([graph.values[value].num_elements for value in op.results], default=0)


def _is_open(graph: Graph, root: int) -> bool:
    op = graph.ops[root]
    return op.kind not in _CLOSED and not stands_alone(op)
