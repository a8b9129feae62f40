"""What chips compute later that run much beside what is sent: gradients of weights.

v5e and v6e order kernels so that what is sent travels beside products. A product that nothing but the update waits for
is kept for the end, to run beside what is sent there: what it multiplies lives as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...chip import Chip
from ...kernels import Kernel, Program
from ...kinds import ALL_REDUCE, KINDS
from ..flow.flow import Flow

LEAST_NEAR_BYTES = 64 << 20
PRODUCTS = frozenset({"dot_general", "convolution"})


def defers(chip: Chip | None) -> bool:
    """Whether a chip keeps such products for the end, and what gradients of tables are copied for: of those seen, the
    two with most memory near, and that whose sums other cores make (there the order is ``hidden``'s own).
    """
    return chip is not None and (chip.offloads_collectives or chip.buffer_vmem_bytes > LEAST_NEAR_BYTES)


def deferred(program: Program, flow: Flow, order: Sequence[int]) -> list[int]:
    """The order with the products behind the last loop that only what comes after it needs, and what needs those.

    Unless nothing is sent after the loop but sums over devices, which run alone.
    """
    if not program.graph.nesting:
        return list(order)
    kinds = [{program.graph.ops[op].kind for op in kernel.ops} for kernel in program.kernels]
    last = max((p for p, k in enumerate(order) if _is_loop(program, program.kernels[k])), default=None)
    if last is None:
        return list(order)
    sent = {kind for k in order[last + 1 :] for kind in kinds[k]}.intersection(KINDS)
    if sent <= {ALL_REDUCE}:
        return list(order)
    free = set(_free(program, flow, order, last))
    summed = {flow.maker[value] for k, found in enumerate(kinds) if ALL_REDUCE in found for value in flow.operands[k]}
    late = set[int]()
    for k in order[:last]:
        waits = program.kernels[k].bodies or (kinds[k] & PRODUCTS and k not in summed)
        if k in free and (waits or any(flow.maker[value] in late for value in flow.operands[k])):
            late.add(k)
    kept = [k for k in order[: last + 1] if k not in late]
    return [*kept, *(k for k in order[:last] if k in late), *order[last + 1 :]]


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
    return loop.kind == "while" and not any(body.goes_round for body in loop.bodies)
