"""A step as plain data: operations on values, before and after it is laid out over a mesh."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import chain
from typing import Any

from ..dsl.records import record

Axes = tuple[str, ...]
Sharding = tuple[Axes, ...]

BITS = {"pred": 8, "f8": 8, "c64": 64, "c128": 128, "token": 0, "bf16": 16, "f16": 16, "f32": 32, "f64": 64}
BITS |= {f"{sign}{bits}": bits for sign in "su" for bits in (4, 8, 16, 32, 64)}


@record(frozen=True, slots=True)
class Value:
    """A tensor that an operation reads or makes: its shape, and its dtype as HLO writes it (``f32``, ``pred``).

    ``sharding`` has the mesh axes of each dim, major first, None where nothing is said of it. In the graph of one
    device (``partition``'s result) shapes are those that the device holds, and no value has a sharding.
    """

    shape: tuple[int, ...]
    dtype: str
    sharding: Sharding | None = None
    num_elements: int = field(init=False, repr=False, compare=False)
    """How many numbers it holds."""
    bits: int = field(init=False, repr=False, compare=False)
    """The bits of one number."""
    num_bytes: int = field(init=False, repr=False, compare=False)
    """Its bytes, without the padding of tiles."""

    def __post_init__(self) -> None:
        count, bits = math.prod(self.shape), BITS.get(self.dtype) or dtype_bits(self.dtype)
        _ELEMENTS(self, count)  # what is asked for far more often than values are made
        _BITS(self, bits)
        _BYTES(self, (count * bits + 7) // 8)


_ELEMENTS, _BITS, _BYTES = (vars(Value)[name].__set__ for name in ("num_elements", "bits", "num_bytes"))


def dtype_bits(dtype: str) -> int:
    """The bits of one number of an HLO dtype: 32 of ``f32``, 8 of ``pred``, 4 of ``s4``."""
    if dtype in BITS:
        return BITS[dtype]
    if dtype.startswith("f8"):
        return 8
    digits = "".join(c for c in dtype.removeprefix("b") if c.isdigit())
    return int(digits) if digits else 32


@record(frozen=True, slots=True)
class Origin:
    """Who asked for an operation: ``source`` is a line (``model.py:12``), ``scope`` JAX's name stack.

    ``value`` is the path (``ops/...``) by which a plan names the operation's result, in a graph that is not laid out;
    ``values`` has, of an operation of several results, the position and path of each that has one.
    ``also`` are the paths of other values that are computed as this one, and once with it; those of ``swapped`` ones,
    its own among them, read its two operands in the other order.
    ``reads`` are the paths of its operands where they are not its value's own: of what took the place of several.
    ``repeats`` is for how many operations alike one stands, in a step from which the others were left out.
    """

    source: str | None = None
    scope: str | None = None
    value: str | None = None
    also: tuple[str, ...] = ()
    swapped: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    repeats: int = 1
    values: tuple[tuple[int, str], ...] = ()


@record(frozen=True, slots=True)
class Factors:
    """An operation's loop nest, Shardy's op sharding rule.

    ``sizes`` are the factors' sizes. ``operands[i][d]`` and ``results[i][d]`` are the factors of dim ``d`` of operand
    or result ``i``, major first. ``reduction`` factors leave partial sums when they are split, ``replicated`` ones must
    not be split, ``permutation`` ones exchange halos; all others are parallel. Along ``blocked`` ones no layout is
    propagated.
    """

    sizes: tuple[int, ...]
    operands: tuple[tuple[tuple[int, ...], ...], ...]
    results: tuple[tuple[tuple[int, ...], ...], ...]
    reduction: tuple[int, ...] = ()
    replicated: tuple[int, ...] = ()
    permutation: tuple[int, ...] = ()
    blocked: tuple[int, ...] = ()


@record(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation. ``kind`` is StableHLO's name without its dialect (``dot_general``), or that of a collective.

    ``operands`` and ``results`` number the graph's values. ``attributes`` are plain values, named as in StableHLO
    (``lhs_contracting_dimensions``, ``dimensions``, ``reducer`` for the op that a reduction's region applies, ``axes``
    of a collective). A ``while`` has its body, whose arguments and results are the loop's carry followed, among the
    arguments, by what it reads from outside; it turns ``trips`` times. A ``case`` has one body a branch; a
    ``manual_computation`` its region, whose shapes are already those of one device.
    """

    kind: str
    operands: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    factors: Factors | None = None
    bodies: tuple[Graph, ...] = ()
    trips: int = 1
    origin: Origin = Origin()

    @property
    def turns(self) -> int:
        """How often a loop turns, as far as is known; 0 of what is no loop to the compiler: branches, and one turn."""
        if self.kind != "while":
            return 0
        return self.trips if self.trips > 1 or self.attributes.get("trips_unknown", False) else 0

    @property
    def named(self) -> tuple[tuple[int, str], ...]:
        """The values that it makes which a plan can name, each with its path; of one with several, its own last."""
        if self.origin.value is not None and self.results:
            return tuple((self.results[0], path) for path in (*self.origin.also, self.origin.value))
        return tuple((self.results[position], path) for position, path in self.origin.values)

    def moved(self, operands: tuple[int, ...], results: tuple[int, ...] | None = None) -> Op:
        """The same operation on other values: ``replace`` of these, in a fraction of its time, for every step of a
        price makes it of hundreds.
        """
        return Op(
            kind=self.kind,
            operands=operands,
            results=self.results if results is None else results,
            attributes=self.attributes,
            factors=self.factors,
            bodies=self.bodies,
            trips=self.trips,
            origin=self.origin,
        )


@record(frozen=True, kw_only=True)
class Graph:
    """Operations in program order. ``arguments`` and ``results`` number its values.

    Of a whole step, ``names`` are the arguments' pytree paths, ``result_names`` those of the results, ``aliases`` maps
    the position of a result to that of the donated argument in whose place it is written, and ``mesh`` has the sizes of
    the axes that shardings name, major first: an axis that propagation splits stands there as its parts (``x:(1)2``,
    ``x:(2)4``: the size of what is major to the part, and its own).
    """

    values: tuple[Value, ...]
    ops: tuple[Op, ...]
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    names: tuple[str, ...] = ()
    result_names: tuple[str, ...] = ()
    aliases: Mapping[int, int] = field(default_factory=dict)
    mesh: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of its operations, loops not entered: what most of the compiler's rules begin with is not there."""
        return frozenset([op.kind for op in self.ops])

    @cached_property
    def _by_kind(self) -> Mapping[str, Sequence[int]]:
        found: dict[str, list[int]] = {}
        for number, op in enumerate(self.ops):
            found.setdefault(op.kind, []).append(number)
        return found

    def of_kind(self, *kinds: str) -> list[Op]:
        """The operations of these kinds in order, loops not entered."""
        found = self._by_kind
        numbers = sorted([number for kind in kinds for number in found.get(kind, ())])
        return [self.ops[number] for number in numbers]

    @cached_property
    def nesting(self) -> tuple[Op, ...]:
        """The operations that have bodies: loops, branches, regions."""
        return tuple([op for op in self.ops if op.bodies])

    @cached_property
    def goes_round(self) -> bool:
        """Whether it is the turn of a loop around a product, whose parts go round a ring of devices.

        A scan whose turn holds such loops sends their first parts itself, and is none: they hold no loops.
        """
        sends = any(op.attributes.get("around") for op in self.ops)
        return sends and not any(op.kind == "while" for op in self.ops)

    def holding(self, values: tuple[Value, ...]) -> Graph:
        """The same operations on values of other shapes; what they are is not worked out again. Without names."""
        made = Graph(values=values, ops=self.ops, arguments=self.arguments, results=self.results)
        vars(made).update(kinds=self.kinds, _by_kind=self._by_kind, nesting=self.nesting)
        return made

    def shape(self, value: int) -> tuple[int, ...]:
        """The shape of a value, by its number."""
        return self.values[value].shape

    def reads(self) -> Counter[int]:
        """How often operations read each value."""
        return Counter(chain.from_iterable([op.operands for op in self.ops]))

    def walk(self, times: int = 1) -> Iterator[tuple[Graph, Op, int]]:
        """Every operation with its graph and how often a step runs it, loops entered once."""
        for op in self.ops:
            yield self, op, times
            for body in op.bodies:
                yield from body.walk(times * op.trips)
