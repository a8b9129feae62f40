"""The nodes of the program, and the edges on which they hand values on."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compute.counted import Counted
from ...fusion.behind import At as ReadAt
from ...fusion.behind import Waits
from ...graph import Graph, Sharding, Value
from ...kernels import Kernel, Program
from ...partition import Found
from ..pricing.costs import Sum
from ..pricing.options import EachTurn
from ..pricing.reshards import Reshards
from ..pricing.strategies import Strategies

Costs = NDArray[np.float64]
At = tuple[int, int]  # a level and a value of its graph
LOOPS = -1
"""In the place of a node: what loops and branches ask for at their ends."""


@dataclass(slots=True, kw_only=True)
class Node:
    """Something that is decided. ``costs`` are seconds of a step of each choice; ``apart`` those more where what it
    hands on or is handed is resharded, of a kernel that is free but for that.

    What is computed ``in_passing`` by those that it is handed to is ``apart`` only where what it hands on is not as
    they have it, or takes what it does ``after`` a product; these then take less by ``savings``, by the value. What
    reads a value as it lies that was scattered into takes more by ``tables``, and one that lies ``far``, in the large
    memory, or of which ``parts`` are cut there, or that was gathered of pieces that lie ``across``, and less where one
    was ``rounded`` for its products. What is added up behind a loop is so ``each_turn`` where it is read otherwise than
    it is made. Under choices under which a value is ``done`` nothing later is computed with it: it is put into a stack
    by a kernel of its own. What is computed in passing takes ``whole`` more where a device's part is cut out of it.
    Choices that are ``rough`` cost so much more, about, until they are made and priced; of what was rough nothing is
    known to be saved (``unsaved``). From those ``deterred`` a search is kept as if they cost so much more.

    ``layouts`` has, for each value of its level that it lays out, the layout under each choice. ``stems`` is what a
    kernel is called but for its turn (``ties``), None of a value, ``paths`` those that it may share with others. It is
    run ``times`` a step, those among them that it stands for besides itself (``repeats``).
    """

    level: int
    costs: Costs
    layouts: dict[int, list[Sharding]]
    apart: Costs | None = None
    after: Costs | None = None
    in_passing: bool = False
    savings: Mapping[int, Costs] = field(default_factory=dict)
    tables: Mapping[int, Costs] = field(default_factory=dict)
    far: Mapping[int, Costs] = field(default_factory=dict)
    parts: Mapping[int, Costs] = field(default_factory=dict)
    across: Mapping[int, Costs] = field(default_factory=dict)
    rounded: Mapping[int, Costs] = field(default_factory=dict)
    ended: Costs | None = None
    alone: Costs | None = None
    sums: Mapping[int, Sequence[Sum | None]] = field(default_factory=dict)
    each_turn: Mapping[int, EachTurn] = field(default_factory=dict)
    done: Mapping[int, NDArray[np.bool_]] = field(default_factory=dict)
    whole: Mapping[int, Costs] = field(default_factory=dict)
    rough: dict[int, float] = field(default_factory=dict)
    deterred: Mapping[int, float] = field(default_factory=dict)
    unsaved: frozenset[int] = frozenset()
    times: int = 1
    repeats: int = 1
    stems: Hashable = None
    paths: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Port:
    """A value as a node makes or wants it: the layout under each of the node's choices."""

    node: int
    layouts: tuple[Sharding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """A value that several readers share: from where it is made, in layouts of which the last are those ``offered``, to
    their ``ports``, handed on ``times`` times a step.
    """

    value: int
    known: Value
    source: Port
    layouts: tuple[Sharding, ...]
    offered: tuple[Sharding, ...]
    ports: tuple[Port, ...]
    times: int


class Along(NamedTuple):
    """The choices of a node under which what several read rounded lies as it is brought for others, to whose node."""

    choices: range
    wide: int


@dataclass(slots=True, kw_only=True)
class Wiring:
    """Nodes, and the table of seconds for each pair of them between which values are handed on.

    ``shared`` has the nodes of values that several readers share, each with the first of these, ``sharing`` what they
    are in between, ``ways`` by their choices the layout into which they bring it on, ``along`` those of what is read
    rounded that is there as it is, ``through`` by reader and value the one that it reads through, ``carries`` those of
    what goes into loops and branches and comes out of them;
    ``candidates`` the layouts that a value may have, ``same`` those that have the same ones; ``pins`` the layouts by
    path that are not to be chosen; ``ends`` how results of the step lie that have to lie otherwise than they are made;
    ``updates`` the step's arguments whose next value a node makes, with that; ``opened`` the nodes of arguments that
    loops only read, which are cut before a loop and not in it, ``rounded`` those of what loops are given converted;
    ``together`` has what of an edge's table both ends take more as one (``join_up``), less where sums are cut,
    ``writing`` what of it writes the value where it is made, ``closing`` what brings it into a loop's carry,
    ``scattered`` the nodes that make these and the values; ``far`` what reading values as they lie takes more.
    ``least_s`` is what the kernels take at least. ``partitioned`` and ``counted`` are what whole prices of solutions
    have in common.
    """

    reshards: Reshards
    strategies: Strategies
    nodes: list[Node] = field(default_factory=list)
    tables: dict[tuple[int, int], Costs] = field(default_factory=dict)
    shared: dict[int, int] = field(default_factory=dict)
    sharing: dict[int, Sharing] = field(default_factory=dict)
    ways: dict[int, Sequence[Sharding | None]] = field(default_factory=dict)
    along: dict[int, Along] = field(default_factory=dict)
    through: dict[tuple[int, int], int] = field(default_factory=dict)
    carries: set[int] = field(default_factory=set)
    readers: dict[tuple[int, int], int] = field(default_factory=dict)
    sources: dict[tuple[int, int], int] = field(default_factory=dict)
    closing: dict[tuple[int, int], Costs] = field(default_factory=dict)
    levels: list[Level] = field(default_factory=list)
    pins: Mapping[str, Sharding] = field(default_factory=dict)
    ends: dict[int, Port] = field(default_factory=dict)
    updates: set[tuple[int, int]] = field(default_factory=set)
    candidates: dict[At, dict[Sharding, None]] = field(default_factory=dict)
    same: dict[At, At] = field(default_factory=dict)
    opened: set[int] = field(default_factory=set)
    rounded: set[int] = field(default_factory=set)
    together: dict[tuple[int, int], Costs] = field(default_factory=dict)
    writing: dict[tuple[int, int], Costs] = field(default_factory=dict)
    scattered: set[tuple[int, int, bool]] = field(default_factory=set)
    far: dict[int, dict[Sharding, float]] = field(default_factory=dict)
    least_s: float = 0.0
    partitioned: Found = field(default_factory=Found)
    counted: Counted = field(default_factory=Counted)

    def node(self, node: Node) -> int:
        """Adds a node, and gives its number."""
        self.nodes.append(node)
        return len(self.nodes) - 1

    def handed(self, level: Level, reader: int) -> int:
        """How often a step a value of a level is handed to a node: what a loop begins with each time that it begins,
        and not each turn.
        """
        node = self.nodes[reader]
        return node.times * level.times // self.levels[node.level].times

    def share(self, shared: Port, value: int, ports: Sequence[Port]) -> None:
        """Several read a value through a node that says what it is brought into; the first asks for that."""
        self.shared[shared.node] = self.shared.get(ports[0].node, ports[0].node)
        self.through |= {(self.shared.get(port.node, port.node), value): shared.node for port in ports}

    def take_along(self, wide: Port, shared: Port, choices: range) -> None:
        """Under some choices of what several share a value in, it is there since others have it brought there."""
        self.along[shared.node] = Along(choices=choices, wide=wide.node)
        others = np.array([[lies != there for there in shared.layouts] for lies in wide.layouts])
        taken = np.isin(np.arange(len(shared.layouts)), choices)
        self.hand_on(wide, shared, np.where(others & taken, np.inf, 0.0))

    def edge(
        self,
        source: Port,
        target: Port,
        value: Value,
        times: int,
        *,
        as_it_lies: bool = False,
        in_order: bool = True,
        result: int = 0,
        rounded: bool = False,
        lying: Costs | None = None,
        unsent: Costs | None = None,
        ways: Sequence[Sharding | None] = (),
        apart: bool = True,
    ) -> None:
        """Adds what handing a value on takes; ``as_it_lies`` allows no other layout, ``in_order`` and ``result`` say
        what it is for (``Reshards.table``). One that is ``rounded`` is written as bfloat16 before it is sent. It
        takes so much more ``lying`` where it is read as it lies, and ``unsent`` where nothing is sent, by the choices
        of the target or of both; what the target takes ``apart`` comes on top where anything is.
        Some choices of the source may be ``ways`` (``only_to``).
        """
        (ours, rows), (theirs, columns) = _numbered(source.layouts), _numbered(target.layouts)
        same = _same(ours, theirs)
        seconds = times * self.reshards.table(value, ours, theirs, in_order=in_order, result=result)
        if rounded:
            for a, b in np.argwhere(seconds > 0).tolist():
                seconds[a, b] += times * self.reshards.rounding_sent(value, ours[a], theirs[b])
        if target.node in self.carries - self.rounded:  # what is only cut is written, for a loop reads it from memory
            cut = times * np.array([[self.reshards.cutting(value, layout)] for layout in theirs]).T
            seconds = np.where(~same & (seconds == 0), cut, seconds)
        if as_it_lies:
            further = target.node in self.opened and np.array(
                [[self.reshards.extends(b, a) for b in theirs] for a in ours]
            )
            seconds = np.where(same, 0.0, np.where(further, seconds, np.inf))
        elif source.node in self.opened and not self.strategies.prices.pricing.counted:
            seconds = np.where(~same & [[self.reshards.extends(b, a) for b in theirs] for a in ours], np.inf, seconds)
        full = seconds[np.ix_(rows, columns)]
        alone = self._apart(source)[:, None] + (self._apart(target)[None, :] if apart else 0.0)
        full = np.where(full > 0, full + alone, full)
        if unsent is not None:
            full = np.where(full > 0, full, full + unsent)
        if lying is not None:
            full = np.where(same[np.ix_(rows, columns)], full + lying[None, :], full)
        if target.node in self.along:
            full[:, list(self.along[target.node].choices)] = 0.0
        self.hand_on(source, target, only_to(ways, source, target, full))

    def hand_on(self, source: Port, target: Port, full: Costs, asker: int | None = None) -> None:
        """Adds what handing on takes, seconds by the choices of both ends; who is said to ask for that, if not who
        would be.
        """
        if source.node == target.node:
            self.nodes[source.node].costs = self.nodes[source.node].costs + np.diagonal(full)
            return
        key = (source.node, target.node)
        asker = self._asker(source.node, target.node) if asker is None else asker
        if key[0] > key[1]:
            key, full = (key[1], key[0]), full.T
        if asker == LOOPS and self.readers.get(key, LOOPS) != LOOPS:  # a body's result, which it reads as its carry
            self.closing[key] = self.closing[key] + full if key in self.closing else full
        else:
            self.readers[key], self.sources[key] = asker, source.node
        self.tables[key] = self.tables[key] + full if key in self.tables else full

    def write(self, source: Port, target: Port, part: Costs) -> None:
        """Says what part of handing on is writing by what makes it, and not by who asks for it."""
        key = (min(source.node, target.node), max(source.node, target.node))
        self.writing[key] = part if source.node == key[0] else part.T

    def spare(self, source: Port, target: Port, value: int, pin: Sharding | None = None) -> None:
        """What is cut of a sum by all that read it no device needs whole: a reduce-scatter takes less.

        Where several read it, as it is and rounded, the first is taken to speak for all: the others may need it whole.
        What is pinned is read so where it is made as it is pinned, and else is brought into that (``pin``) first.
        """
        sums, known = self.nodes[source.node].sums.get(value), (source.node, value, pin is None)
        if sums is None or source.node == target.node or not any(sums) or known in self.scattered:
            return
        less = self.nodes[source.node].times * self.reshards.spared(sums, source.layouts, target.layouts)
        if pin is not None:
            less = np.where([[each == pin] for each in source.layouts], less, 0.0)
        if less.any():
            self.scattered.add(known)
            self.join_up(source, target, -less)

    def add_each_turn(self, source: Port, target: Port, value: int) -> None:
        """What is added up behind a loop is so where the loop has it as it is made: else it is in every turn."""
        made = self.nodes[source.node]
        if value not in made.each_turn or source.node == target.node:
            return
        more, sums = made.each_turn[value]
        others = by_pairs(operator.ne, source.layouts, target.layouts)
        spared = made.times * self.reshards.spared(sums, source.layouts, target.layouts)
        self.join_up(source, target, np.where(others, np.maximum(more[:, None] - spared, 0.0), 0.0))

    def join_up(self, source: Port, target: Port, more: Costs) -> None:
        """Adds what two nodes take more together than apart, seconds by the choices of both."""
        self.hand_on(source, target, more)
        key = (min(source.node, target.node), max(source.node, target.node))
        more = more if source.node == key[0] else more.T
        self.together[key] = self.together.get(key, 0.0) + more

    def _apart(self, port: Port) -> Costs:
        node = self.nodes[port.node]
        return np.zeros(len(port.layouts)) if node.apart is None or node.in_passing else node.apart

    def _asker(self, source: int, target: int) -> int:
        """Who is told to ask for what handing on takes: the reader, or who makes what only has to lie somehow."""
        asker = self.shared.get(target, target)
        if asker == target and asker not in self.carries and self.nodes[target].stems is None:
            asker = source
        return LOOPS if asker in self.carries else asker

    def reader(self, ends: tuple[int, int]) -> int:
        """The node that asks for what an edge takes: the one that is handed a value, the first of several that share
        what it is brought into; ``LOOPS`` for what loops carry.
        """
        return self.readers[ends]

    def handing(self, ends: tuple[int, int]) -> tuple[int, int]:
        """The ends of an edge, the one that is handed something last."""
        return ends if self.sources[ends] == ends[0] else (ends[1], ends[0])

    def find(self, at: At) -> At:
        """The representative of the values that are laid out from the same candidates."""
        while at in self.same:
            at = self.same[at]
        return at

    def join(self, left: At, right: At) -> None:
        """Two values are laid out from the same candidates."""
        a, b = self.find(left), self.find(right)
        if a != b:
            self.same[b] = a
            self.candidates.setdefault(a, {}).update(self.candidates.pop(b, {}))

    def offer(self, at: At, layouts: Iterable[Sharding]) -> None:
        """More candidates for a value."""
        self.candidates.setdefault(self.find(at), {}).update(dict.fromkeys(layouts))


def only_to(ways: Sequence[Sharding | None], source: Port, target: Port, seconds: Costs) -> Costs:
    """What handing on takes, (choices of the source, of the target), where some choices of the source are ``ways`` into
    one layout: whoever reads it has it so, which is paid for once, or as it lies on the way there.
    """
    if not any(way is not None for way in ways):
        return seconds
    there = [[lies in (way, by) for lies in target.layouts] for by, way in zip(source.layouts, ways, strict=True)]
    is_way = np.array([way is not None for way in ways])
    return np.where(is_way[:, None], np.where(there, 0.0, np.inf), seconds)


@dataclass(slots=True, kw_only=True)
class Level:
    """The step's program, or the body of a loop in it, run ``times`` times a step, and so often for each of the
    ``repeats`` that the loop stands for.

    ``kernels`` has the node of each plain kernel; ``inner`` the levels of the bodies of each loop. ``values`` are as
    the step has them: the program's are as narrow as what reads them allows. ``behind`` says what operations read
    behind barriers, ``masks`` which of them may leave bits. ``pinned`` are the layouts of what operations make that are
    not to be chosen, ``made`` how that is made before it is brought into them, ``written`` what writing it so takes by
    the choices of who makes it, for others to read it otherwise; ``asked`` those of what they read, by
    operation and value; ``closed`` by position what the results of a body are brought into.
    """

    number: int
    program: Program
    values: tuple[Value, ...]
    times: int
    repeats: int = 1
    kernels: dict[int, int] = field(default_factory=dict)
    inner: dict[int, list[int]] = field(default_factory=dict)
    source: dict[int, Port] = field(default_factory=dict)
    behind: Mapping[ReadAt, Waits] = field(default_factory=dict)
    masks: Collection[int] = ()
    pinned: Mapping[int, Sharding] = field(default_factory=dict)
    asked: Mapping[tuple[int, int], Sharding] = field(default_factory=dict)
    made: dict[int, Port] = field(default_factory=dict)
    written: dict[int, Costs] = field(default_factory=dict)
    closed: dict[int, Port] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        """The level's graph."""
        return self.program.graph

    def waits(self, kernel: Kernel, value: int) -> Waits:
        """What a kernel waits for before it reads a value: that is another one to the compiler than before a barrier,
        and resharded by itself.
        """
        if not self.behind:
            return ()
        ops = (self.graph.ops[number] for number in kernel.ops)
        found = (self.behind.get((op.results[0], value)) for op in ops if op.results)
        return next((waits for waits in found if waits), ())


def by_pairs(
    test: Callable[[Sharding, Sharding], bool], ours: Sequence[Sharding], theirs: Sequence[Sharding]
) -> NDArray[np.bool_]:
    """What a test says of each pair of layouts, (ours, theirs); of those that are alike it is asked once."""
    (own, rows), (others, columns) = _numbered(ours), _numbered(theirs)
    found = np.array([[test(a, b) for b in others] for a in own], np.bool_).reshape(len(own), len(others))
    return found[np.ix_(rows, columns)]


def _numbered(layouts: Sequence[Sharding]) -> tuple[list[Sharding], list[int]]:
    """The different ones, and the place of each among these."""
    places: dict[Sharding, int] = {}
    at = [places.setdefault(layout, len(places)) for layout in layouts]
    return list(places), at


def _same(ours: Sequence[Sharding], theirs: Sequence[Sharding]) -> NDArray[np.bool_]:
    """Which layouts are alike, of so many different ones and others."""
    found, places = np.zeros((len(ours), len(theirs)), np.bool_), {layout: i for i, layout in enumerate(theirs)}
    for number, layout in enumerate(ours):
        if layout in places:
            found[number, places[layout]] = True
    return found
