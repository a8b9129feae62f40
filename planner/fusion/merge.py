"""Groups that go through the same elements become one: it reads once what both read, and need not write what one hands
to the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ..graph import Graph, Op
from ..images import CONVOLUTION
from .group import Group
from .joint import Joint, wait_for_all
from .libraries import is_row
from .narrow import KEEPING
from .nature import CONVERT, ELEMENTWISE, PRODUCTS, REDUCE, UPDATE
from .totals import add_up_alike
from .uses import Uses

PARTED = ELEMENTWISE | {"slice", "reshape", "broadcast_in_dim"}
"""What takes parts of a value side by side, as both ways around a ring add what one product made."""

CUT = frozenset({"slice", CONVERT})
READERS = 64
"""What more kernels read than this is not looked through for pairs of them."""

WORD_BITS = 32
SUBLANES = 8


class Merging:
    """Groups by number, which of them makes each value and which ones read it, as they are merged.

    ``by_rows``: what rows are reduced to is handed to what goes through the rows again (``libraries``). Convolutions
    and products make bits of ``packed`` values besides, which is a reduction: they take no other. What reads one of
    what sums make that are ``joint`` waits for all of them.
    """

    def __init__(
        self,
        graph: Graph,
        uses: Uses,
        found: list[Group],
        *,
        by_rows: bool = False,
        packed: frozenset[int] = frozenset(),
        joint: Joint = (),
    ) -> None:
        self.graph, self.uses, self.by_rows, self.packed = graph, uses, by_rows, packed
        self.groups: dict[int, Group] = dict(enumerate(found))
        self.maker = {v: n for n, group in self.groups.items() for root in group.roots for v in graph.ops[root].results}
        self.readers: defaultdict[int, set[int]] = defaultdict(set)
        self.waiting: defaultdict[int, set[int]] = defaultdict(set)  # what waits for each value without reading it
        for number, group in self.groups.items():
            for value in group.reads:
                self.readers[value].add(number)
            for value in group.waits:
                self.waiting[value].add(number)
        maker = self.maker
        self.needs = {
            n: {maker[v] for v in (g.reads | g.waits if g.waits else g.reads) if v in maker}
            for n, g in self.groups.items()
        }
        order = wait_for_all(joint, maker, self.needs) if joint else list(self.groups)
        self.bits = [1 << number for number in self.groups]  # of a group, and of those that became part of it
        self.home = list(self.groups)  # the group that each is or became part of
        self.above = [0] * len(order)  # all that a group needs, directly or not: its bits
        for number in order:
            needed = 0
            for each in self.needs[number]:
                needed |= self.above[each] | 1 << each
            self.above[number] = needed
        self.below = [0] * len(order)  # all that need it
        for number in reversed(order):
            needed = self.below[number] | 1 << number
            for each in self.needs[number]:
                self.below[each] |= needed

    def run(self) -> list[Group]:
        """The groups after all merges."""
        for number, group in list(self.groups.items()):
            if group.open:
                self._hand_on(number)
        for value in list(self.readers):
            self._share(value)
        return list(self.groups.values())

    def _hand_on(self, number: int) -> None:
        """Merges a group with those that read what it makes."""
        merged = True
        while merged and number in self.groups:
            merged = any(self._merge(number, reader) for reader in self._reading(number))

    def _reading(self, number: int) -> list[int]:
        group = self.groups[number]
        if not group.open:
            return []
        made = (value for root in group.roots for value in self.graph.ops[root].results)
        found = {r for v in made if v in self.readers and self._is_handed_on(v, group) for r in self.readers[v]}
        groups, space = self.groups, group.space
        return sorted([r for r in found if r != number and groups[r].open and groups[r].space == space])

    def _share(self, value: int) -> None:
        """Merges what goes through a value side by side: reductions of it, and chains that read nothing else."""
        found = self.readers.get(value, ())
        if len(found) < 2 or len(found) > READERS:
            return
        groups = self.groups
        numbers = [number for number in sorted(found) if self._goes_through(value, groups[number])]
        for position, first in enumerate(numbers):
            for second in numbers[position + 1 :]:
                alive = first in groups and second in groups and groups[first].space == groups[second].space
                alike = alive and self._read_alike(value, first, second) and self._add_up_alike(value, first, second)
                if alike and not self._is_awaited(first, second):
                    self._merge(first, second)

    def _add_up_alike(self, value: int, first: int, second: int) -> bool:
        return add_up_alike(self.graph, self.uses, value, self.groups[first], self.groups[second])

    def _is_awaited(self, first: int, second: int) -> bool:
        """Whether one of two groups computes in passing what the other makes, and reads besides what is made of that:
        it does not leave it then, though what it reads has it computed anew. A loss is of scores that are looked up at
        places which its mask is of, and which the gradient reads (seen on v3, v4 and v5e).
        """
        one, other = self.groups[first], self.groups[second]
        return any(
            self._is_made_of(reader.reads, passed)
            for reader, maker in ((one, other), (other, one))
            for passed in reader.ops & maker.roots - reader.roots
        )

    def _is_made_of(self, values: set[int], first: int) -> bool:
        """Whether values are made of what an operation makes; operations stand behind what they need."""
        makers, ops = self.uses.makers, self.graph.ops
        waiting = [makers[value] for value in values if makers.get(value, -1) >= first]
        seen = set(waiting)
        for number in waiting:
            found = {makers[value] for value in ops[number].operands if makers.get(value, -1) >= first} - seen
            seen |= found
            waiting += found
        return first in seen

    def _goes_through(self, value: int, group: Group) -> bool:
        """Whether a group goes through all of a value, or takes slices of it: into a stack that it updates in place, or
        to compute with them number by number.
        """
        if not group.open or group.products:
            return False
        return self._is_whole(value, group) or self._is_sliced(value, group)

    def _stacks(self, group: Group) -> set[int]:
        """What a group updates in place."""
        updates = (self.graph.ops[root] for root in group.roots)
        return {op.operands[0] for op in updates if op.kind == UPDATE}

    def _is_sliced(self, value: int, group: Group) -> bool:
        kinds = {self.graph.ops[reader].kind for reader, _ in self.uses.readers[value] if reader in group.ops}
        return kinds == {"slice"}

    def _read_alike(self, value: int, first: int, second: int) -> bool:
        """Whether two groups reduce, or one reads nothing that the other does not read, single numbers aside; and what
        is spread over what they go through, where both only compute with it.

        What one reads from behind a barrier is not what the other reads before it, and stacks into which slices of a
        value are put are not read, nor are those of what is computed of wide values: exponentials and shares of a
        softmax are stacked by one kernel if the scores are wide, by two if they are narrow (v4, v5e and v6e).
        """
        one, other = self.groups[first], self.groups[second]
        if one.waits != other.waits:
            return False
        sliced = not (self._is_whole(value, one) or self._is_whole(value, other))
        computed = self._is_wide(value) and self._computes(one) and self._computes(other)
        stacks = self._stacks(one) | self._stacks(other) if sliced or computed else set[int]()
        if sliced and not stacks:
            return self._are_parts(value, one, other)
        apart = (one.reads - other.reads - stacks, other.reads - one.reads - stacks)
        if (one.reduces and other.reduces) or any(map(self._are_single, apart)):
            return True
        return self._are_spread(*apart, one.space) and self._computes_alone(one) and self._computes_alone(other)

    def _are_parts(self, value: int, one: Group, other: Group) -> bool:
        """Whether two groups compute number by number with parts of what a product makes, each with one of its own, or
        the first only cuts out, for lookups, what the other reduces.
        """
        maker = self.groups.get(self.maker.get(value, -1))
        kinds, more = ({self.graph.ops[number].kind for number in group.ops} for group in (one, other))
        alike = kinds | more <= PARTED or (kinds <= CUT and other.reduces and one.reads <= other.reads)
        return maker is not None and bool(maker.products) and alike

    def _is_wide(self, value: int) -> bool:
        return self.graph.values[value].bits >= WORD_BITS

    def _computes(self, group: Group) -> bool:
        return any(self.graph.ops[number].kind in ELEMENTWISE for number in group.ops)

    def _computes_alone(self, group: Group) -> bool:
        """Whether a group only computes, and nothing wide that products alone read: that is rounded before kernels are
        joined so. Scores less their sum, which labels look up, and the gradient of narrow ones are written by one
        kernel, not that of wide ones (v3, v4, v5e); so are two arrays computed of one, with rows of their own.
        """
        made = (each for root in group.roots for each in self.graph.ops[root].results)
        is_kept = not any(self._is_wide(each) and self._is_for_products(each) for each in made)
        return is_kept and self._computes(group) and not group.reduces

    def _is_for_products(self, value: int) -> bool:
        """Whether products alone read a value, or what only picks and moves numbers for them."""
        readers = [self.graph.ops[reader] for reader, _ in self.uses.readers[value]]
        return value not in self.uses.results and all(
            op.kind in PRODUCTS or (op.kind in KEEPING and self._is_for_products(op.results[0])) for op in readers
        )

    def _are_spread(self, one: set[int], other: set[int], space: int) -> bool:
        return all(self.graph.values[value].num_elements * SUBLANES <= space for value in one | other)

    def _are_single(self, values: set[int]) -> bool:
        return all(self.graph.values[value].num_elements <= 1 for value in values)

    def _is_whole(self, value: int, group: Group) -> bool:
        return self.graph.values[value].num_elements == group.space

    def _merge(self, first: int, second: int) -> bool:
        one, other = self.groups[first], self.groups[second]
        fits = one.open and other.open and one.space == other.space and one.products + other.products <= 1
        if not fits or not self._hands_over_whole(one, other) or (self.by_rows and not self._reduce_alike(one, other)):
            return False
        if other.reduces and self._is_reduced_apart(first, second):
            return False
        if one.reduces and not self.by_rows and self._adds_up_rows(other, one):
            return False
        if self._stacks_apart(one, other):
            return False
        if self._path(first, second) or self._path(second, first, skip_direct=True):
            return False
        self._join(first, second)
        return True

    def _is_reduced_apart(self, first: int, second: int) -> bool:
        """Whether what a group makes is reduced by a kernel of its own."""
        one, other = self.groups[first], self.groups[second]
        if self._packs(one) or self._leaves_two(first, second):
            return True
        return not self.by_rows and (self._ranks_besides(one, second) or self._adds_up_rows(one, other))

    def _stacks_apart(self, one: Group, other: Group) -> bool:
        """Whether one reduces and the other puts a part into a stack: no kernel does both (scanned decoders for v3 to
        v6e, of which a row's sum and the exponentials that a scan keeps go through the same scores).
        """
        return not self.by_rows and bool((one.reduces and self._stacks(other)) or (other.reduces and self._stacks(one)))

    def _packs(self, group: Group) -> bool:
        """Whether a product makes bits of what it writes."""
        made = (value for root in group.roots for value in self.graph.ops[root].results)
        return group.products > 0 and bool(self.packed) and not self.packed.isdisjoint(made)

    def _adds_up_rows(self, one: Group, other: Group) -> bool:
        """Whether a group adds up, to a single number, what another computes of what single rows were reduced to.

        Dims of one are dropped there (``f32[1,1023]`` is a vector to the compiler), and no vector is added up by the
        kernel that makes it: a loss of one sequence on each device is a kernel of its own, seen on v3, v4, v5e and v6e.
        """
        graph, makers = self.graph, self.uses.makers
        added = [graph.ops[root] for root in other.roots if graph.ops[root].kind == REDUCE]
        if not any(graph.values[op.results[0]].num_elements == 1 and _is_squeezed(graph, op) for op in added):
            return False
        reads = (graph.ops[makers[value]] for value in one.reads if value in makers)
        return any(op.kind == REDUCE and graph.values[op.results[0]].num_elements == one.space for op in reads)

    def _ranks_besides(self, one: Group, second: int) -> bool:
        """Whether a group finds places of the largest of what a product makes, which others read, too: only what
        nothing else reads is ranked as it is made (seen on v3, v4, v5e and v6e).
        """
        ranks = any(len(self.graph.ops[root].results) > 1 for root in self.groups[second].roots)
        if not (ranks and one.products):
            return False
        made = [value for root in one.roots for value in self.graph.ops[root].results]
        return any(value in self.uses.results or self.readers[value] - {second} for value in made)

    def _leaves_two(self, first: int, second: int) -> bool:
        """Whether a convolution's kernel leaves two images, or may, what makes the other not needing what the second
        reduces: that is reduced by a kernel of its own then (seen on v3).
        """
        one, groups = self.groups[first], self.groups
        if all(self.graph.ops[number].kind != CONVOLUTION for number in one.ops):
            return False
        if sum(self._is_whole(value, one) for root in one.roots for value in self.graph.ops[root].results) > 1:
            return True
        beside = (number for number in self._reading(first) if number != second and not groups[number].reduces)
        return any(
            groups[number].products == 0
            and not self._path(number, first, skip_direct=True)
            and not self._path(number, second)
            for number in beside
        )

    def _hands_over_whole(self, one: Group, other: Group) -> bool:
        """Whether what the second reads of the first it reads element by element: no reduction that must end before,
        no product's operand.
        """
        results = [v for root in one.roots for v in self.graph.ops[root].results]
        if not (other.waits.isdisjoint(results) and other.behind.isdisjoint(results)):
            return False
        made = [v for v in results if v in other.reads]
        if made and other.products:
            return False
        return all(
            (self._is_whole(value, other) and self._is_read_in_step(value, other)) or self._is_of_rows(value)
            for value in made
        )

    def _is_handed_on(self, value: int, group: Group) -> bool:
        return self._is_whole(value, group) or self._is_of_rows(value)

    def _is_of_rows(self, value: int) -> bool:
        """Whether it is what rows are reduced to, where these are passed once."""
        return self.by_rows and is_row(self.graph, self.graph.ops[self.uses.makers[value]])

    def _reduce_alike(self, one: Group, other: Group) -> bool:
        """Whether the two reduce rows alone, or no rows."""
        reductions = (self.graph.ops[root] for root in one.roots | other.roots)
        return len({is_row(self.graph, op) for op in reductions if op.kind == REDUCE}) < 2

    def _is_read_in_step(self, value: int, group: Group) -> bool:
        kinds = (self.graph.ops[reader].kind for reader, _ in self.uses.readers[value] if reader in group.ops)
        return all(kind in ELEMENTWISE or kind in (REDUCE, UPDATE, "reshape") for kind in kinds)

    def _join(self, first: int, second: int) -> None:
        one, other = self.groups[first], self.groups.pop(second)
        one.ops |= other.ops
        one.roots |= other.roots
        one.products += other.products
        one.reduces |= other.reduces
        for value in other.reads:
            self.readers[value].discard(second)
            self.readers[value].add(first)
        one.reads |= other.reads
        for value in other.waits:
            self.waiting[value].discard(second)
            self.waiting[value].add(first)
        one.waits |= other.waits
        one.behind |= other.behind
        for root in other.roots:
            for value in self.graph.ops[root].results:
                self.maker[value] = first
                for reader in self.readers.get(value, set()) | self.waiting.get(value, set()):
                    self.needs[reader].discard(second)
                    self.needs[reader].add(first)
        for root in one.roots:
            for value in self.graph.ops[root].results:
                one.reads.discard(value)
                self.readers.get(value, set()).discard(first)
        self.needs[first] = (self.needs[first] | self.needs.pop(second)) - {first, second}
        self._rise(first, second)

    def _rise(self, first: int, second: int) -> None:
        """What needs one of two groups that became one needs all that the other needs.

        Whatever needed both, or was needed by both, knows all that.
        """
        bits, home = self.bits, self.home
        for number in _numbers(bits[second]):
            home[number] = first
        bits[first] = both = bits[first] | bits[second]
        _spread(self.above, self.below, both, first, second, home)
        _spread(self.below, self.above, both, first, second, home)
        self.above[first] = (self.above[first] | self.above[second]) & ~both
        self.below[first] = (self.below[first] | self.below[second]) & ~both

    def _path(self, start: int, goal: int, skip_direct: bool = False) -> bool:
        """Whether ``start`` needs ``goal``, directly (unless that is skipped) or through others."""
        sought = self.bits[goal]
        if not skip_direct or goal not in self.needs[start]:
            return bool(self.above[start] & sought)
        return any(self.above[maker] & sought for maker in self.needs[start])


def _is_squeezed(graph: Graph, op: Op) -> bool:
    """Whether what an operation reads is a vector but for dims of one."""
    shape = graph.shape(op.operands[0])
    return len(shape) > 1 and max(shape) == graph.values[op.operands[0]].num_elements


def _spread(far: list[int], near: list[int], both: int, first: int, second: int, home: Sequence[int]) -> None:
    """Tells those on one side of one of two groups, and not of the other, what lies on the other's ``far`` side."""
    one, other = near[first] & ~both, near[second] & ~both
    apart = one ^ other
    if apart:
        known = far[first] | far[second] | both
        for number in {home[n] for n in _numbers(apart)}:
            far[number] |= known


def _numbers(bits: int) -> Iterator[int]:
    """The numbers of the bits that are set."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
