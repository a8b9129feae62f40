"""What chips compute later or earlier that run much beside what is sent: gradients of weights, and of picked labels.

v5e and v6e order kernels so that what is sent travels beside products. A product that nothing but the update waits for
is kept for the end, to run beside what is sent there: what it multiplies lives as long. What labels alone decide comes
first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..chip import Chip
from ..graph import Graph
from ..kernels import Kernel, Program
from ..kinds import ALL_GATHER, ALL_REDUCE, KINDS
from .flow import Flow

LEAST_NEAR_BYTES = 64 << 20
PRODUCTS = frozenset({"dot_general", "convolution"})
WHOLE_NUMBERS, MANY_TIMES = frozenset("su"), 32
LATER = PRODUCTS.union(KINDS, {"while"})


def defers(chip: Chip | None) -> bool:
    """Whether a chip keeps such products for the end: of those seen, the two with most memory near, and that whose sums
    other cores make.
    """
    return chip is not None and (chip.offloads_collectives or chip.buffer_vmem_bytes > LEAST_NEAR_BYTES)


def deferred(program: Program, flow: Flow, order: Sequence[int], *, beside_sums: bool = False) -> list[int]:
    """The order with the products behind the last loop that only what comes after it needs, and what needs those.

    Unless sums over all devices are all that is sent after the loop, which run alone: ``beside_sums`` says that they do
    not, and then whatever the loop does not need waits for it.
    """
    kinds = [{program.graph.ops[op].kind for op in kernel.ops} for kernel in program.kernels]
    last = max((p for p, k in enumerate(order) if _is_loop(program, program.kernels[k])), default=None)
    if last is None:
        return list(order)
    sent = {kind for k in order[last + 1 :] for kind in kinds[k]}.intersection(KINDS)
    if sent == {ALL_REDUCE} and not beside_sums:
        return list(order)
    free = set(_free(program, flow, order, last))
    late = set[int]()
    for k in order[:last]:
        waits = beside_sums or program.kernels[k].bodies or kinds[k] & PRODUCTS
        if k in free and (waits or any(flow.maker[value] in late for value in flow.operands[k])):
            late.add(k)
    kept = [k for k in order[: last + 1] if k not in late]
    return [*kept, *(k for k in order[:last] if k in late), *order[last + 1 :]]


def advanced(program: Program, flow: Flow, order: Sequence[int]) -> list[int]:
    """The order with what spreads the batch's whole numbers first, where something is gathered beside which it can run.

    The gradient of picking one number of each row is such: it depends on nothing else, and is as large as the rows.
    """
    graph = program.graph
    kinds = [{graph.ops[op].kind for op in kernel.ops} for kernel in program.kernels]
    if not any(ALL_GATHER in here for here in kinds):
        return list(order)
    needed: list[frozenset[int] | None] = []  # by those alone that need nothing that comes later
    early = set[int]()
    for kernel, values in enumerate(flow.operands):
        before = [needed[flow.maker[value]] for value in values]
        alone = kinds[kernel].isdisjoint(LATER) and None not in before
        mine = frozenset({kernel}).union(*(each for each in before if each is not None)) if alone else None
        needed.append(mine)
        if mine is not None and _spreads_numbers(graph, program.kernels[kernel]):
            early |= mine
    return [*(k for k in order if k in early), *(k for k in order if k not in early)]


def _spreads_numbers(graph: Graph, kernel: Kernel) -> bool:
    """Whether it makes much of few whole numbers, and of single ones."""
    read = [graph.values[value] for value in kernel.reads if graph.values[value].num_elements > 1]
    made = sum(graph.values[value].num_bytes for value in kernel.writes)
    whole = all(value.dtype[0] in WHOLE_NUMBERS for value in read)
    return bool(read) and whole and made > MANY_TIMES * sum(value.num_bytes for value in read)


def _free(program: Program, flow: Flow, order: Sequence[int], last: int) -> Iterator[int]:
    """The kernels before a point whose results nothing up to it needs, but for others of them."""
    needed = {value for k in order[last : last + 1] for value in flow.operands[k]}
    for k in reversed(order[:last]):
        if needed.isdisjoint(flow.made[k]) and not _is_loop(program, program.kernels[k]):
            yield k
        else:
            needed.update(flow.operands[k])


def _is_loop(program: Program, kernel: Kernel) -> bool:
    """Whether it repeats part of the step, and is no product whose parts go round."""
    loop = program.graph.ops[kernel.ops[-1]]
    inside = [op for body in loop.bodies for op in body.ops]
    goes_round = any(op.attributes.get("around") for op in inside) and not any(op.kind == loop.kind for op in inside)
    return loop.kind == "while" and not goes_round
