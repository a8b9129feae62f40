"""The loop nest of a kernel: the loops that its operations share, and what each of its values has of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ....dsl.records import record
from ...compute.work import RUNNING
from ...fusion.nature import PRODUCTS
from ...graph import Graph, Op
from ...images import CONVOLUTION
from ...ranked import TOP_K
from .atoms import Atom, lay_out_along, leaves, overlay, unify

SAME = frozenset({"propagation_barrier", "optimization_barrier", "sharding_constraint", "reshard", "copy"})
FREE = frozenset({"constant", "iota"})
SLICE, RESHAPE = "slice", "reshape"
CUTS = frozenset({SLICE, "pad"})


Dims = tuple[tuple[int, ...], ...]  # the loops of each dim


@record(frozen=True, slots=True)
class Form:
    """What values have in common that are laid out alike: the loops of their dims, and the loops that have been added
    up before them; ``places`` are those of dims of one place, which was cut out of them, ``viewed`` those that may be
    split though what the values are views of is not, ``gathered`` those that may not be though what they are views of
    is.
    """

    dims: Dims
    after: frozenset[int]
    places: frozenset[int] = frozenset()
    viewed: frozenset[int] = frozenset()
    gathered: frozenset[int] = frozenset()

    @property
    def loops(self) -> tuple[int, ...]:
        """The loops of all dims."""
        return tuple(loop for dim in self.dims for loop in dim)


@dataclass(frozen=True, slots=True)
class Meeting:
    """What an operation brings together: the forms of its tensors, by number, and the loops of which devices need
    each other's parts where they are split.
    """

    forms: frozenset[int]
    needs: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class Nest:
    """Loops by number. ``sizes`` and ``blocked`` are theirs; ``dims`` has the loops of each dim of each value. A dim
    that another is cut out of has the same loop, of the larger one's size.

    ``sums`` has, for each loop that some operation adds up, the values that lie after such an operation: where they do
    not have the loop themselves they may be split otherwise than what comes before. ``needs`` has for each operation
    the loops that it adds up or of which devices need their neighbours' parts, ``tensors`` the values that it reads
    and makes; ``windows`` are the loops that something slides along, or sorts. ``places`` has by value the loops of
    which it has one place: who has that adds it up with the others' zeros. ``views`` has, for each loop that is a minor
    one of a dim that a reshape makes several dims of, the values behind that: they may be split along it where the dim
    is not, each device going on with its part of what it has; ``opened`` are those that are blocked before that alone.
    ``gathers`` has, for each loop that is a major one and, where a reshape joins parts of dims, a minor one behind, the
    values behind that: who split it gather it there. ``cuts`` has for each loop of a dim that is cut or padded, and is
    another loop behind that, those behind: what is made lies along these, for all else what it is made of is brought
    there before, but for the loops of ``ends``, which what is computed here has before it is cut: nobody else can bring
    that there.
    """

    sizes: tuple[int, ...]
    blocked: tuple[bool, ...]
    dims: dict[int, Dims]
    sums: dict[int, frozenset[int]]
    needs: tuple[frozenset[int], ...]
    tensors: tuple[tuple[int, ...], ...]
    windows: frozenset[int] = frozenset()
    places: Mapping[int, frozenset[int]] = field(default_factory=dict)
    views: Mapping[int, frozenset[int]] = field(default_factory=dict)
    opened: frozenset[int] = frozenset()
    gathers: Mapping[int, frozenset[int]] = field(default_factory=dict)
    cuts: Mapping[int, frozenset[int]] = field(default_factory=dict)
    ends: frozenset[int] = frozenset()

    @cached_property
    def alone(self) -> frozenset[int]:
        """The loops that make dims by themselves, and of which devices need their neighbours' parts only to cut."""
        return (
            frozenset(range(len(self.sizes)))
            - {loop for dims in self.dims.values() for dim in dims if len(dim) > 1 for loop in dim}
            - self.windows
        )

    @cached_property
    def form_of(self) -> dict[int, int]:
        """The number of each value's form."""
        number: dict[Form, int] = {}
        return {value: number.setdefault(self._form(value), len(number)) for value in self.dims}

    @cached_property
    def forms(self) -> tuple[Form, ...]:
        """The forms by number."""
        return tuple({number: self._form(value) for value, number in self.form_of.items()}.values())

    @cached_property
    def meetings(self) -> Mapping[Meeting, tuple[int, ...]]:
        """The operations that bring the same together, by their numbers."""
        found: dict[Meeting, list[int]] = {}
        for number, (needs, tensors) in enumerate(zip(self.needs, self.tensors, strict=True)):
            meeting = Meeting(frozenset(self.form_of[value] for value in tensors), needs)
            found.setdefault(meeting, []).append(number)
        return {meeting: tuple(numbers) for meeting, numbers in found.items()}

    def _form(self, value: int) -> Form:
        after = frozenset(loop for loop, after in self.sums.items() if value in after)
        viewed = frozenset(loop for loop, behind in self.views.items() if value in behind)
        gathered = frozenset(loop for loop, behind in self.gathers.items() if value in behind)
        return Form(self.dims[value], after, self.places.get(value, frozenset()), viewed, gathered)


def nest_of(graph: Graph, numbers: Sequence[int]) -> Nest:
    """The nest of these operations of a graph."""
    return _of(graph, [graph.ops[number] for number in numbers])


def _of(graph: Graph, ops: Sequence[Op]) -> Nest:
    atoms: dict[int, list[list[Atom]]] = {}
    factors = [(op, _join(graph, op, atoms)) for op in ops]
    return _numbered(graph, ops, atoms, factors)


def _join(graph: Graph, op: Op, atoms: dict[int, list[list[Atom]]]) -> list[Atom]:
    """Brings the dims of an operation's tensors together by its factors, which it gives."""
    for value in (*op.operands, *op.results):
        if value not in atoms:
            atoms[value] = [[Atom(size)] for size in graph.values[value].shape]
    if op.factors is None:
        _join_without_factors(graph, op, atoms)
        return []
    own = [Atom(size) for size in op.factors.sizes]
    for factor in op.factors.replicated:
        own[factor].blocked = True
    rules = (*zip(op.operands, op.factors.operands, strict=False), *zip(op.results, op.factors.results, strict=False))
    apart = _apart(graph, op)
    for value, rule in rules:
        for place, (size, dim, factors) in enumerate(zip(graph.shape(value), atoms[value], rule, strict=True)):
            if factors and place not in apart:
                ways = math.prod(op.factors.sizes[f] for f in factors)
                if size == 1 < ways and _cuts_off(op):
                    lay_out_along(dim[0], [own[f] for f in factors])
                    continue
                row = [own[f] for f in factors]
                if (_makes_between(op, value) or _moves_on(op, value, place)) and size > ways and size % ways == 0:
                    unify(dim, [*row, Atom(size // ways, blocked=True)])
                    continue
                is_same = size == ways or (_cuts_off(op) and max(size, ways) < 2 * min(size, ways))
                _match(dim, row, is_same=is_same)
    return own


def _makes_between(op: Op, value: int) -> bool:
    """Whether a convolution makes a value out of an image with gaps, several places for each of its places: as the
    gradient of one that moves on by so many. Where the image is split, each device makes what is made of its part.
    """
    return op.kind == CONVOLUTION and value in op.results and math.prod(op.attributes.get("lhs_dilation", ())) > 1


def _moves_on(op: Op, value: int, place: int) -> bool:
    """Whether windows move over a dim of a value by several places: where what they make is split, so is that. Those of
    a convolution that go over several places have loops of their own for these.
    """
    strides = op.attributes.get("window_strides", ())
    if op.kind == CONVOLUTION and value == op.operands[0]:
        spatial = op.attributes.get("input_spatial_dimensions", ())
        return any(place == dim and stride > 1 for dim, stride in zip(spatial, strides, strict=False))
    return op.kind == RUNNING and value in op.operands and place < len(strides) and strides[place] > 1


def _cuts_off(op: Op) -> bool:
    """Whether an operation takes away or adds what lies at the ends of dims, and leaves nothing out between."""
    strides, gaps = (op.attributes.get(name, ()) for name in ("strides", "interior_padding"))
    return op.kind in CUTS and all(each == 1 for each in strides) and not any(gaps)


def _apart(graph: Graph, op: Op) -> set[int]:
    """The dims of what is cut out or padded of which little is there before or after, or not all that lies between:
    loops of their own before and after, and devices that have parts before send each other what they go on with.
    """
    if op.kind not in CUTS:
        return set()
    sizes = enumerate(zip(graph.shape(op.operands[0]), graph.shape(op.results[0]), strict=True))
    most = 2 if _cuts_off(op) else 1
    return {place for place, (a, b) in sizes if a != b and min(a, b) > 1 and max(a, b) >= most * min(a, b)}


def _match(dim: Sequence[Atom], factors: Sequence[Atom], *, is_same: bool) -> None:
    """A dim and its factors are one, if they go through as many elements (a window's dim may be larger), or most of one
    is cut out of the other, be that one loop or several.
    """
    if is_same and math.prod(atom.size for atom in dim) == math.prod(atom.size for atom in factors):
        unify(dim, factors)
    elif is_same and len(leaves(dim)) == len(leaves(factors)) == 1:
        overlay(*leaves(dim), *leaves(factors))
    elif not (is_same and _lies_along(dim, factors)):
        for atom in (*leaves(dim), *leaves(factors)):
            atom.blocked = True


def _lies_along(dim: Sequence[Atom], factors: Sequence[Atom]) -> bool:
    """Lays one loop along the several that most of it goes through, where it is one alone; whether it is. Devices may
    have their parts along the major one, and send each other what is cut off those.
    """
    one, row = sorted((leaves(dim), leaves(factors)), key=len)
    if len(one) != 1 or one[0].blocked:
        return False
    one[0].parts = tuple(row)
    for atom in row[1:]:
        atom.blocked = True
    return True


def _join_without_factors(graph: Graph, op: Op, atoms: dict[int, list[list[Atom]]]) -> None:
    """Without a rule tensors of one shape are laid out alike where the operation only hands values on, else whole."""
    if op.kind in SAME:
        for source, result in zip(op.operands, op.results, strict=False):
            for a, b in zip(atoms[source], atoms[result], strict=True):
                unify(a, b)
    elif op.kind not in FREE:
        for value in (*op.operands, *op.results):
            for atom in leaves(atom for dim in atoms[value] for atom in dim):
                atom.blocked = True


def _numbered(
    graph: Graph, ops: Sequence[Op], atoms: dict[int, list[list[Atom]]], factors: Sequence[tuple[Op, list[Atom]]]
) -> Nest:
    number: dict[int, int] = {}
    found: list[Atom] = []
    dims: dict[int, tuple[tuple[int, ...], ...]] = {}
    for value, per_dim in atoms.items():
        rows = []
        for dim in per_dim:
            row = []
            for leaf in leaves(dim):
                if id(leaf) not in number:
                    number[id(leaf)] = len(found)
                    found.append(leaf)
                row.append(number[id(leaf)])
            rows.append(tuple(row))
        dims[value] = tuple(rows)
    places = _places(graph, dims)
    sums: dict[int, set[int]] = {}
    needs = []
    windows: set[int] = set()
    cuts: dict[int, frozenset[int]] = {}
    given, computed = frozenset[int](), {value for op in ops for value in op.results}
    for op, own in factors:
        summed = _loops(number, own, op.factors.reduction) if op.factors else frozenset()
        read, made = (_loops_at(dims, each, _apart(graph, op)) for each in (op.operands, op.results))
        cuts |= {loop: cuts.get(loop, frozenset()) | made for loop in read}
        given |= read if op.operands and op.operands[0] not in computed else frozenset()
        cut = places.get(op.results[0], frozenset()) if op.kind == SLICE else frozenset()
        after = _after(ops, [op], dims) if summed or cut or read else frozenset()
        for loop in summed | cut | read:
            sums.setdefault(loop, set()).update(after)
        moved = _loops(number, own, op.factors.permutation) if op.factors else frozenset()
        ranked = _loops(number, own, range(len(own))) if op.kind == TOP_K else frozenset[int]()
        needs.append(summed | moved | ranked | read | made | _left_out(op, dims, places))
        if op.kind not in CUTS:
            windows |= moved
    shared = {loop for each in dims.values() for row in each if len(row) > 1 for loop in row}
    blocked = tuple(atom.blocked or (atom.overlaid and n in shared) for n, atom in enumerate(found))
    views = _views(ops, dims, blocked)
    return Nest(
        sizes=tuple(atom.size for atom in found),
        blocked=blocked,
        dims=dims,
        sums={loop: frozenset(values) for loop, values in sums.items()},
        needs=tuple(needs),
        tensors=tuple((*op.operands, *op.results) for op in ops),
        windows=frozenset(windows),
        places=places,
        views=views,
        opened=frozenset(n for n, behind in views.items() if blocked[n] and _is_open(graph, ops, dims, n, behind)),
        gathers=_gathers(ops, dims),
        cuts=cuts,
        ends=frozenset(cuts) - given,
    )


def _views(ops: Sequence[Op], dims: Mapping[int, Dims], blocked: Sequence[bool]) -> dict[int, frozenset[int]]:
    """By minor loop of the dims that are viewed as several, or a major one that is blocked, and by that of what is
    ranked, the values behind: some of that XLA ranks on all devices alike, but for parts that these cut out before. But
    for products: what these read otherwise than it lies, others bring there.
    """
    found: dict[int, list[Op]] = {}
    for op in ops if PRODUCTS.isdisjoint(op.kind for op in ops) else ():
        for dim in dims[op.operands[0]] if op.kind == RESHAPE else ():
            whole = {loop for own in dims[op.results[0]] if len(own) > 1 for loop in own}
            for loop in {*dim[1:], *(loop for loop in dim[:1] if len(dim) > 1 and blocked[loop])} - whole:
                found.setdefault(loop, []).append(op)
        for loop in (each for dim in dims[op.results[0]][:-1] for each in dim) if op.kind == TOP_K else ():
            found.setdefault(loop, []).append(op)
    return {loop: _after(ops, several, dims) for loop, several in found.items()}


def _is_open(graph: Graph, ops: Sequence[Op], dims: Mapping[int, Dims], loop: int, behind: frozenset[int]) -> bool:
    """Whether nothing that is computed of the values behind a view needs all of a loop of these on each device."""
    laid = {value for value, each in dims.items() if any(each)}
    own = [op for op in ops if behind.issuperset(laid.intersection(op.operands).union(op.results))]
    if len(own) == len(ops):
        return False
    alone = _of(graph, own)
    places = ((value, at) for value in behind for at, loops in enumerate(dims[value]) if loop in loops)
    rows = [(dims[value][at], alone.dims.get(value, ((0,) * 2,) * (at + 1))[at]) for value, at in places]
    return all(len(whole) == len(own) == 1 and not alone.blocked[own[0]] for whole, own in rows)


def _gathers(ops: Sequence[Op], dims: Mapping[int, Dims]) -> dict[int, frozenset[int]]:
    """By loop that is the major one of a dim before a reshape and a minor one behind it, where a part of one dim is
    joined to another, the values behind that, in kernels of products: no layout of these goes on there.
    """
    found: dict[int, list[Op]] = {}
    for op in ops if not PRODUCTS.isdisjoint(op.kind for op in ops) else ():
        for loop in _joined(dims[op.operands[0]], dims[op.results[0]]) if op.kind == RESHAPE else ():
            found.setdefault(loop, []).append(op)
    return {loop: _after(ops, several, dims) for loop, several in found.items()}


def _joined(given: Dims, made: Dims) -> Iterator[int]:
    """Of dims of which parts are joined to others the loops that are major ones no more."""
    whole = [set(dim) for dim in given]
    for dim in made:
        parts = [own for own in whole if not own.isdisjoint(dim)]
        if len(parts) > 1 and any(own - {*dim} for own in parts):
            yield from {own[0] for own in given if own} & {*dim[1:]}


def _loops(number: Mapping[int, int], own: Sequence[Atom], factors: Iterable[int]) -> frozenset[int]:
    """The numbers of the loops that some factors are."""
    return frozenset(number[id(leaf)] for leaf in leaves(own[factor] for factor in factors) if id(leaf) in number)


def _loops_at(dims: Mapping[int, Dims], values: Sequence[int], places: Iterable[int]) -> frozenset[int]:
    """The loops that the first of some values has at these places among its dims."""
    return frozenset(loop for place in places for loop in dims[values[0]][place])


def _places(graph: Graph, dims: Mapping[int, Dims]) -> dict[int, frozenset[int]]:
    """By value the loops of its dims of one place."""
    rows = ((value, zip(graph.shape(value), each, strict=True)) for value, each in dims.items())
    found = ((value, frozenset(loop for size, loops in row if size == 1 for loop in loops)) for value, row in rows)
    return {value: loops for value, loops in found if loops}


def _left_out(op: Op, dims: Mapping[int, Dims], places: Mapping[int, frozenset[int]]) -> frozenset[int]:
    """The loops of which an operation reads one place that it leaves nowhere: all devices need that then."""
    read = frozenset[int]().union(*(places.get(value, frozenset()) for value in op.operands))
    return read - {loop for value in op.results for dim in dims[value] for loop in dim} if read else read


def _after(ops: Sequence[Op], first: Sequence[Op], dims: Mapping[int, Dims]) -> frozenset[int]:
    """The values that come after operations: their results, what is made of them, and what else goes into that, but
    for numbers: where something is put may be where something was cut out before.
    """
    makers = {value: op for op in ops for value in op.results}
    readers: dict[int, list[Op]] = {}
    for op in ops:
        for value in op.operands:
            readers.setdefault(value, []).append(op)
    seen: set[int] = set()
    waiting = [value for op in first for value in op.results]
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        beside = _beside(value, first, makers, readers)
        waiting.extend(each for each, is_read in beside if any(dims[each]) or not is_read)
    return frozenset(seen)


def _beside(
    value: int, first: Sequence[Op], makers: dict[int, Op], readers: dict[int, list[Op]]
) -> Iterator[tuple[int, bool]]:
    """What stands beside a value, and whether it is read there."""
    maker = makers.get(value)
    if maker is not None and not any(maker is op for op in first):
        yield from ((each, True) for each in maker.operands)
    for op in readers.get(value, ()):
        if not any(op is each for each in first):
            yield from ((each, True) for each in op.operands)
            yield from ((each, False) for each in op.results)
