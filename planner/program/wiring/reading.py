"""What reading values takes: from where they are made, by one or by several, computed in passing or with a product."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from ...graph import Graph, Sharding, Value
from ...images import CONVOLUTION
from ...kernels import Kernel
from ...partition.layout import whole
from .apart import is_part
from .elsewhere import read_as_made, read_far, read_gathered, read_parts, read_rounded, spare_shared
from .going_on import forbid, stops
from .opened import forbid_cuts
from .ways import can_be_left, in_vain, ways_to
from .wires import Costs, Level, Node, Port, Sharing, Wiring, by_pairs, only_to

FEW = 64
"""Of steps of so many kernels at most all ways are choices: of longer ones they make proofs too long."""
WORTH = 2e-2
"""What part of all that kernels take at least a second step takes that is a way where plain values are read."""


def value_node(
    wiring: Wiring, level: Level, value: int, layouts: Sequence[Sharding] | None = None, repeats: int | None = None
) -> Port:
    """A node that only says how a value lies, among its candidates; it stands for as many as its level if not said."""
    rank = len(level.graph.values[value].shape)
    found = list(layouts or wiring.candidates.get(wiring.find((level.number, value)), ()) or [whole(rank)])
    own = level.repeats if repeats is None else repeats
    node = Node(
        level=level.number, costs=np.zeros(len(found)), layouts={value: found}, times=level.times * own, repeats=own
    )
    return Port(wiring.node(node), tuple(found))


def rounded_reads(wiring: Wiring, graph: Graph, kernel: Kernel) -> set[int]:
    """The float32 values that a kernel reads for its products alone, which round them; a GPU's do not."""
    if wiring.strategies.prices.pricing.machine.platform == "gpu":
        return set()
    blueprint, numbers = wiring.strategies.known.blueprint(graph, kernel)
    return {numbers[place] for place in blueprint.rounded}


def read(
    wiring: Wiring,
    level: Level,
    value: int,
    ports: Sequence[Port],
    *,
    narrow: bool,
    in_order: bool,
    wide: Port | None = None,
) -> Port | None:
    """One reader takes a value from where it is made; several share what it is brought into, but for what makes its
    next value, which lies as it does. What it is brought into, if it is read otherwise.

    ``narrow`` says that it is handed on as bfloat16, ``in_order`` is as in ``Reshards.table``. Where others have it
    brought into a layout as it is (``wide``), it is there for these as well.
    """
    source, known = level.source[value], level.graph.values[value]
    known = replace(known, dtype="bf16") if narrow else known
    is_cut = value in wiring.strategies.known.cuts.joined.get(id(level.graph), ())  # which says what a sum is spared
    made, pin = source if is_cut else level.made.get(value, source), level.pinned.get(value)
    rounded = narrow and value in level.graph.arguments  # what is made by a kernel is rounded in it
    ways: Sequence[Sharding | None] = ()
    read_parts(wiring, value, source, ports)
    read_gathered(wiring, value, source, ports)
    if narrow:
        read_rounded(wiring, value, source, ports)
        _round_copies(wiring, level, value, ports)
    for port in (each for each in ports if not level.number and (value, each.node) in wiring.updates):
        wiring.edge(source, port, known, wiring.handed(level, port.node), in_order=in_order, rounded=rounded)
    ports = [port for port in ports if level.number or (value, port.node) not in wiring.updates]
    if not ports:
        return None
    more, is_gpu = read_far(wiring, value, ports), wiring.strategies.prices.pricing.machine.platform == "gpu"
    if more and not level.number and not is_gpu:  # which copies what a step leaves, too
        known_s = wiring.far.get(value, {})
        wiring.far[value] = {lies: known_s.get(lies, 0.0) + more.get(lies, 0.0) for lies in {**known_s, **more}}
    copied = False
    if (len(ports) > 1 or wide) and len(wiring.candidates[wiring.find((level.number, value))]) > 1:
        times = wiring.handed(level, ports[0].node)
        offered = list(wiring.candidates[wiring.find((level.number, value))])
        has_names = len(wiring.levels) == 1 and not level.behind  # on the way: not in loops, nor behind barriers
        at_least_s = WORTH * wiring.least_s if has_names else math.inf
        is_short = len(level.program.kernels) <= FEW
        at_least_s = 0.0 if is_short and can_be_left(level, value) else at_least_s
        at_least_s = at_least_s if len(ports) > 1 else math.inf
        stopped = stops(wiring, level, value, offered, ports)
        copied = bool(more) and is_gpu  # where it is read as it is made, and nowhere else
        own = list(dict.fromkeys(source.layouts)) if stopped or copied else []
        shared, ways = _shared(wiring, level, value, known, source, offered, ports, own, at_least_s, wide)
        wiring.share(shared, value, ports)
        if own:
            passed = np.arange(len(shared.layouts)) < len(own)
            others = np.array([[one != other for other in shared.layouts] for one in source.layouts])
            wiring.hand_on(source, shared, np.where(others & passed | (copied & ~others & ~passed), np.inf, 0.0))
            forbid(wiring, stopped, shared, ways, len(own))
        forbid_cuts(wiring, source, ports)
        cut = _cut_whole(wiring, value, source, shared)
        wiring.edge(source, shared, known, times, in_order=in_order, rounded=rounded, unsent=cut)
        wiring.spare(made, shared, value, pin)
        if copied:
            read_as_made(wiring, value, shared, ports, len(own))
        else:
            spare_shared(wiring, source, shared, more)
        source = shared
    _write_pinned(wiring, level, value, ports[0] if source is level.source[value] else source)
    for port in ports:
        times = wiring.handed(level, port.node)
        as_made = source is level.source[value]
        node = wiring.nodes[port.node]
        if not as_made:
            _put_brought(wiring, level.source[value], port)
        lying = None if copied else _lying(node, value, as_made=as_made)
        every = (each(wiring, value, source, port) for each in (_put_apart, _cut_whole, _turned_back))
        more_s = [each for each in every if each is not None] if as_made else []
        unsent = np.sum(more_s, axis=0) if more_s else None
        wiring.edge(
            source,
            port,
            known,
            times,
            in_order=in_order,
            rounded=rounded,
            lying=lying,
            unsent=unsent,
            ways=ways,
            apart=as_made,
        )
        if as_made and len(ports) == 1:
            wiring.spare(made, port, value, pin)
            wiring.add_each_turn(source, port, value)
    return ports[0] if source is level.source[value] else source


def _round_copies(wiring: Wiring, level: Level, value: int, ports: Sequence[Port]) -> None:
    """Adds what rounding takes for a second operand that is sent, of an argument that the first is as it lies: what
    both are sent is rounded once.
    """
    of = wiring.strategies.known.copied_of(level.graph).get(value)
    if of is None or of not in level.graph.arguments:
        return
    for port in ports:
        source, first = level.source[of], wiring.nodes[port.node].layouts.get(of)
        if first is None:
            continue
        known, reshards, times = level.graph.values[of], wiring.reshards, wiring.handed(level, port.node)
        pairs = list(zip(first, port.layouts, strict=True))
        wiring.hand_on(
            source,
            port,
            times
            * np.array([[reshards.rounding_sent(known, s, b) * (a == s) for a, b in pairs] for s in source.layouts]),
        )


def _lying(node: Node, value: int, *, as_made: bool) -> Costs | None:
    """Seconds more of a node that reads a value as it lies. What several share may have been brought there:
    then no table costs more.
    """
    table, far = node.tables.get(value), node.far.get(value)
    if table is None or as_made:
        return far if table is None else table
    return np.minimum(table, 0.0) + (0.0 if far is None else far)


def _write_pinned(wiring: Wiring, level: Level, value: int, port: Port) -> None:
    """Adds what it takes to write what is pinned for the first that reads it otherwise, or a part of it."""
    seconds, pin = level.written.pop(value, None), level.pinned.get(value)
    if seconds is not None and seconds.any() and level.made[value].node != port.node:
        others = np.array([layout != pin for layout in port.layouts])
        wiring.join_up(level.made[value], port, seconds[:, None] * others[None, :])


def _put_apart(wiring: Wiring, value: int, source: Port, port: Port) -> Costs | None:
    """Seconds of putting into a stack what no kernel that makes it can put there, (choices of who makes it, of who puts
    it).
    """
    done, reader = wiring.nodes[source.node].done.get(value), wiring.nodes[port.node]
    if done is None or reader.apart is None or reader.in_passing:
        return None
    return np.where(done[:, None], reader.apart[None, :], 0.0)


def _put_brought(wiring: Wiring, made: Port, port: Port) -> None:
    """Adds what it takes one of several readers by itself that else another kernel computes in passing, as putting
    something into a stack is: no kernel does so with what is sent there from another layout. What is only cut is not.
    """
    reader = wiring.nodes[port.node]
    if reader.apart is not None and not reader.in_passing:
        is_cut = by_pairs(lambda lies, wanted: wiring.reshards.extends(wanted, lies), made.layouts, port.layouts)
        wiring.hand_on(made, port, np.where(is_cut, 0.0, reader.apart[None, :]))


def _cut_whole(wiring: Wiring, value: int, source: Port, port: Port) -> Costs | None:
    """Seconds of writing what else is computed in passing, where a part is cut out of it, (choices of both ends)."""
    whole = wiring.nodes[source.node].whole.get(value)
    if whole is None:
        return None
    return np.where(by_pairs(operator.ne, source.layouts, port.layouts), whole[:, None], 0.0)


def _turned_back(wiring: Wiring, value: int, source: Port, port: Port) -> Costs | None:
    """Seconds of turning rows that were scattered back where a part is cut out of them, (choices of both ends): as much
    as the scatter is spared for being given them as they lie.
    """
    less = [-np.minimum(each, 0.0) for each in wiring.nodes[source.node].tables.values()]
    if not less or not np.any(less):
        return None
    others = np.array([[one != other for other in port.layouts] for one in source.layouts])
    return np.where(others, np.sum(less, axis=0)[:, None], 0.0)


def read_end(wiring: Wiring, level: Level, value: int, port: Port, *, in_order: bool) -> None:
    """What ends a product is computed with it where it has that as it lies, and as it is pinned, else by itself. So it
    is where devices add the product up: of choices that are known roughly that much is known of their ends.
    ``in_order`` is as in ``Reshards.table``.
    """
    source, reader = level.source[value], wiring.nodes[port.node]
    pin, known = level.pinned.get(value), level.graph.values[value]
    made = wiring.nodes[source.node]
    ended, alone = (np.zeros(len(source.layouts)) if each is None else each for each in (made.ended, made.alone))
    table = partial(wiring.reshards.table, known, in_order=in_order)
    if pin is None:
        took = reader.times * table(source.layouts, port.layouts)
    else:
        there, back = (table(*ends) for ends in ((source.layouts, [pin]), ([pin], port.layouts)))
        took = reader.times * (there + back)
    sums = made.sums.get(value, ())
    added_up = {choice for choice in made.rough if sums and sums[choice] is not None}
    passes = [choice not in added_up and pin in (None, one) for choice, one in enumerate(source.layouts)]
    same = np.array(
        [[own and one == other for other in port.layouts] for own, one in zip(passes, source.layouts, strict=True)]
    )
    wiring.hand_on(source, port, np.where(same, ended[:, None], took + alone[:, None] + reader.costs[None, :]))
    if pin is not None:
        wiring.spare(source, Port(port.node, (pin,) * len(port.layouts)), value)
    wiring.spare(source, port, value, pin)
    reader.costs, reader.rough = np.zeros(len(reader.costs)), {}  # it costs so much for who has it by itself


def read_passing(
    wiring: Wiring,
    level: Level,
    value: int,
    ports: Sequence[Port],
    *,
    narrow: bool,
    alone: Costs,
    wide: Port | None = None,
    for_parts: bool = False,
) -> Port:
    """Those that compute a value in passing do so where they have it as it lies; else it is written, which takes so
    long ``alone``, and they are handed it. What it is brought into for several is either of these too, and so is what
    is pinned. As it lies nothing would have it written, but for convolutions, which put parts of it together, and for
    those who cut a part out of it where others do not (``for_parts``): it is said then who has it otherwise, of whom
    others need not compute it. Where another has it brought into a layout as it is (``wide``), it is there. What it is
    brought into.
    """
    source, reshards = level.source[value], wiring.reshards
    known = level.graph.values[value]
    known = replace(known, dtype="bf16") if narrow else known
    passing, pin = np.ones(len(source.layouts), bool), level.pinned.get(value)
    for_parts, when_cut = for_parts and pin is None, alone
    otherwise: dict[int, slice] = {}  # by its place the choices that say that a port has it otherwise
    ways: Sequence[Sharding | None] = ()
    if len(ports) > 1 or pin is not None or wide is not None:
        written = list(wiring.candidates[wiring.find((level.number, value))]) if pin is None else [pin]
        as_made = [each for each in dict.fromkeys(source.layouts) if pin in (None, each)]
        times = wiring.handed(level, ports[0].node)
        stopped = stops(wiring, level, value, written, ports)
        as_it_lies = as_made if stopped else []  # written as it is made, from where all go on
        for_others = [as_made] * len(ports) if for_parts else []  # written because one of them has it otherwise
        first, count = len(as_made) + len(as_it_lies), len(as_made)
        otherwise = {at: slice(first + at * count, first + (at + 1) * count) for at in range(len(for_others))}
        own_layouts = [*as_made, *as_it_lies, *chain.from_iterable(for_others)]
        shared, ways = _shared(wiring, level, value, known, source, written, ports, own_layouts, wide=wide)
        wiring.share(shared, value, ports)
        took = times * reshards.table(known, source.layouts, shared.layouts) + alone[:, None]
        same = np.array([[one == other for other in shared.layouts] for one in source.layouts])
        place = np.arange(len(shared.layouts))
        passed, own = place < count, place < len(own_layouts)
        lying = took if _convolves(level, ports) else np.where(own, took, np.inf)
        took = np.where(same, np.where(passed, 0.0, lying), np.where(own, np.inf, took))
        if shared.node in wiring.along:  # what lies there as it is made, nobody brings there
            along = list(wiring.along[shared.node].choices)
            took[:, along] = np.where(same[:, along], np.inf, 0.0)
        wiring.hand_on(source, shared, took, None if pin is None else source.node)  # who makes it brings it there
        wiring.write(source, shared, np.where(same & np.isfinite(took), took, 0.0))
        forbid(wiring, stopped, shared, ways, len(own_layouts))
        made_s = [alone[source.layouts.index(each)] for each in as_made]
        alone = np.array([*made_s, *(0.0 for _ in shared.layouts[len(as_made) :])])
        when_cut = np.full(len(shared.layouts), np.inf)
        passing = passed
        source = shared
    for at, port in enumerate(ports):
        reader = wiring.nodes[port.node]
        saving = np.minimum(reader.savings.get(value, np.zeros(len(port.layouts))), reader.costs)
        reader.costs = reader.costs - saving
        took = wiring.handed(level, port.node) * reshards.table(known, source.layouts, port.layouts)
        in_place = np.where(passing[:, None], saving[None, :], 0.0)
        took = np.where(took > 0, took + alone[:, None], in_place)
        if for_parts:
            is_cut = by_pairs(is_part, source.layouts, port.layouts)
            took = took + np.where(is_cut & passing[:, None], when_cut[:, None], 0.0)
            said = otherwise.get(at, slice(0))
            took[said] = np.where(by_pairs(operator.ne, source.layouts[said], port.layouts), took[said], np.inf)
        wiring.hand_on(source, port, only_to(ways, source, port, took))
    return ports[0] if source is level.source[value] else source


def _shared(
    wiring: Wiring,
    level: Level,
    value: int,
    known: Value,
    source: Port,
    offered: Sequence[Sharding],
    ports: Sequence[Port],
    as_made: Sequence[Sharding],
    at_least_s: float = 0.0,
    wide: Port | None = None,
) -> tuple[Port, list[Sharding | None]]:
    """A node for what several readers share a value in: ``as_made``, as it is brought into a layout for others
    (``wide``), or in one of the layouts offered, from where each goes on; and by its choices the layout into which it
    is brought on once for all of them, if that is what it says: in a second step that takes so many seconds at least.
    """
    first, times = wiring.nodes[ports[0].node], wiring.handed(level, ports[0].node)
    on = ways_to(wiring, known, source.layouts, offered) if len(level.program.kernels) <= FEW else []
    on = [way for way in on if times * way.then_s >= at_least_s]
    there = [each for each in offered if wide is not None and each in wide.layouts]
    shared = value_node(wiring, level, value, [*as_made, *there, *offered, *(way.by for way in on)], first.repeats)
    fixed = len(as_made) + len(there) + len(offered)
    wiring.nodes[shared.node].costs = np.array([0.0] * fixed + [times * way.then_s for way in on])
    if on:
        wiring.hand_on(source, shared, in_vain(wiring, known, source.layouts, fixed, on))
    ways = [None] * fixed + [way.to for way in on]
    wiring.ways[shared.node] = ways
    if wide is not None:
        wiring.take_along(wide, shared, range(len(as_made), len(as_made) + len(there)))
    if not on:
        wiring.sharing[shared.node] = Sharing(
            value=value,
            known=known,
            source=source,
            layouts=shared.layouts,
            offered=tuple(offered),
            ports=tuple(ports),
            times=times,
        )
    return shared, ways


def _convolves(level: Level, ports: Sequence[Port]) -> bool:
    """Whether some of what reads at these ports convolves."""
    nodes = {port.node for port in ports}
    kernels = (level.program.kernels[position] for position, number in level.kernels.items() if number in nodes)
    return any(level.graph.ops[number].kind == CONVOLUTION for kernel in kernels for number in kernel.ops)
