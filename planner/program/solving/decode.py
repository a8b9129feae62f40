"""What a solution of the program says of every value, and the step's graph so laid out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...fusion.behind import Waits
from ...fusion.nature import BARRIER, PRODUCTS
from ...graph import Graph, Op, Origin, Sharding, Value
from ...partition.layout import whole
from ...partition.wishes import Wishes
from ..step.passing import own_ops
from ..wiring.going_on import goes_on
from ..wiring.ways import can_be_left
from ..wiring.wires import LOOPS, Level, Wiring
from .once import computed_once, unread

Label = Callable[[int, Origin], Origin]
_End = tuple[Sharding | None, bool]
_Taken = tuple[int, Sharding, Waits, Sharding | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidOut:
    """A solution on one level. ``layouts`` has that of each value, ``wanted`` those that operations read otherwise,
    ``brought`` are the values that are made otherwise and brought there once for all.

    ``wanted`` is by operation and value, as is ``through``, the layout in between that others share; ``between`` has
    the values that a plan can leave in that, so that what is brought on is shared too; ``nodes`` has the
    first node that computes each operation, ``asking`` that which is told to ask for what several share, by value,
    layout, what it waits for and the layout that it goes through; ``LOOPS`` for what loops carry.
    """

    layouts: dict[int, Sharding]
    brought: frozenset[int]
    wanted: dict[tuple[int, int], Sharding]
    through: dict[tuple[int, int], Sharding]
    between: dict[int, Sharding]
    nodes: dict[int, int]
    asking: dict[_Taken, int]


def laid_out(wiring: Wiring, level: Level, choices: Sequence[int]) -> LaidOut:
    """The layout of each value of a level: as it is made, else as the first kernel that computes it has it."""
    found: dict[int, Sharding] = {}
    wanted: dict[tuple[int, int], Sharding] = {}
    shared: dict[tuple[int, int], Sharding] = {}
    nodes: dict[int, int] = {}
    first: dict[int, Sharding] = {}
    for value, port in level.source.items():
        found[value] = port.layouts[choices[port.node]]
    found |= {value: level.pinned[value] for value in level.made}
    for position, number in level.kernels.items():
        rows = wiring.nodes[number].layouts
        for value, layouts in rows.items():
            found.setdefault(value, layouts[choices[number]])
        for at in own_ops(level.graph, level.program.kernels[position]):
            nodes.setdefault(at, number)
            made = level.graph.ops[at].results if nodes[at] == number else ()
            first.update((value, rows[value][choices[number]]) for value in made)
            for value in level.graph.ops[at].operands:
                wanted.setdefault((at, value), rows[value][choices[number]])
                by = wiring.through.get((number, value))
                if by is not None:
                    shared.setdefault((at, value), wiring.nodes[by].layouts[value][choices[by]])
    wanted |= {key: layout for key, layout in level.asked.items() if key in wanted}
    found |= _as_computed(level, found, first, wanted)
    wanted = {key: want for key, want in wanted.items() if want != found[key[1]]}
    through = _leading(wiring, level, found, wanted, shared)
    asking = _asking(wiring, level, choices)
    return LaidOut(
        layouts=found,
        brought=frozenset(value for value, layout in first.items() if layout != found[value]),
        wanted=wanted,
        through=through,
        between=_between(level, wanted, through),
        nodes=nodes,
        asking=asking,
    )


def _as_computed(
    level: Level,
    found: Mapping[int, Sharding],
    first: Mapping[int, Sharding],
    wanted: Mapping[tuple[int, int], Sharding],
) -> dict[int, Sharding]:
    """What the first kernel to compute a value in passing reads of it itself, and another leaves otherwise, to be read
    so: it lies as it is computed, and is brought elsewhere once, for who reads it there.
    """
    wants: dict[int, set[Sharding]] = {}
    for (_, value), want in wanted.items():
        wants.setdefault(value, set()).add(want)
    kept = {*level.graph.results, *level.made, *level.pinned}
    return {
        value: layout
        for value, layout in first.items()
        if layout != found[value] and value not in kept and wants.get(value) == {layout, found[value]}
    }


def _leading(
    wiring: Wiring,
    level: Level,
    made: Mapping[int, Sharding],
    wanted: Mapping[tuple[int, int], Sharding],
    shared: Mapping[tuple[int, int], Sharding],
) -> dict[tuple[int, int], Sharding]:
    """Those ``shared`` layouts through which bringing a value into the one ``wanted`` takes less than doing so at once.

    What it takes to bring it there counts where nothing reads it so before or behind the same barrier. A plan says one
    layout of what is read: a product has to be one that the compiler brings from there into the one wanted. Where
    something else is brought into that at once, that is there for all.
    """
    graph, seconds = level.graph, wiring.reshards.seconds

    def waits(key: tuple[int, int]) -> Waits:
        made = graph.ops[key[0]].results
        return level.behind.get((made[0], key[1]), ()) if level.behind and made else ()

    read = {(key[1], want, waits(key)) for key, want in wanted.items()}
    found: dict[tuple[int, int], Sharding] = {}
    for key, want in wanted.items():
        by, value, lies = shared.get(key), graph.values[key[1]], made[key[1]]
        if by is None or by in (lies, want):
            continue
        before_s = 0.0 if (key[1], by, waits(key)) in read else seconds(value, lies, by)
        is_less = before_s + seconds(value, by, want) < seconds(value, lies, want)
        if is_less and _goes_on(wiring, level, made, wanted, key, by):
            found[key] = by
    at_once = {(key[1], want, waits(key)) for key, want in wanted.items() if key not in found}
    return {key: by for key, by in found.items() if (key[1], wanted[key], waits(key)) not in at_once}


def _goes_on(
    wiring: Wiring,
    level: Level,
    made: Mapping[int, Sharding],
    wanted: Mapping[tuple[int, int], Sharding],
    key: tuple[int, int],
    by: Sharding,
) -> bool:
    """Whether the compiler brings what an operation reads from a layout into the one wanted, and that alone."""
    graph, op = level.graph, level.graph.ops[key[0]]
    if op.kind not in PRODUCTS:
        return True
    layouts = {each: wanted.get((key[0], each), made[each]) for each in op.operands}
    layouts |= {each: made[each] for each in op.results}
    return goes_on(graph, op, layouts, key[1], by, wiring.reshards, Wishes(graph).shared(op, made))


def _between(
    level: Level, wanted: Mapping[tuple[int, int], Sharding], through: Mapping[tuple[int, int], Sharding]
) -> dict[int, Sharding]:
    """The values that several operations read in one layout through another, and that can be left in that."""
    found = dict[int, Sharding]()
    for value in dict.fromkeys(value for _, value in through):
        keys = [(number, value) for number, op in enumerate(level.graph.ops) if value in op.operands]
        by = {through.get(key, wanted.get(key)) for key in keys}
        wants = Counter(wanted[key] for key in keys if key in through)
        if len(by) == 1 and max(wants.values()) > 1 and can_be_left(level, value):
            found[value] = next(through[key] for key in keys if key in through)
    return found


def _asking(wiring: Wiring, level: Level, choices: Sequence[int]) -> dict[_Taken, int]:
    found: dict[_Taken, int] = {}
    kernels = {node: level.program.kernels[position] for position, node in level.kernels.items()}
    for shared, reader in wiring.shared.items():
        node = wiring.nodes[shared]
        for value, layouts in node.layouts.items() if node.level == level.number else ():
            waits = level.waits(kernels[reader], value) if reader in kernels else ()
            lies, ways = layouts[choices[shared]], wiring.ways.get(shared)
            along = wiring.along.get(shared)
            if along is not None and choices[shared] in along.choices:
                reader = wiring.shared.get(along.wide, along.wide)
            found[value, lies, waits, None] = asker = LOOPS if reader in wiring.carries else reader
            way = ways[choices[shared]] if ways is not None else None
            if way is not None:
                found[value, way, waits, lies] = asker
    return found


def laid_out_step(wiring: Wiring, choices: Sequence[int], label: Label, level: Level | None = None) -> Graph:
    """The step's graph with the layouts that a solution chose, and a reshard wherever one reads otherwise.

    ``label`` gives the origin of an operation by its node and its own, which says who asked for a collective.
    """
    level = level or wiring.levels[0]
    bodies = {
        level.program.kernels[position].ops[-1]: tuple(
            laid_out_step(wiring, choices, label, wiring.levels[number]) for number in inner
        )
        for position, inner in level.inner.items()
    }
    graph, found = replace(level.graph, values=level.values), laid_out(wiring, level, choices)
    once, found = computed_once(level, found, wiring.strategies.known.copied_of(level.graph))
    writer = _Writer(graph, found, label, wiring.reshards.mesh, level.behind, once)
    return writer.graph(bodies, _ends(wiring, level, choices))


def _ends(wiring: Wiring, level: Level, choices: Sequence[int]) -> list[_End]:
    """How the results of a level are to lie, where they are not as they are made; those of a body are for its loop."""
    if not level.number:
        ends = ended(wiring, choices)
        return [(ends.get(value), False) for value in level.graph.results]
    ports = [level.closed.get(position) for position in range(len(level.graph.results))]
    return [(port.layouts[choices[port.node]] if port is not None else None, True) for port in ports]


def ended(wiring: Wiring, choices: Sequence[int]) -> dict[int, Sharding]:
    """The layouts of the results that lie otherwise than they are made."""
    return {result: port.layouts[choices[port.node]] for result, port in wiring.ends.items()}


@dataclass(slots=True)
class _Writer:
    source: Graph
    found: LaidOut
    label: Label
    mesh: Mapping[str, int]
    behind: Mapping[tuple[int, int], Waits]
    once: Mapping[int, int] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    made: dict[tuple[int, Sharding, Waits, int | None], int] = field(default_factory=dict)
    parted: set[tuple[int, Sharding, Waits]] = field(default_factory=set)
    kept: dict[tuple[int, Waits], int] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)

    def graph(self, bodies: dict[int, tuple[Graph, ...]], ends: Sequence[_End]) -> Graph:
        """The graph, with these bodies for its loops; ``ends`` says how results lie, and whether a loop asks for it."""
        for number, value in enumerate(self.source.values):
            self.values.append(replace(value, sharding=self.found.layouts.get(number, whole(len(value.shape)))))
        left = unread(self.source, self.once)
        for number, op in enumerate(self.source.ops):
            if number in left:
                continue
            if number in self.found.nodes:
                op = replace(op, origin=self.label(self.found.nodes[number], op.origin))
            operands = tuple(self._read(number, op, value) for value in op.operands)
            self.ops.append(replace(op, operands=operands, bodies=bodies.get(number, op.bodies)))
            self.known.update(op.results)
        results = tuple(
            self._laid(value, layout, replace(self._maker(value), source=None) if of_loop else self._maker(value))
            for value, (layout, of_loop) in zip(self.source.results, ends, strict=True)
        )
        return replace(self.source, values=tuple(self.values), ops=tuple(self.ops), results=results, mesh=self.mesh)

    def _maker(self, value: int) -> Origin:
        return next((op.origin for op in reversed(self.ops) if value in op.results), Origin())

    def _read(self, number: int, op: Op, value: int) -> int:
        waits = self.behind.get((op.results[0], value), ()) if self.behind and op.results else ()
        key = (number, value)
        by = self.found.through.get(key)
        alone = number if by is not None and value not in self.found.between else None
        want = self.found.wanted.get(key, self.found.layouts[value] if value in self.once else None)
        return self._laid(self.once.get(value, value), want, op.origin, waits, by, alone)

    def _laid(
        self,
        value: int,
        want: Sharding | None,
        origin: Origin,
        waits: Waits = (),
        by: Sharding | None = None,
        alone: int | None = None,
    ) -> int:
        """What a value is brought into, by way of a layout that others share, ``alone`` for the operation that reads
        it: where constraints say what several read, each of these is brought on, if only for the compiler to share it
        again (``same_gathers``); then the first of them asks for it.
        """
        lies = self._behind(value, waits, origin) if waits else value
        if by is not None:
            lies = self._laid(value, by, origin, waits)
        if want is None or want == self.values[value].sharding:
            return lies
        key = (lies, want, waits, alone)
        if key not in self.made:
            is_first = alone is None or (lies, want, waits) not in self.parted
            self.parted.add((lies, want, waits))
            asker = self.found.asking.get((value, want, waits, by)) if is_first else None
            if asker is not None:
                origin = replace(origin, source=None) if asker == LOOPS else self.label(asker, origin)
            self.made[key] = len(self.values)
            self.values.append(replace(self.source.values[value], sharding=want))
            same = Op(kind="reshard", operands=(lies,), results=(self.made[key],), origin=origin)
            self.ops.append(same)
        return self.made[key]

    def _behind(self, value: int, waits: Waits, origin: Origin) -> int:
        """A value behind a barrier: what reads it there is not the same as what reads it before."""
        if (value, waits) not in self.kept:
            taken = (value, *(each for each in waits if each in self.known and each != value))
            first = len(self.values)
            self.values += [self.values[each] for each in taken]
            self.ops.append(
                Op(kind=BARRIER, operands=taken, results=tuple(range(first, first + len(taken))), origin=origin)
            )
            self.kept[value, waits] = first
        return self.kept[value, waits]
