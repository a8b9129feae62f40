"""Kernels cut where a plan pins what they compute: the pinned value may be made in one layout and read in others.

What is simply computed before it is a kernel that the others compute in passing, as for products (``passing``). What
takes a product or a sum to make is a kernel of its own, and so is what comes after it; the two run as one where the
value is made and read as it is pinned (``whole``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...graph import Graph
from ...kernels import Kernel, Program
from .passing import SIMPLE, own_ops, own_reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A kernel that was cut at a ``value``: what makes it, what comes after it, and both as they run ``whole``."""

    value: int
    before: Kernel
    after: Kernel
    whole: Kernel

    def multiplied(self, graph: Graph) -> frozenset[int]:
        """What is read for the products and sums that make the value."""
        heavy = [graph.ops[number] for number in self.before.ops if graph.ops[number].kind not in SIMPLE]
        operands = tuple(dict.fromkeys(value for op in heavy for value in op.operands))
        reads = own_reads(graph, replace(self.before, writes=operands))
        return frozenset((*reads, *(value for value in operands if value in self.before.reads)))


@dataclass(slots=True)
class Cuts:
    """What became of kernels: those that others compute in ``passing``, by their ids, the values that were ``seen``
    inside of kernels that were cut, by these kernels' ids, and by the program's graph's id each ``cut`` and the values
    that are ``apart``, which are not written but where they are brought into another layout.
    """

    passing: dict[int, Kernel] = field(default_factory=dict)
    seen: dict[int, tuple[Kernel, frozenset[int]]] = field(default_factory=dict)
    cut: dict[int, list[Cut]] = field(default_factory=dict)
    apart: dict[int, set[int]] = field(default_factory=dict)

    @property
    def joined(self) -> dict[int, set[int]]:
        """The values that kernels are cut at, by the program's graph's id."""
        return {graph: {each.value for each in several} for graph, several in self.cut.items()}

    @property
    def first(self) -> set[int]:
        """The ids of what makes the values that kernels are cut at."""
        return {id(each.before) for several in self.cut.values() for each in several}


def with_pins_apart(program: Program, paths: Collection[str], cuts: Cuts, kept: Collection[int]) -> Program:
    """The program with the kernels cut at what has one of these paths; those with ids in ``kept`` stay."""
    if not paths:
        return program
    graph, kernels = program.graph, list[Kernel]()
    pinned = {value for op in graph.ops for value, path in op.named if path in paths and graph.values[value].shape}
    cutting = _Cutting(graph, pinned, cuts)
    for kernel in program.kernels:
        if kernel.bodies:
            bodies = tuple(with_pins_apart(body, paths, cuts, kept) for body in kernel.bodies)
            kernels.append(replace(kernel, bodies=bodies))
        elif id(kernel) in kept:
            kernels.append(kernel)
        else:
            kernels += cutting.parts(kernel)
    return replace(program, kernels=tuple(kernels))


@dataclass(frozen=True, slots=True)
class _Cutting:
    graph: Graph
    pinned: set[int]
    cuts: Cuts

    def parts(self, kernel: Kernel, cut_at: Collection[int] = ()) -> Iterator[Kernel]:
        """A kernel in parts, in order, what comes after values that it was ``cut_at`` before: what is made of those is
        a part of its own, however simple.
        """
        apart = self.cuts.apart.setdefault(id(self.graph), set())
        inside = self._inside(kernel)
        heads = {value: self._part(kernel, (value,)) for value in inside if value not in kernel.writes}
        simple = [v for v, head in heads.items() if self._is_simple(head.ops) and not {*cut_at} & {*head.reads}]
        for value in simple:
            if value not in apart:
                head = self._part(kernel, (value,))
                apart.add(value)
                self.cuts.passing[id(head)] = head
                yield head
            kernel = self._handed(kernel, value)
        inside = self._inside(kernel)  # what only those read that are apart now needs no cut
        heavy = next((value for value in inside if value not in simple), None)
        if heavy is None:
            yield kernel
            return
        left = self._left(kernel, heavy)
        before, after = self._part(kernel, left), self._rest(kernel, left)
        apart.update(left)
        whole = self._seeing(replace(kernel), (*self._seen(kernel), *left))
        self.cuts.cut.setdefault(id(self.graph), []).append(Cut(value=heavy, before=before, after=after, whole=whole))
        yield before
        yield from self.parts(after, (*cut_at, *left))

    def _inside(self, kernel: Kernel) -> list[int]:
        """What is pinned of what a kernel leaves nowhere, or reads itself, but for what is filled with a number."""
        ops = [self.graph.ops[number] for number in own_ops(self.graph, kernel)]
        made = [v for op in ops if any(self.graph.values[each].shape for each in op.operands) for v in op.results]
        read = {value for op in ops for value in op.operands}
        return [value for value in made if value in self.pinned and (value in read or value not in kernel.writes)]

    def _left(self, kernel: Kernel, value: int) -> tuple[int, ...]:
        """What the part of a kernel leaves that makes a value: that, what the kernel writes of it, and what takes a
        product or a sum to make and is read after it too.
        """
        ops = set(self._part(kernel, (value,)).ops)
        made = {each for number in ops for each in self.graph.ops[number].results}
        left = list(dict.fromkeys((value, *(each for each in kernel.writes if each in made))))
        while True:
            after = self._rest(kernel, left)
            again = [number for number in after.ops if number in ops and not self._is_simple((number,))]
            if not again:
                return tuple(left)
            left += (each for number in again for each in self.graph.ops[number].results)

    def _part(self, kernel: Kernel, writes: Sequence[int]) -> Kernel:
        """What of a kernel makes some values. What it computes in passing it still has among its operations."""
        made = {value for number in kernel.ops for value in self.graph.ops[number].results}
        whole = replace(kernel, reads=tuple(each for each in kernel.reads if each not in made), writes=tuple(writes))
        ops, own = own_ops(self.graph, whole), replace(kernel, writes=tuple(writes))
        reads = dict.fromkeys((*own_reads(self.graph, own), *own_reads(self.graph, whole)))
        return self._seeing(replace(own, ops=ops, reads=tuple(reads)), self._seen(kernel))

    def _rest(self, kernel: Kernel, left: Sequence[int]) -> Kernel:
        """What comes after a part of a kernel that leaves these values."""
        writes = tuple(each for each in kernel.writes if each not in left)
        after = replace(kernel, reads=tuple(dict.fromkeys((*kernel.reads, *left))), writes=writes)
        return replace(after, ops=own_ops(self.graph, after), reads=own_reads(self.graph, after))

    def _handed(self, kernel: Kernel, value: int) -> Kernel:
        """A kernel that may be handed a value that it would else compute in passing."""
        handed = replace(kernel, reads=tuple(dict.fromkeys((*kernel.reads, value))))
        if id(kernel) in self.cuts.passing:
            self.cuts.passing[id(handed)] = handed
        return self._seeing(handed, (*self._seen(kernel), value))

    def _is_simple(self, ops: Collection[int]) -> bool:
        return {self.graph.ops[number].kind for number in ops} <= SIMPLE

    def _seen(self, kernel: Kernel) -> Collection[int]:
        return self.cuts.seen.get(id(kernel), (kernel, frozenset[int]()))[1]

    def _seeing(self, kernel: Kernel, values: Collection[int]) -> Kernel:
        """The kernel, whose strategies are told apart by how these values lie."""
        if values:
            self.cuts.seen[id(kernel)] = kernel, frozenset(values)
        return kernel
