"""Orders in which kernels may run, as XLA's memory schedulers find them (``hlo_memory_scheduler.cc``)."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from ..flow.flow import Flow

SCALAR = 1 << 62


def needed(flow: Flow) -> Sequence[tuple[int, ...]]:
    """The values that must be there before each kernel runs."""
    return [(*own, *more) for own, more in zip(flow.operands, flow.after, strict=True)] if flow.after else flow.operands


def users(flow: Flow, operands: Sequence[tuple[int, ...]] | None = None) -> list[list[int]]:
    """The kernels that read what each kernel makes, in order; ``operands`` is what each takes, the flow's by itself."""
    found: list[list[int]] = [[] for _ in flow.operands]
    maker = flow.maker
    for kernel, values in enumerate(flow.operands if operands is None else operands):
        for earlier in dict.fromkeys([maker[value] for value in values]):
            found[earlier].append(kernel)
    return found


class _ListOrder:
    """XLA's list scheduler: next comes the ready kernel that frees most bytes less those that it defines.

    What makes a single number comes before all else (``GetPriority``: scalars stay together, in registers). Among
    equals, the one with more users, then the one that became ready last.
    """

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.users = users(flow)
        self.waits = [len({flow.maker[value] for value in values}) for values in needed(flow)]
        self.followers = users(flow, needed(flow)) if flow.after else self.users
        self.uses: dict[int, int] = dict.fromkeys(flow.num_bytes, 0)
        self.readers: dict[int, list[int]] = {buffer: [] for buffer in flow.num_bytes}
        for kernel, buffers in enumerate(flow.reads):
            for buffer in buffers:
                self.uses[buffer] += 1
                self.readers[buffer].append(kernel)
        for buffer in flow.held:
            self.uses[buffer] += 1
        self.heap: list[tuple[int, int, int, int]] = []
        self.priority: dict[int, int] = {}
        self.arrivals = 0

    def run(self) -> list[int]:
        """The order."""
        for kernel in dict.fromkeys([*self.waiting_for_none(), *self.flow.arriving]):
            if not self.waits[kernel]:
                self.push(kernel)
        order: list[int] = []
        while self.heap:
            least, _, _, kernel = heapq.heappop(self.heap)
            if self.priority.get(kernel) == -least:
                del self.priority[kernel]
                order.append(kernel)
                self.leave(kernel)
        return order

    def waiting_for_none(self) -> list[int]:
        """The kernels that read no argument."""
        arriving = set(self.flow.arriving)
        return [kernel for kernel in range(len(self.waits)) if kernel not in arriving]

    def push(self, kernel: int) -> None:
        """Puts a kernel among the ready ones, or anew if what it frees has changed."""
        freed = self.freed(kernel)
        if self.priority.get(kernel) != freed:
            self.priority[kernel] = freed
            self.arrivals += 1
            heapq.heappush(self.heap, (-freed, -len(self.users[kernel]), -self.arrivals, kernel))

    def freed(self, kernel: int) -> int:
        """Bytes freed less bytes defined; a loop defines what its body needs."""
        flow = self.flow
        if flow.scalar[kernel]:
            return SCALAR
        num_bytes, uses = flow.num_bytes, self.uses
        freed = sum([num_bytes[b] for b in flow.reads[kernel] if uses[b] == 1])
        return freed - (flow.inside[kernel] or sum([num_bytes[b] for b in flow.writes[kernel]]))

    def leave(self, kernel: int) -> None:
        """Counts down what a kernel has read, and lets those follow that waited for it."""
        changed = []
        for buffer in self.flow.reads[kernel]:
            self.uses[buffer] -= 1
            if self.uses[buffer] == 1:
                changed.append(buffer)
        for user in self.followers[kernel]:
            self.waits[user] -= 1
            if not self.waits[user]:
                self.push(user)
        for buffer in changed:
            for reader in self.readers[buffer]:
                if reader in self.priority:
                    self.push(reader)


def list_order(flow: Flow) -> list[int]:
    """The order of XLA's list scheduler."""
    return _ListOrder(flow).run()


def depth_first_order(flow: Flow, written: Sequence[int] | None = None) -> list[int]:
    """Post-order from the results back: operands with more users below them come first, then those with more bytes.

    ``written`` is ``post_order``'s, where that is known.
    """
    weights = _weights(flow, post_order(flow) if written is None else written)
    operands = [sorted(values, key=weights.__getitem__) for values in needed(flow)]
    return _post_order(flow, operands, sorted(flow.results, key=weights.__getitem__))


def post_order(flow: Flow) -> list[int]:
    """Post-order from the results back, operands as they are written, what else must be there before these."""
    first = (
        [(*reversed(more), *own) for own, more in zip(flow.operands, flow.after, strict=True)] if flow.after else None
    )
    return _post_order(flow, first or flow.operands, flow.results)


def _weights(flow: Flow, order: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Of each value, the users beyond the first of all that it is made from, and their bytes, both negated.

    A kernel of several results has these for users, and each of them its readers; whatever is reached on several ways
    counts on each, up to the number of instructions and the bytes made so far in post-order.
    """
    readers = Counter(chain.from_iterable(flow.operands))
    readers.update(flow.results)
    weights: dict[int, tuple[int, int]] = {}
    limit, most = 0, _instructions(flow)
    for kernel in order:
        values = flow.operands[kernel]
        written = sum([flow.num_bytes[buffer] for buffer in flow.writes[kernel]])
        limit += written
        fan, total = len(flow.made[kernel]) - 1, written
        for value in values:
            users, num_bytes = weights[value]
            fan -= users
            total -= num_bytes
        total = min(limit, total)
        for value in flow.made[kernel]:
            beyond = max(0, readers[value] - 1)
            weights[value] = (-min(most, fan + beyond), -total)
    return weights


def _instructions(flow: Flow) -> int:
    """How many instructions the compiler has of it: kernels, each of several results of one, arguments and the end."""
    return 1 + len(flow.operands) + len(flow.touches) + sum([len(made) for made in flow.made if len(made) > 1])


def _post_order(flow: Flow, operands: Sequence[Sequence[int]], ends: Sequence[int]) -> list[int]:
    seen, order, maker = set[int](), list[int](), flow.maker
    rest = [value for made in flow.made for value in made[:1]]
    stack = [maker[value] for value in [*reversed(rest), *reversed(ends)]]
    while stack:
        kernel = stack.pop()
        if kernel < 0:  # all that it needs has been
            order.append(~kernel)
        elif kernel not in seen:
            seen.add(kernel)
            stack.append(~kernel)
            stack += [maker[value] for value in reversed(operands[kernel])]
    return order
