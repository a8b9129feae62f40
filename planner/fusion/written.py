"""Which operations leave their result in memory; all others are computed in passing by what reads them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ..graph import Graph, Op
from .cut_out import is_convolved_part, is_rounded_image, is_shared_part, is_thin_matrix
from .duplicated import dearer_in_passing, not_on_all_ways
from .grouped import grouped
from .interleaved import is_interleaved
from .libraries import ends_product, is_passed, multiplied
from .narrow import NARROW
from .nature import (
    APART,
    BEHIND,
    CONSTANT,
    CONVERT,
    ELEMENTWISE,
    IN_PASSING,
    JOIN,
    NORMED,
    PRODUCTS,
    SENT,
    SPREAD,
    STEPWISE,
    VIEWS,
    batch_dims,
    is_constant,
    is_padded,
    keeps_shape,
    stands_alone,
    takes,
    widens,
)
from .neighbours import put_together
from .operands import MANY_PRODUCTS, MATRIX_RANK, beyond_views, is_only_multiplied, is_shared_operand
from .rejoined import rejoined
from .sent_products import sent_products
from .shifted import is_shared_shift
from .softmax import Softmax, shares, softmaxes
from .uses import Uses

NEAR_BYTES = 64 << 20


def written_ops(
    graph: Graph,
    uses: Uses,
    masks: frozenset[int],
    shared: Collection[int] = (),
    *,
    near_bytes: int = NEAR_BYTES,
    cuts_parts: bool = False,
    repeats_scores: str = "wide",
    is_gpu: bool = False,
    pads: bool = True,
) -> tuple[set[int], frozenset[int]]:
    """The numbers of the operations whose result is written, and of those that no other kernel joins.

    Whatever can be computed in passing by everything that reads it is computed there, several times if need be, but for
    four things: what shifts a product's rows and is read twice, ``masks`` of activations kept for the gradient,
    what combines several arrays where that moves more bytes or XLA forbids it (``duplicated``), and what is ``shared``,
    as parts are that products do not cut out for themselves (``cuts_parts``). So is the gradient of scores of heads
    that share their keys, unless products repeat it (``repeats_scores``). What follows a product and is its only reader
    is computed with it, and written instead of it; on a GPU (``is_gpu``) as ``libraries`` says. What is put together is
    so by what reads it where that ``pads``.
    """
    found = [] if is_gpu else list(softmaxes(graph, uses))
    again = _made(graph, {each.source for each in found if each.is_again})
    written = {n for n in range(len(graph.ops)) if _is_written(graph, uses, n, again, cuts_parts, is_gpu, pads)} | masks
    written |= multiplied(graph, uses) if is_gpu else set[int]()
    written.update(shared)
    written |= grouped(graph, uses)
    written |= set() if is_gpu else set(sent_products(graph, uses))
    written |= set(put_together(graph, uses, written))
    tight = found if 0 < near_bytes < NEAR_BYTES else []
    written.update(*(shares(graph, uses, each) for each in tight if each.is_shared))
    windowed = [each for each in found if each.windowed] if near_bytes else []
    written |= (kept := {each.exponentials for each in windowed})
    written.difference_update(*(each.windowed for each in windowed))
    closed = frozenset(each.written for each in windowed if each.written is not None)
    written |= closed
    sharing = [each for each in found if each.is_grouped and not _repeats(repeats_scores, each)]
    again -= _made(graph, {each.source for each in windowed})
    apart = _made(graph, kept | {each.source for each in tight if each.is_apart} | {each.source for each in sharing})
    combined, sources = _combined(graph, uses, written, apart, again - apart, near_bytes > 0)
    written |= combined
    written |= not_on_all_ways(graph, uses, written)
    written |= dearer_in_passing(graph, uses, written, sources)
    taken: set[int] = set()
    for number in sorted((n for n in written if graph.ops[n].kind in PRODUCTS), reverse=True):
        _move_behind(graph, uses, number, written, taken, is_gpu=is_gpu)
    return written, closed


def _repeats(repeated: str, softmax: Softmax) -> bool:
    """Whether products compute the gradient of these scores for themselves, of heads that share keys."""
    return repeated == "all" or (repeated == "wide" and not softmax.is_narrow)


def _stacks(graph: Graph) -> Iterator[int]:
    """What a loop's turn is given to take its own part of, as gradients take what a scan's forward pass has kept."""
    given = frozenset(graph.arguments)
    for op in graph.of_kind("dynamic_slice"):
        stack = op.operands[0]
        if stack in given and graph.shape(op.results[0]) == (1, *graph.shape(stack)[1:]):
            yield stack


def _made(graph: Graph, numbers: Collection[int]) -> frozenset[int]:
    return frozenset(graph.ops[number].results[0] for number in numbers)


def _is_written(
    graph: Graph, uses: Uses, number: int, again: frozenset[int], cuts_parts: bool, is_gpu: bool, pads: bool
) -> bool:
    op, ops = graph.ops[number], graph.ops
    kind = op.kind
    if kind == CONSTANT:
        return False
    if kind not in IN_PASSING or (kind == "pad" and stands_alone(op)) or not uses.results.isdisjoint(op.results):
        return True
    if APART in op.attributes or NORMED in op.attributes or (not is_gpu and is_interleaved(graph, uses, op)):
        return True
    if _is_taken_in_step(graph, uses, op):
        return False
    for number_of, position in _readers(graph, uses, op):
        reader = ops[number_of]
        is_taken = reader.kind in ELEMENTWISE or takes(graph, reader, position, op)
        if kind == JOIN and reader.kind not in PRODUCTS:
            is_taken &= pads and is_padded(graph, op, len(uses.after[op.results[0]]))
        is_taken |= is_gpu and is_passed(op, reader)
        if not is_taken or (BEHIND in reader.attributes and _is_read_there(reader, op)):
            return True
    if not is_gpu and (is_convolved_part(graph, uses, op) or is_rounded_image(graph, uses, op)):
        return True
    readers = uses.readers[op.results[0]]
    if is_gpu or (len(readers) == 1 and ops[readers[0][0]].kind not in VIEWS):
        return False  # nothing shares it
    shared = is_shared_shift(graph, uses, op) or _is_taken_apart(graph, uses, op)
    shared = shared or is_shared_part(graph, uses, op, cuts_parts)
    return shared or (is_shared_operand(graph, uses, op) and not _joins(graph, uses, number, again))


def _is_taken_in_step(graph: Graph, uses: Uses, op: Op) -> bool:
    """Whether one operation alone reads it, number by number: that computes it, as most are."""
    after = uses.after[op.results[0]]
    if len(after) != 1 or op.kind == JOIN:
        return False
    reader = graph.ops[after[0]]
    return reader.kind in ELEMENTWISE and reader.kind != CONVERT and BEHIND not in reader.attributes


def _is_read_there(reader: Op, op: Op) -> bool:
    """Whether what an operation makes is read where it lies, by what reads behind a barrier."""
    return not dict(reader.attributes[BEHIND]).keys().isdisjoint(op.results)


def _joins(graph: Graph, uses: Uses, number: int, scores: frozenset[int]) -> bool:
    """Whether an operation brings one of these scores together with another array of its size, number by number, for
    products of batches over two dims or more.
    """
    if not scores or any(
        batch_dims(graph, op) < MATRIX_RANK for op, _ in beyond_views(graph, uses, graph.ops[number].results[0])
    ):
        return False
    size = graph.values[graph.ops[number].results[0]].num_elements
    waiting, seen, ends = [number], {number}, set[int]()
    while waiting:
        for value in graph.ops[waiting.pop()].operands:
            maker = uses.makers.get(value)
            if graph.values[value].num_elements != size or maker in seen:
                continue
            if maker is None or graph.ops[maker].kind not in STEPWISE | SPREAD:
                ends.add(value)
            elif graph.ops[maker].kind in STEPWISE:
                seen.add(maker)
                waiting.append(maker)
    return len(ends) > 1 and not ends.isdisjoint(scores)


def _is_taken_apart(graph: Graph, uses: Uses, op: Op) -> bool:
    """Whether several take every second of its numbers, as each level of an associative scan does of the last one's:
    levels computed in passing would compute all before them twice.
    """
    if op.kind not in ELEMENTWISE:
        return False
    slices = (graph.ops[reader] for reader in uses.next_ops(op.results[0]))
    apart = [
        each for each in slices if each.kind == "slice" and max(each.attributes.get("strides", (1,)), default=1) > 1
    ]
    return len(apart) > 1


def _readers(graph: Graph, uses: Uses, op: Op) -> Sequence[tuple[int, int]]:
    """What reads an operation's result as it is, and the products that read it made wider."""
    readers = uses.readers[op.results[0]]
    if op.kind in VIEWS or uses.conversions.isdisjoint(uses.after[op.results[0]]):
        return readers
    more = [uses.readers[graph.ops[n].results[0]] for n, _ in readers if widens(graph, graph.ops[n])]
    return [*readers, *(read for wider in more for read in wider if graph.ops[read[0]].kind in PRODUCTS)]


def _combined(
    graph: Graph, uses: Uses, written: set[int], apart: frozenset[int], again: frozenset[int], keeps_near: bool
) -> tuple[set[int], dict[int, set[int]]]:
    """Operations that bring together several arrays of their own size from memory, for two batches of products or more,
    which read half the bytes, but for what something pads; and where what lies ``apart`` is read, but not where that is
    what a gradient computes ``again``. What is sent is there for one that reads it besides, though it is sent rounded.
    Also, by value, the arrays in memory that others are made of.
    """
    sources: dict[int, set[int]] = {}
    reads, values, stacks = _reads(graph, uses, written), graph.values, frozenset(_stacks(graph))
    found, padded = set(), set[int]()
    for number, op in enumerate(graph.ops):
        if number in written or op.kind == CONSTANT:
            continue
        result = op.results[0]
        size = values[result].num_elements
        here = set[int]()
        for operand in op.operands:
            near = sources.get(operand)
            if near is not None and values[operand].num_elements == size:
                here |= near  # each is large enough
                continue
            for v in _source(graph, uses, operand) if near is None else near:
                if 2 * values[v].num_elements >= size:
                    here.add(v)
        if (op.kind == "pad" and not keeps_shape(graph, op)) or not padded.isdisjoint(op.operands):
            padded.add(result)
        sources[result] = here
        if len(here) > 1 and op.kind in ELEMENTWISE and reads[result] >= MANY_PRODUCTS and not widens(graph, op):
            narrow = result not in padded and again.isdisjoint(here) and _is_for_batches(graph, uses, result)
            is_kept = values[result].dtype == NARROW and not stacks.isdisjoint(here)
            lies = is_kept or not apart.isdisjoint(here)
            narrow = narrow and is_only_multiplied(graph, uses, result, keeps_near, apart=lies)
            if narrow or _is_sent(graph, uses, result):
                found.add(number)
                del sources[result]
    return found, sources


def _is_for_batches(graph: Graph, uses: Uses, value: int) -> bool:
    return any(op.kind in PRODUCTS and batch_dims(graph, op) for op, _ in beyond_views(graph, uses, value))


def _is_sent(graph: Graph, uses: Uses, value: int) -> bool:
    return any(SENT in graph.ops[reader].attributes for reader in uses.next_ops(value))


def _reads(graph: Graph, uses: Uses, written: set[int]) -> dict[int, int]:
    """How many kernels read what each elementwise operation makes if what is computed of it alone is in passing."""
    reads: dict[int, int] = {}
    handed_on: dict[int, int] = {}
    for number in range(len(graph.ops) - 1, -1, -1):
        op = graph.ops[number]
        if op.kind not in STEPWISE:
            continue
        (value,) = op.results
        reads[value] = sum([handed_on.get(reader) or 1 for reader in uses.after[value]])
        if reads[value] > 1 and number not in written and (op.kind in VIEWS or _is_alone(graph, uses, op)):
            handed_on[number] = reads[value]
    return reads


def _is_alone(graph: Graph, uses: Uses, op: Op) -> bool:
    """Whether an elementwise operation reads one array and what is spread over it."""
    makers = [uses.makers.get(value) for value in set(op.operands)]
    return sum(maker is None or graph.ops[maker].kind not in SPREAD for maker in makers) == 1


def _source(graph: Graph, uses: Uses, value: int) -> set[int]:
    maker = uses.makers.get(value)
    return set() if maker is not None and is_constant(graph.ops[maker]) else {value}


def _move_behind(graph: Graph, uses: Uses, product: int, written: set[int], taken: set[int], *, is_gpu: bool) -> None:
    """Follows what alone reads a product, and alone reads that, and writes the last of it instead of the product."""
    last, passed = product, set[int]()
    while (after := _only_reader(graph, uses, last)) is not None and after not in taken:
        if is_gpu and not ends_product(graph.ops[after]):
            break
        passed.add(last)
        last = after
    joined = None if is_gpu else rejoined(graph, uses, last)
    if joined is not None and taken.isdisjoint((*joined.ways, joined.end)):
        passed |= {last, *joined.ways}
        last = joined.end
    taken |= passed | {last}
    written -= passed
    written.add(last)


def _only_reader(graph: Graph, uses: Uses, number: int) -> int | None:
    (result, *more) = graph.ops[number].results
    readers = uses.next_ops(result)
    if more or len(readers) != 1 or result in uses.results:
        return None
    after = graph.ops[readers[0]]
    same_size = graph.values[after.results[0]].num_elements == graph.values[result].num_elements
    if after.kind == "slice":
        return None if is_thin_matrix(graph, result) else readers[0]
    return readers[0] if after.kind in ELEMENTWISE | VIEWS and same_size and not widens(graph, after) else None
