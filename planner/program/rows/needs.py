"""What a device needs at least while a step computes each of its products, in whatever order that is done.

What is made before a product and read after what it makes is there beside it, wherever the compiler puts either. How it
lies then is not known: what makes or reads it may have it in other layouts than it is kept in. What is computed number
by number is not counted, for it may be computed anew, nor what may be gathered where a result lies; what products alone
read is counted as narrow as they read it. What it is computed of is there until it is read, if it is not itself. What
loops fill in turns is there during all of them. Of all this fast memory may hold some, but only whole values: none that
is larger than that.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ...fusion.masks import fleeting_masks
from ...fusion.narrow import KEEPING, NARROW, WIDE
from ...fusion.nature import BROADCAST, CONSTANT, CONVERT, ELEMENTWISE, IN_PASSING, PRODUCTS, VIEWS
from ...graph import Graph, Op
from ...kernels import Kernel
from ...kinds import KINDS
from ...lookups import GATHER
from ..step.passing import own_ops, own_reads
from ..wiring.reading import rounded_reads
from ..wiring.wires import Level, Wiring
from .lives import Span, part_bytes, spans
from .reach import before, behind, left, most_bytes

NARROW_BITS = 16
"""Of a number that products read, at most: what is wider they round, and it may be sent so."""
SEVERAL = 2
"""Turns: the body of a loop of one stands where the loop does."""
FILLED = frozenset({BROADCAST, CONSTANT, "iota", "allocate"})
PASSED = IN_PASSING | FILLED
ROUNDING = KEEPING | PRODUCTS | {CONVERT}
"""What may have a value as narrow as products read it, where it reads it."""

Bytes = NDArray[np.int64]
Beside = NDArray[np.float64]
"""What is beside each operation, then beside some when it makes a value, and what of that fast memory may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What is there beside what the step is given and leaves: ``num_bytes`` whatever is chosen, less what fast memory
    may hold of all, and what a ``node`` uses by its choice, that of the kernel ``at`` a level and a position in it.
    ``passing`` is what of that is no
    temporary itself, ``read`` what it is for a value that is read. Of the arguments in ``least`` no more than that many
    bytes are counted besides.
    """

    num_bytes: int
    node: int | None = None
    at: tuple[int, int] | None = None
    used: Bytes | None = None
    passing: Bytes | None = None
    read: Mapping[int, Bytes] = field(default_factory=dict)
    least: Mapping[int, int]


def needs(wiring: Wiring, *, with_results: bool, doubt: float, fast_bytes: int) -> Iterator[Need]:
    """What each product of a step needs, then what is needed most of the rest. ``with_results`` counts what the step
    leaves where it is made. Temporaries count up to ``doubt`` times as many bytes as there are; ``fast_bytes`` of them
    may lie elsewhere, in values that are no larger.
    """
    most = 0
    for flow, level, here in _flows(wiring, with_results=with_results, doubt=doubt, fast_bytes=fast_bytes):
        most = max(most, _beyond(here, fast_bytes))
        for position in level.kernels:
            for number in level.program.kernels[position].ops:
                if level.graph.ops[number].kind in PRODUCTS:
                    yield flow.product(position, number, here[:, number], doubt)
    yield Need(num_bytes=most, least={})


def needed_in_all(wiring: Wiring, *, with_results: bool, fast_bytes: int) -> int:
    """What all devices together hold at least beside some operation, as ``needs`` counts it, however it is split: of a
    ``wiring`` that splits nothing, without what fills up tiles. ``fast_bytes`` all of them have.
    """
    flows = _flows(wiring, with_results=with_results, doubt=1.0, fast_bytes=fast_bytes, padded=False)
    return max(_beyond(here, fast_bytes) for _, _, here in flows)


def _beyond(here: Beside, fast_bytes: int) -> int:
    """The most that is beside some operation, but for what fast memory holds."""
    return int((here[0] - np.minimum(here[1], fast_bytes)).max(initial=0.0))


def _flows(
    wiring: Wiring, *, with_results: bool, doubt: float, fast_bytes: int, padded: bool = True
) -> Iterator[tuple[_Flow, Level, Beside]]:
    """Each level with what has to be there beside each of its operations, what is around it too."""
    held: dict[int, list[Span]] = {}
    for span in spans(wiring, with_results=with_results):
        held.setdefault(span.level, []).append(span)
    waiting = [(wiring.levels[0], np.zeros(2))]
    for level, outside in waiting:
        flow = _Flow(wiring, level, held.get(level.number, []), fast_bytes=fast_bytes, padded=padded)
        here = outside[:, None] + np.concatenate([flow.num_bytes, flow.pairs], axis=1) / doubt
        for position, numbers in level.inner.items():
            loop = level.program.kernels[position].ops[-1]
            waiting += [(wiring.levels[number], here[:, loop]) for number in numbers]
        yield flow, level, here


class _Flow:
    """What depends on what in a level. ``num_bytes`` is what has to be there beside each operation, and what of that
    fast memory may hold, which has ``fast_bytes``.
    """

    def __init__(self, wiring: Wiring, level: Level, held: Sequence[Span], *, fast_bytes: int, padded: bool) -> None:
        self.wiring, self.level, self.fast_bytes = wiring, level, fast_bytes
        graph = level.graph
        self.makers = {value: number for number, op in enumerate(graph.ops) for value in op.results}
        self.before = before(graph, self.makers)
        reached = behind(graph, self.makers)
        self.left = left(graph, self.makers)
        self.least: dict[int, int] = {}
        self.until: dict[int, dict[int, int]] = {}
        self.num_bytes = np.zeros((2, len(graph.ops)))
        made_by = {value: kernel for kernel in level.program.kernels for value in kernel.writes}
        readers: dict[int, list[Kernel]] = {}
        for kernel in level.program.kernels:
            for value in kernel.reads:
                readers.setdefault(value, []).append(kernel)
        self.narrow = {
            value
            for each in (level.program.kernels[position] for position in level.kernels)
            for value in rounded_reads(wiring, graph, each)
        }
        self.ends: dict[int, int] = {}
        self.fleeting = fleeting_masks(graph)
        counted: dict[int, int] = {}
        for value in (span.value for span in held):
            own = own_ops(graph, replace(made_by[value], writes=(value,)))
            is_passed = all(graph.ops[number].kind in PASSED for number in own)
            product = self._ended_by(made_by[value], value) if is_passed else value
            counted |= {} if product is None else {value: product}
        for value, product in counted.items():
            forms = [self._least_bytes(each, padded=padded) for each in dict.fromkeys((value, product))]
            least, wide = (min(each) for each in zip(*forms, strict=True))
            self.least[value] = least
            reading = readers.get(value, [])
            self.until[value] = {each.ops[-1]: self._until(each, value, self._bits_of(value)) for each in reading}
            lasting = list(self._computed(value, least, readers, counted, padded=padded))
            for each in reading:
                lasting.append((least, self.until[value][each.ops[-1]]))
                if wide > least and not self._may_round(each, value):
                    lasting.append((wide, self._until(each, value, graph.values[value].bits)))
            maker = self.makers[product]
            itself = 0 if self._is_filled_in_turns(value, maker) else 1 << maker
            most = most_bytes(lasting, reached[maker] & ~itself, len(graph.ops))
            self.num_bytes += np.array([most, np.where(most <= fast_bytes, most, 0)])
        self.pairs = np.array(list(self._pairs(padded=padded))).reshape(-1, 2).T

    def _pairs(self, *, padded: bool) -> Iterator[tuple[int, int]]:
        """What each value takes beside the other that it is computed of number by number, where it is not as wide and
        so lies elsewhere: both are there when it is made, however late that is. Then what of that fast memory may hold.
        What rows are looked up in is made for that, whatever it is (v3, v5e and v6e; GPUs may look up in passing).
        """
        graph = self.level.graph
        if not self.wiring.reshards.target.is_tpu:
            return
        tables = {op.operands[0] for op in graph.ops if op.kind == GATHER} & self.level.source.keys() - self.left
        found = {value: self._least_bytes(value, padded=padded)[1] for value in tables} | self.least
        for value, least in found.items():
            made_of = next((each for each in self._back(self._alone(value)) if each in self.least), None)
            if made_of is not None and graph.values[made_of].bits != graph.values[value].bits:
                both = least, self.least[made_of]
                yield sum(both), sum(each for each in both if each <= self.fast_bytes)

    def _is_filled_in_turns(self, value: int, maker: int) -> bool:
        """Whether a loop of several turns makes a value of what holds nothing yet: it lies there during all of them."""
        graph, op = self.level.graph, self.level.graph.ops[maker]
        if op.kind != "while" or op.trips < SEVERAL:
            return False
        begun = op.operands[op.results.index(value)]
        return begun in self.makers and graph.ops[self.makers[begun]].kind in FILLED

    def _computed(
        self, value: int, least: int, readers: Mapping[int, Sequence[Kernel]], counted: Container[int], *, padded: bool
    ) -> Iterator[tuple[int, int]]:
        """Of what kernels compute of a value alone, number by number, the bytes of it or of that value, whichever are
        fewer, and the operations that are done before it was read: one of the two is there until then.
        """
        waiting = [(value, least)]
        for each, fewest in waiting:
            made = {made for kernel in readers.get(each, ()) if not kernel.bodies for made in kernel.writes}
            for other in sorted(made - self.left):
                path = None if other in counted or other not in self.level.source else self._path(other, each)
                if path is None:
                    continue
                bits = self.level.graph.values[other].bits
                narrowest = min([bits, *(self.level.graph.values[passed].bits for passed in path)])
                own = min(fewest, *(part * narrowest // bits for part in self._least_bytes(other, padded=padded)))
                for kernel in readers.get(other, ()):
                    yield own, self._until(kernel, other, self._bits_of(other))
                waiting.append((other, own))

    def _path(self, value: int, start: int) -> list[int] | None:
        """What a value is computed of number by number, back to a start that it is computed of alone; None if not."""
        found = [value]
        while found[-1] != start:
            made_of = self._alone(found[-1])
            if made_of is None or found[-1] in self.left:
                return None
            found.append(made_of)
        return found

    def _least_bytes(self, value: int, *, padded: bool) -> tuple[int, int]:
        """What one device holds of a value at least, as narrow as products read it, and as wide as it is."""
        known, source = self.level.graph.values[value], self.level.source[value]
        found = [
            int(part_bytes(self.wiring, source, each).min()) if padded else each.num_bytes
            for each in (replace(known, dtype=NARROW) if self._is_narrowed(value) else known, known)
        ]
        return found[0], found[1]

    def _is_narrowed(self, value: int) -> bool:
        """Whether some products round a value, which may lie so for these."""
        return value in self.narrow and self.level.graph.values[value].dtype == WIDE

    def _bits_of(self, value: int) -> int:
        """Of a number of a value, as narrow as products read it."""
        bits = self.level.graph.values[value].bits
        return min(bits, NARROW_BITS) if value in self.narrow else bits

    def _may_round(self, kernel: Kernel, value: int) -> bool:
        """Whether a kernel may have a value as narrow as products read it."""
        ops = (self.level.graph.ops[number] for number in kernel.ops)
        return bool(kernel.bodies) or any(op.kind in ROUNDING for op in ops if value in op.operands)

    def _ended_by(self, kernel: Kernel, value: int) -> int | None:
        """The product that a value is computed of number by number at the end of, if it is: computed anew it would be
        of what the product makes, so one of the two is there.
        """
        graph, size = self.level.graph, self.level.graph.values[value].num_elements
        for read in own_reads(graph, replace(kernel, writes=(value,))):
            port = self.level.source.get(read)
            is_end = port is not None and self.wiring.nodes[port.node].ended is not None
            if is_end and read in self.makers and graph.values[read].num_elements == size:
                if not self._may_take_place(kernel, value, read):
                    self.ends[read] = value
                return read
        return None

    def _may_take_place(self, kernel: Kernel, value: int, product: int) -> bool:
        """Whether a value may be written where something else that its kernel reads lies."""
        values, own = self.level.graph.values, {self._bits_of(value), self.level.graph.values[value].bits}
        others = (read for read in kernel.reads if read != product)
        return any(
            values[read].num_elements == values[value].num_elements and values[read].bits in own for read in others
        )

    def _until(self, kernel: Kernel, value: int, bits: int) -> int:
        """The operations that are done before a kernel is done with a value that it reads, or with what it computes of
        it alone that is no smaller, so many ``bits`` a number. A collective may part products and sums from what the
        kernel does with these.
        """
        if kernel.bodies:
            return self.before[kernel.ops[-1]]
        ops, found = self.level.graph.ops, 0
        waiting = [value]
        for each in waiting:
            for number in kernel.ops:
                if each in ops[number].operands:
                    found |= self.before[number]
                    waiting += (made for made in ops[number].results if self._stands_for(kernel, made, each, bits))
        return found

    def _stands_for(self, kernel: Kernel, made: int, each: int, bits: int) -> bool:
        """Whether what a kernel makes of ``each`` alone has as many numbers as a value, as wide as that is counted, or
        is a mask that is not kept.
        """
        is_wide = self.level.graph.values[made].bits >= bits or made in self.fleeting
        return made not in kernel.writes and is_wide and self._alone(made) == each

    def product(self, position: int, number: int, here: Beside, doubt: float) -> Need:
        """What a product needs of a kernel's at a position; the rest is beside it, ``here``."""
        graph, node = self.level.graph, self.level.kernels[position]
        op, kernel = graph.ops[number], self.level.program.kernels[position]
        local = self._parts(position, number)
        reading, least = dict[int, Bytes](), dict[int, int]()
        for root, (place, bits) in self._roots(op).items() if local else ():
            elements = np.array([math.prod(each[place]) if each else 0 for each in local], np.int64)
            read = elements * min(bits, NARROW_BITS) // 8
            is_given = root not in self.least
            known = (
                int(part_bytes(self.wiring, self.level.source[root], self.level.values[root]).min())
                if is_given
                else self.least[root]
            )
            if is_given or any(each >> number & 1 for end, each in self.until[root].items() if end != kernel.ops[-1]):
                wide = NARROW_BITS if root in self.narrow and not is_given else graph.values[root].bits
                read = np.clip(elements * wide // 8 - known, 0, read)
            else:
                read = np.clip(read - known, 0, None)
            least.update({root: known} if is_given else {})
            reading[root] = (read / doubt).astype(np.int64)
        used = np.sum([np.zeros(len(self.wiring.nodes[node].costs), np.int64), *reading.values()], axis=0)
        made = np.array([math.prod(each[2]) if each else 0 for each in local], np.int64)
        bits = graph.values[op.results[0]].bits
        made *= np.array([bits if each and each[3] else min(bits, NARROW_BITS) for each in local], np.int64)
        made = (made // 8 / doubt).astype(np.int64) if local else np.zeros_like(used)
        sums = np.array([bool(each and each[3]) for each in local], bool) if local else np.zeros(len(used), bool)
        at, passing = (self.level.number, position), used + np.where(sums, made, 0)
        near = here[1] + sum(int(each[each <= self.fast_bytes].max(initial=0)) for each in (*reading.values(), made))
        num_bytes = int(here[0] - min(near, self.fast_bytes))
        return Need(num_bytes=num_bytes, node=node, at=at, used=used + made, passing=passing, read=reading, least=least)

    def _roots(self, op: Op) -> dict[int, tuple[int, int]]:
        """What the operands of a product are computed of that lies in memory, with their places and the fewest bits of
        a number on the way.
        """
        found: dict[int, tuple[int, int]] = {}
        for place, operand in enumerate(op.operands[:2]):
            path = list(self._back(operand))
            is_given = not self.level.number and path[-1] in self.level.graph.arguments
            may_be_left = not self.left.isdisjoint(path)  # then it may be gathered where a result lies
            if (is_given or path[-1] in self.least) and path[-1] not in found and not may_be_left:
                found[path[-1]] = place, min(self.level.graph.values[value].bits for value in path)
        return found

    def _back(self, value: int | None) -> Iterator[int]:
        """A value, and what it is computed of number by number and of nothing else that is as large."""
        if value is None:
            return
        yield value
        while value not in self.least and (made_of := self._alone(value)) is not None:
            value = made_of
            yield value

    def _alone(self, value: int) -> int | None:
        """What a value is computed of number by number, if nothing else that it is computed of is as large."""
        graph = self.level.graph
        op = graph.ops[self.makers[value]] if value in self.makers else None
        if op is None or op.kind not in ELEMENTWISE | VIEWS:
            return None
        size = graph.values[value].num_elements
        large = [each for each in op.operands if not self._is_small(each, size)]
        return large[0] if len(large) == 1 and graph.values[large[0]].num_elements == size else None

    def _is_small(self, value: int, size: int) -> bool:
        """Whether a value has fewer numbers, or is made of what has."""
        op = self.level.graph.ops[self.makers[value]] if value in self.makers else None
        made_of = op.operands if op is not None and op.kind in FILLED else (value,)
        return all(self.level.graph.values[each].num_elements < size for each in made_of)

    def _parts(self, position: int, number: int) -> list[tuple[tuple[int, ...], ...] | None]:
        """By choice of a product's node what one device multiplies, as the partitioner divides it: the shapes of both
        operands, and of what is made to be added up; none where that goes round in a loop.
        """
        strategies, kernel = self.wiring.strategies, self.level.program.kernels[position]
        layouts = self.wiring.nodes[self.level.kernels[position]].layouts
        blueprint, numbers = strategies.known.blueprint(self.level.graph, kernel)
        op = self.level.graph.ops[number]
        at = next(
            (place for place, own in enumerate(blueprint.own.ops) if numbers[own.results[0]] == op.results[0]), None
        )
        values = list(dict.fromkeys((*op.operands, *op.results)))
        if at is None or not all(value in layouts for value in values):
            return []
        alone = blueprint.alone(at)
        lying = list(zip(*(layouts[value] for value in values), strict=True))
        pieces = {each: strategies.prices.pieces.of(alone, each).graph for each in dict.fromkeys(lying)}
        left = self.level.graph.results
        is_left = any(made in left for made in kernel.writes)
        is_held = op.results[0] in self.least or op.results[0] in self.ends
        shapes = {each: _multiplied(graph, is_left=is_left, is_held=is_held) for each, graph in pieces.items()}
        return [shapes[each] for each in lying]


def _multiplied(local: Graph, *, is_left: bool, is_held: bool) -> tuple[tuple[int, ...], ...] | None:
    """The shapes of a device's product, if there is one: its operands', and its result's if that is added up over
    devices, which may be done where what a step leaves lies unless these keep a part each, or ``is_held`` as it is.
    """
    products = [op for op in local.ops if op.kind in PRODUCTS]
    if len(products) != 1 or any(op.bodies for op in local.ops):
        return None
    (op,) = products
    made = op.results[0]
    sums = [each for each in local.ops if each.kind in KINDS and made in each.operands]
    size = local.values[made].num_elements
    is_cut = any(local.values[each.results[0]].num_elements < size for each in sums)
    is_there = is_cut or is_held or (bool(sums) and not is_left)
    return (
        *(local.shape(operand) for operand in op.operands[:2]),
        local.shape(made) if is_there else (0,),
        (1,) * bool(sums),  # only what is added up is as wide as it is made: what products alone read is rounded
    )
