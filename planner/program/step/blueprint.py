"""A kernel before its values are laid out: its loop nest, its operations alone, what it is fused to."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from ...compute.copies.turned import GRADIENT
from ...compute.images.convolved import KEEPING
from ...compute.products import Product, product_of
from ...fusion.narrow import NARROW, WIDE
from ...fusion.nature import BROADCAST, ELEMENTWISE, PRODUCTS
from ...fusion.recomputed import is_rematted
from ...fusion.sliced import is_computed_of_part, is_uniform
from ...graph import Graph, Op
from ...kernels import Kernel
from ...lookups import GATHER
from ...partition.passes.narrow import told_apart
from .around import Around
from .fills import is_fill
from .fused import Fused
from .nest import Nest, nest_of
from .passing import own_ops
from .pieces import Alone
from .seen import Shape

DOT = "dot_general"


class KernelPart(NamedTuple):
    """A part of a kernel: ``ops`` are its operations by their numbers in the whole, ``forms`` for each of its forms the
    one there.
    """

    blueprint: Blueprint
    ops: tuple[int, ...]
    forms: tuple[int, ...]


class Padding(NamedTuple):
    """A value that only pads read, the shape that it gets, and how many vector ``operations`` make a number of it; what
    makes one that ``is_light`` reads little.
    """

    value: int
    whole: Shape
    operations: float
    is_light: bool


@dataclass(kw_only=True)
class Blueprint:
    """A kernel as a graph of its own, on no mesh. ``fused`` has what it becomes, by the forms of its pieces.

    What one that ``is_free`` computes takes nothing: the kernels beside it do that in passing. ``masks`` are its
    operations that leave bits, in a kernel before, where a device's part of them has the shape for it, ``handed`` the
    values that it makes unless it is handed them, ``told`` those inside of it whose layouts tell choices apart,
    ``turned`` those that some chips copy transposed for it. What its operations ``behind`` make is added up by a loop
    of so many ``turns``: over devices behind the loop, in the dtype that is said, the carry's. What is in
    ``rounded_sums`` products make in bfloat16 for what reads it, and round what devices added up in float32.
    ``around`` is what the step knows of its values, ``padded`` are those of them that only pads read. Of ``copies``,
    each with what it is of, those are the same that lie alike (``twice``). One that stands elsewhere becomes what the
    one becomes that it is ``like``; ``alike`` has the parts of all kernels of its family, each once.
    """

    own: Graph
    is_free: bool = False
    masks: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    handed: tuple[int, ...] = ()
    told: tuple[int, ...] = ()
    turned: tuple[int, ...] = ()
    behind: Mapping[int, str] = field(default_factory=dict)
    turns: int = 1
    rounded_sums: frozenset[int] = frozenset()
    around: Around = field(default_factory=Around)
    padded: tuple[Padding, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()
    fused: dict[Hashable, Fused] = field(default_factory=dict)
    ops: dict[int, Alone] = field(default_factory=dict)
    parts: dict[Kernel, KernelPart] = field(default_factory=dict)
    elsewhere: dict[Around, Blueprint] = field(default_factory=dict)
    narrow: dict[int, Blueprint] = field(default_factory=dict)
    like: Blueprint | None = None
    alike: dict[Hashable, Blueprint] = field(default_factory=dict)

    @cached_property
    def nest(self) -> Nest:
        """Its loop nest."""
        return nest_of(self.own, range(len(self.own.ops))) if self.like is None else self.like.nest

    @cached_property
    def edge(self) -> tuple[int, ...]:
        """The forms of the values that it reads and writes, and of those that are told apart."""
        around = (*self.own.arguments, *self.own.results, *self.told)
        return tuple(sorted({self.nest.form_of[value] for value in around}))

    @cached_property
    def rounded(self) -> tuple[int, ...]:
        """The float32 values that are read for products alone, which round them."""
        told, _ = told_apart(self.own, [True] * len(self.own.results))
        values = enumerate(self.own.values)
        return tuple(place for place, value in values if place not in told and value.dtype == "f32")

    @cached_property
    def convolutions(self) -> tuple[Op, ...]:
        """Its operations that are convolutions."""
        return tuple(op for op in self.own.ops if op.kind == "convolution")

    @cached_property
    def gapped(self) -> frozenset[int]:
        """What it reads that is a kernel of a convolution over an image with gaps."""
        made = {op.results[0]: op for op in self.own.ops if op.kind in KEEPING}
        kernels = {op.operands[1] for op in self.convolutions if math.prod(op.attributes.get("lhs_dilation", ())) > 1}
        while found := {made[value].operands[0] for value in kernels & made.keys()}:
            kernels = (kernels - made.keys()) | found
        return frozenset(kernels.intersection(self.own.arguments))

    @cached_property
    def once(self) -> Graph:
        """It as it is where its copies lie as what they are of: what it reads twice is one value."""
        of = dict(self.copies)
        ops = tuple(op.moved(tuple(of.get(value, value) for value in op.operands)) for op in self.own.ops)
        return replace(self.own, ops=ops, arguments=tuple(value for value in self.own.arguments if value not in of))

    @cached_property
    def multiplied_copies(self) -> frozenset[int]:
        """The copies that its products read, or what these are made of."""
        products = tuple(v for op in self.own.ops if op.kind in PRODUCTS for v in op.operands)
        made = own_ops(self.own, Kernel(ops=tuple(range(len(self.own.ops))), reads=(), writes=products))
        read = {*products, *(value for number in made for value in self.own.ops[number].operands)}
        return frozenset(copy for copy, _ in self.copies if copy in read)

    @cached_property
    def spread(self) -> tuple[int, int] | None:
        """What it reads and what it makes of that, where it only spreads it over more dims, or longer ones."""
        own, kinds = self.own, {op.kind for op in self.own.ops}
        only_spreads = BROADCAST in kinds and kinds <= {BROADCAST, "reshape"}
        if not only_spreads or (len(own.arguments), len(own.results)) != (1, 1) or own.results[0] in self.around.left:
            return None
        return own.arguments[0], own.results[0]

    @cached_property
    def spreads(self) -> dict[int, int]:
        """What it reads only to spread it, each with what it makes of that."""
        own, readers = self.own, self.own.reads()
        found = {
            op.operands[0]: op.results[0] for op in own.ops if op.kind == BROADCAST and readers[op.operands[0]] == 1
        }
        return dict([self.spread]) if self.spread else {v: made for v, made in found.items() if v in own.arguments}

    @cached_property
    def lookups(self) -> tuple[Op, ...]:
        """Its operations that take rows of tables."""
        return tuple(op for op in self.own.ops if op.kind == GATHER)

    @cached_property
    def multiplied(self) -> tuple[tuple[Product, frozenset[int]], ...]:
        """Its plain products that are computed whatever it is handed, each with the loops that it goes through."""
        always = set(range(len(self.own.ops)))
        for value in self.handed:
            always &= set(self.without(value).ops)
        found = []
        for op in (self.own.ops[number] for number in sorted(always) if self.own.ops[number].kind == DOT):
            forms = {self.nest.form_of[value] for value in (*op.operands, *op.results)}
            loops = frozenset(loop for form in forms for loop in self.nest.forms[form].loops)
            found.append((product_of(self.own, op), loops))
        return tuple(found)

    @cached_property
    def summed(self) -> dict[int, int]:
        """What it adds up, but for what is added up over devices behind a loop, with the operation of each."""
        ops = ((number, op) for number, op in enumerate(self.own.ops) if op.factors and op.factors.reduction)
        return {op.results[0]: number for number, op in ops if number not in self.behind}

    def left_of(self, number: int) -> int | None:
        """What the kernel leaves of what an operation makes, and nothing else of it."""
        (value,) = self.own.ops[number].results
        readers = self.own.reads()
        makes = {operand: op.results[0] for op in self.own.ops for operand in op.operands}
        while value not in self.own.results and readers[value] == 1:
            value = makes[value]
        return value if value in self.own.results else None

    @cached_property
    def apart(self) -> Blueprint:
        """The same where it meets no tables."""
        return self._beside(self.around._replace(tables=frozenset())) if self.around.tables else self

    @cached_property
    def table(self) -> int | None:
        """The first of the tables that are scattered into that it reads: where one lies row by row, all that it takes
        number by number with it does.
        """
        return next((value for value in self.own.arguments if value in self.around.tables), None)

    def written_whole(self, value: int) -> int | None:
        """What is written where a device's part is cut out of one of its values, if that is computed in passing else:
        the last that is not computed of a part itself; None where it is, of what it reads.
        """
        made = {op.results[0]: op for op in self.own.ops}
        while value in made and is_computed_of_part(self.own, made[value], made):
            arrays = [v for v in made[value].operands if not is_uniform(self.own, made.get(v))]
            if not arrays:
                return None  # one number everywhere
            (value,) = arrays
        return value if value in made and made[value].kind in ELEMENTWISE else None

    def reading_far(self, value: int) -> Blueprint:
        """The same where its products read a value from the large memory."""
        return self._beside(self.around._replace(far=frozenset((value,))))

    def reading_rounded(self, value: int) -> Blueprint:
        """The same where its products read a float32 value as it was rounded for them."""
        if value not in self.narrow:
            values = list(self.own.values)
            values[value] = replace(values[value], dtype=NARROW)
            own: dict[str, Any] = {"fused": {}, "parts": {}, "elsewhere": {}, "narrow": {}, "like": None}
            self.narrow[value] = made = replace(self, own=self.own.holding(tuple(values)), **own)
            vars(made)["nest"] = self.nest
        return self.narrow[value]

    def reading_across(self, value: int) -> Blueprint:
        """The same where a kernel of a convolution lies across, as the pieces do that it was gathered of."""
        return self._beside(self.around._replace(across=frozenset((value,))))

    def _beside(self, around: Around) -> Blueprint:
        if around not in self.elsewhere:
            own: dict[str, Any] = {"fused": {}, "parts": {}, "elsewhere": {}, "narrow": {}}
            self.elsewhere[around] = replace(self, around=around, like=self.like or self, **own)
        return self.elsewhere[around]

    def becomes(self, form: Hashable, packed: frozenset[int], fuse: Callable[[Blueprint, Around], Fused]) -> Fused:
        """The kernels for pieces of this form, ``packed`` being what kernels of their own make bits of; ``fuse`` makes
        those of the one that it is like, which are known from then on.
        """
        first, around = self.like or self, self.around._replace(packed=packed)
        if form not in first.fused:
            first.fused[form] = fuse(first, first.around._replace(packed=packed))
        if form not in self.fused:
            self.fused[form] = first.fused[form].among(around)
        return self.fused[form]

    def effort(self, axes: int) -> int:
        """About how long its strategies take to work out on a mesh of so many axes."""
        return len(self.own.ops) * int(len(self.nest.sizes) ** axes)

    def alone(self, number: int) -> Alone:
        """One of its operations."""
        if number not in self.ops:
            graph, values = _alone(self.own, number, self.rounded_sums)
            rounded = graph.values[graph.results[0]].dtype != self.own.values[self.own.ops[number].results[0]].dtype
            forms = tuple(self.nest.form_of[v] for v in values)
            self.ops[number] = Alone(graph, (name_of(graph), rounded), forms, rounded)
        return self.ops[number]

    def alone_behind(self, number: int) -> Alone:
        """One of those ``behind`` as what it makes is added up over devices."""
        alone = self.alone(number)
        (made,) = alone.graph.results
        values = list(alone.graph.values)
        values[made] = replace(values[made], dtype=self.behind[number])
        graph = replace(alone.graph, values=tuple(values))
        return replace(alone, graph=graph, name=(name_of(graph), False), rounded=False)

    def without(self, value: int) -> KernelPart:
        """What is left of the kernel where it is handed one of its values."""
        return self._part(Kernel(ops=tuple(range(len(self.own.ops))), reads=(value,), writes=self.own.results))

    def after(self, value: int) -> KernelPart:
        """What is left of it behind one of the values that it leaves."""
        writes = tuple(each for each in self.own.results if each != value)
        return self._part(Kernel(ops=tuple(range(len(self.own.ops))), reads=(value,), writes=writes))

    def until(self, value: int, *handed: int) -> KernelPart:
        """What of the kernel makes one of its values, where it is handed others."""
        return self._part(Kernel(ops=tuple(range(len(self.own.ops))), reads=handed, writes=(value,)))

    def _part(self, whole: Kernel) -> KernelPart:
        if whole not in self.parts:
            self.parts[whole] = self._made_part(whole)
        return self.parts[whole]

    def _made_part(self, whole: Kernel) -> KernelPart:
        ops = own_ops(self.own, whole)
        own, numbers = kernel_graph(self.own, replace(whole, ops=ops))
        masks = {place: self.masks[number] for place, number in enumerate(ops) if number in self.masks}
        rounded = frozenset(place for place, number in enumerate(numbers) if number in self.rounded_sums)
        around = self.around.of_part(numbers)
        scopes = tuple([(GRADIENT in (op.origin.scope or ""), is_rematted(op)) for op in own.ops])
        key = (name_of(own), scopes, self.is_free, tuple(masks.items()), rounded, around)
        rest = self.alike.get(key)
        if rest is None:
            rest = Blueprint(own=own, is_free=self.is_free, masks=masks, rounded_sums=rounded, around=around)
            rest.alike = self.alike
            self.alike[key] = rest
        first = {form: place for place, form in reversed(rest.nest.form_of.items())}
        forms = tuple(self.nest.form_of[numbers[first[form]]] for form in range(len(rest.nest.forms)))
        return KernelPart(rest, ops, forms)


def in_order_of_use(graph: Graph, ops: Sequence[int]) -> tuple[int, ...]:
    """Operations of a kernel, first what is filled with a number, in the order in which the others read it.

    Where that stands else hangs on which kernel of several is the first to read it: then alike ones would differ. What
    is filled with a number that the kernel itself computes stays behind that.
    """
    made = {value for number in ops for value in graph.ops[number].results}
    filled = (number for number in ops if is_fill(graph, graph.ops[number]))
    fills = {graph.ops[n].results[0]: n for n in filled if made.isdisjoint(graph.ops[n].operands)}
    others = [number for number in ops if fills.keys().isdisjoint(graph.ops[number].results)]
    read = dict.fromkeys(fills[v] for number in others for v in graph.ops[number].operands if v in fills)
    return (*dict.fromkeys((*read, *fills.values())), *others)


def kernel_graph(graph: Graph, kernel: Kernel) -> tuple[Graph, tuple[int, ...]]:
    """A kernel as a graph of its own, without layouts, and the numbers that its values have in the whole: what it reads
    comes first, in the order in which the kernel is handed it, single numbers last, in the order in which it reads
    them: several kernels share these, the first of which has them made.
    """
    ops = [graph.ops[number] for number in kernel.ops]
    made = {v for op in ops for v in op.results}
    read = dict.fromkeys(v for op in ops for v in op.operands if v not in made)
    given = [*sorted(v for v in read if graph.shape(v)), *(v for v in read if not graph.shape(v))]
    numbers = tuple(dict.fromkeys((*given, *(v for op in ops for v in (*op.operands, *op.results)))))
    place = {number: position for position, number in enumerate(numbers)}
    small = tuple(
        [op.moved(tuple([place[v] for v in op.operands]), tuple([place[v] for v in op.results])) for op in ops]
    )
    own = Graph(
        values=tuple(graph.values[n] for n in numbers),
        ops=small,
        arguments=tuple(range(len(given))),
        results=tuple(place[v] for v in kernel.writes),
    )
    return own, numbers


def name_of(own: Graph) -> Hashable:
    """What the operations of a graph do, to be compared."""
    values = tuple((value.shape, value.dtype) for value in own.values)
    return (tuple(map(_signature, own.ops)), values, own.results)


def family_of(own: Graph) -> Hashable:
    """What kernels have in common whose parts may be alike: their first product, or all if they have none."""
    first = next((op for op in own.ops if op.kind in PRODUCTS), None)
    if first is None:
        return name_of(own)
    values = tuple((own.shape(value), own.values[value].dtype) for value in (*first.operands, *first.results))
    return _signature(replace(first, operands=(), results=())), values


def _alone(graph: Graph, number: int, rounded_sums: frozenset[int]) -> tuple[Graph, tuple[int, ...]]:
    op = graph.ops[number]
    numbers = tuple(dict.fromkeys((*op.operands, *op.results)))
    place = {value: position for position, value in enumerate(numbers)}
    small = replace(op, operands=tuple(place[v] for v in op.operands), results=tuple(place[v] for v in op.results))
    values = [graph.values[value] for value in numbers]
    if op.kind == GATHER:  # what it takes it adds up over devices as it is, and rounds it then
        values[small.results[0]] = replace(values[small.results[0]], dtype=values[small.operands[0]].dtype)
    elif rounded_sums.intersection(op.results):
        values[small.results[0]] = replace(values[small.results[0]], dtype=WIDE)
    own = replace(
        graph,
        values=tuple(values),
        ops=(small,),
        arguments=tuple(dict.fromkeys(small.operands)),
        results=small.results,
    )
    return own, numbers


def _signature(op: Op) -> object:
    return (op.kind, op.operands, op.results, op.factors, _frozen(op.attributes))


def _frozen(value: Any) -> object:
    if isinstance(value, Mapping):
        return tuple((k, _frozen(v)) for k, v in sorted(value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(map(_frozen, value))
    return value
