"""The wiring of a step: kernels, values that are handed on, and what resharding between them takes."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ...fusion.behind import Waits
from ...fusion.returned import is_stacked_over
from ...graph import Op, Sharding, Value
from ...kernels import Program, repeats_of, repeats_of_arguments
from ...partition.layout import whole
from ...partition.passes.turned import in_order
from ..pricing.reshards import Reshards
from ..pricing.strategies import REGION, Strategies
from ..step.passing import own_reads
from ..step.stems import shared_paths, stems
from .apart import Reading, is_for_parts, written_apart
from .elsewhere import spare_ends
from .ends import ending, even_layouts
from .inside import first_reads, hand_on_inside, handed_inside, write_parts_inside, write_parts_of_kernels
from .joined import join_cuts
from .joined_updates import join_turned
from .pinned import brought, lay_out_pinned, pinned, pinned_reads, wide_pins
from .reading import read, read_end, read_passing, rounded_reads, value_node
from .rounding import is_converted, round_before_loops
from .sent_once import send_once
from .two_images import sum_apart
from .viewed import pass_on_viewed
from .wires import LOOPS, Level, Node, Port, Wiring, by_pairs

LITTLE = 1e-3
"""What part of all that kernels take at least is no matter where parts are cut: who cuts may do it as soon before."""


def wire(
    program: Program,
    values: tuple[Value, ...],
    strategies: Strategies,
    reshards: Reshards,
    *,
    pins: Mapping[str, Sharding],
    returned: Mapping[int, int],
) -> Wiring:
    """The wiring of a step's program. ``values`` are as the step has them, ``pins`` fixes some by path; ``returned``
    has the argument (a value) in whose layout a result (a value) has to come back, unless that is pinned itself.
    """
    wiring = Wiring(reshards=reshards, strategies=strategies, pins=pins)
    _level(wiring, program, values, 1)
    wiring.least_s = sum(float(node.costs.min()) for node in wiring.nodes)
    top = wiring.levels[0]
    arguments, results = (
        {value: pins[name] for name, value in zip(names, several, strict=False) if name in pins}
        for names, several in ((top.graph.names, top.graph.arguments), (top.graph.result_names, top.graph.results))
    )
    returned = {result: argument for result, argument in returned.items() if result not in results}
    for result, argument in returned.items():
        wiring.join((0, argument), (0, result))
    for value, layout in (*results.items(), *arguments.items()):
        wiring.offer((0, value), [layout])
    for level in wiring.levels:
        for value, layout in level.pinned.items():
            wiring.offer((level.number, value), [layout])
        _join_loops(wiring, level)
    repeats = repeats_of_arguments(top.graph)
    for value in top.graph.arguments:
        given = [arguments[value]] if value in arguments else even_layouts(wiring, top, value)
        top.source[value] = value_node(wiring, top, value, given, repeats.get(value, 1))
    wiring.updates = set(_updates(wiring, top, returned))
    _hand_on(wiring, top)
    for result, argument in returned.items():
        wiring.ends[result] = top.source[argument]
    for result, layouts in ending(wiring, top, results).items():
        made = top.source.get(result)
        wiring.ends[result] = value_node(wiring, top, result, layouts, wiring.nodes[made.node].repeats if made else 1)
    for result, port in wiring.ends.items():
        again = sum(returned[result] in kernel.reads for kernel in program.kernels) > 1 if result in returned else False
        _connect(wiring, top, result, port, result=1 + again)
    spare_ends(wiring, top)
    _copy_stacked(wiring, top)
    return wiring


def _copy_stacked(wiring: Wiring, top: Level) -> None:
    """Adds the copies of what loops stack where an argument that they read lies (``fusion/returned``), as that does."""
    graph = top.graph
    makers = {value: op for op in graph.nesting for value in op.results}
    for place, position in graph.aliases.items():
        result, argument = graph.results[place], graph.arguments[position]
        made, end = top.source.get(result), wiring.ends.get(result)
        if result in makers and made and end and is_stacked_over(makers[result], result, argument):
            took = [wiring.reshards.copying(graph.values[result], layout) for layout in end.layouts]
            same = by_pairs(operator.eq, made.layouts, end.layouts)
            wiring.hand_on(made, end, np.where(same, np.array(took)[None, :], 0.0), LOOPS)


def _updates(wiring: Wiring, level: Level, returned: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """The arguments whose next value a node makes that has them as that lies; one that multiplies them may not."""
    for made, given in returned.items():
        port = level.source.get(made)
        if port is not None and wiring.nodes[port.node].layouts.get(given) == list(port.layouts):
            yield given, port.node


def _level(
    wiring: Wiring,
    program: Program,
    values: tuple[Value, ...],
    times: int,
    strategies: Strategies | None = None,
    repeats: int = 1,
) -> int:
    """Adds a level with the nodes of its kernels, and those of the loops in it."""
    strategies = strategies or wiring.strategies
    level = Level(
        number=len(wiring.levels),
        program=program,
        values=values,
        times=times,
        repeats=repeats,
        behind=strategies.known.read_behind(program.graph),
        masks=strategies.known.images.masks_of(program.graph),
        pinned=pinned(program.graph, wiring.pins),
        asked=pinned_reads(program.graph, wiring.pins),
    )
    wiring.levels.append(level)
    copied = strategies.known.copied_of(program.graph).keys()
    for position, kernel in enumerate(program.kernels):
        if kernel.bodies:
            op = program.graph.ops[kernel.ops[-1]]
            inside = strategies.of_one_device if op.kind == REGION else strategies
            level.inner[position] = [
                _level(wiring, body, wide.values, times * op.trips, inside, op.origin.repeats)
                for body, wide in zip(kernel.bodies, op.bodies, strict=True)
            ]
            continue
        options = strategies.of(program.graph, kernel)
        layouts, own = options.layouts, repeats_of(program.graph, kernel)
        often, is_copy = times * own, not copied.isdisjoint(kernel.writes)
        number = wiring.node(
            Node(
                level=level.number,
                apart=options.apart * (0 if is_copy else often),  # what reads it has it rounded, or reads it as it is
                after=options.after * often,
                costs=options.costs * often,
                layouts=layouts,
                times=often,
                repeats=own,
                in_passing=strategies.known.is_passing(kernel),
                savings={value: each * often for value, each in options.savings.items()},
                tables={value: each * often for value, each in options.tables.items()},
                far={value: each * often for value, each in options.far.items()},
                parts={value: each * often for value, each in options.parts.items()},
                across={value: each * often for value, each in options.across.items()},
                rounded={value: each * often for value, each in options.rounded.items()},
                ended=None if options.ended is None else options.ended * often,
                alone=None if options.alone is None else options.alone * often,
                sums=options.sums,
                each_turn={value: (more * often, sums) for value, (more, sums) in options.each_turn.items()},
                done=options.done,
                whole={value: each * often for value, each in options.whole.items()},
                rough={choice: each * often for choice, each in options.rough.items()},
                deterred={choice: each * often for choice, each in options.deterred.items()},
                unsaved=frozenset(options.rough),
                stems=stems(program.graph, kernel),
                paths=shared_paths(program.graph, kernel),
            )
        )
        level.kernels[position] = number
        for value in (*kernel.reads, *kernel.writes):
            wiring.offer((level.number, value), layouts[value])
        for value in kernel.writes:
            level.source[value] = Port(number, tuple(layouts[value]))
    return level.number


def _only_masked(level: Level) -> Iterator[int]:
    """What kernels read for masks of it alone, once for each of them: the product that makes it leaves those."""
    for kernel in level.program.kernels if level.masks else ():
        masked = [level.graph.ops[number] for number in kernel.ops if number in level.masks]
        others = {value for n in kernel.ops if n not in level.masks for value in level.graph.ops[n].operands}
        yield from ({value for op in masked for value in op.operands} - others).intersection(kernel.reads)


def _join_loops(wiring: Wiring, level: Level) -> None:
    for position, inner in level.inner.items():
        op = level.graph.ops[level.program.kernels[position].ops[-1]]
        for number in inner if op.kind != REGION else ():
            body = wiring.levels[number].graph
            lead = len(op.operands) - len(body.arguments)
            for operand, argument in zip(op.operands[lead:], body.arguments, strict=True):
                wiring.join((level.number, operand), (number, argument))
            for made, result in zip(op.results, body.results, strict=True):
                wiring.join((level.number, made), (number, result))
            if op.kind == "while":
                for argument, result in zip(body.arguments, body.results, strict=False):
                    wiring.join((number, argument), (number, result))


def _hand_on(wiring: Wiring, level: Level) -> None:
    """Connects every value of a level with what reads it, loops first laid out, then their insides."""
    loops = {p: _lay_out_loop(wiring, level, p, inner) for p, inner in level.inner.items()}
    _open_parts(wiring, level)
    lay_out_pinned(wiring, level)
    _lay_out_before_barriers(wiring, level)
    readers: dict[tuple[int, bool, Waits], list[Port]] = {}
    wanted, as_made = first_reads(level), wide_pins(wiring, level)
    copied = wiring.strategies.known.copied_of(level.graph)
    plain = [kernel for kernel in level.program.kernels if copied and not kernel.bodies]
    halved = {value for kernel in plain for value in rounded_reads(wiring, level.graph, kernel) & copied.keys()}
    for position, kernel in enumerate(level.program.kernels):
        if kernel.bodies:
            for operand, port, as_it_lies in loops[position]:
                if as_it_lies and operand in level.source:
                    times = wiring.handed(level, port.node)
                    wiring.edge(level.source[operand], port, level.graph.values[operand], times, as_it_lies=True)
                else:
                    readers.setdefault((operand, False, ()), []).append(port)
            continue
        node = wiring.nodes[level.kernels[position]]
        rounded = rounded_reads(wiring, level.graph, kernel) - as_made
        rounded |= {value for copy, value in copied.items() if copy in halved and copy in kernel.writes}
        for value in own_reads(level.graph, kernel):
            if value not in wanted[level.kernels[position]]:
                continue
            port = Port(level.kernels[position], tuple(node.layouts[value]))
            if level.asked:
                port = brought(wiring, level, kernel, value, port, narrow=value in rounded)
            readers.setdefault((value, value in rounded, level.waits(kernel, value)), []).append(port)
    ordered = in_order(level.graph)
    kernels = {number: level.program.kernels[position] for position, number in level.kernels.items()}
    masked = Counter(_only_masked(level))
    count = Counter(value for (value, _, _), ports in readers.items() for _ in ports) - masked
    reading = Reading(kernels=kernels, readers=count, masked=masked.keys())
    wide: dict[tuple[int, Waits], Port | None] = dict(handed_inside(wiring, level, kernels))
    passed: dict[int, tuple[Port, int]] = {}
    for (value, narrow, waits), ports in sorted(readers.items(), key=lambda each: each[0][1]):
        known = level.graph.values[value]
        if value in level.source and wiring.nodes[level.source[value].node].ended is not None:
            read_end(wiring, level, value, ports[0], in_order=value in ordered)
        elif value in level.source and wiring.nodes[level.source[value].node].in_passing:
            alone = written_apart(wiring, level, level.source[value].node, reading, narrow=narrow)
            others = wide.get((value, waits)) if narrow else None
            for_parts = (
                alone.max(initial=0.0) > LITTLE * wiring.least_s
                and count[value] > 1
                and (narrow or (value, True, waits) not in readers)
                and is_for_parts(wiring, level, value)
            )
            wide[value, waits] = shared = read_passing(
                wiring, level, value, ports, narrow=narrow, alone=alone, wide=others, for_parts=for_parts
            )
            if for_parts and shared is not ports[0] and (value, not narrow, waits) not in readers:
                passed[value] = shared, len(set(level.source[value].layouts))
        elif known.shape and value in level.source:
            others = wide.get((value, waits)) if narrow else None
            wide[value, waits] = read(
                wiring, level, value, ports, narrow=narrow, in_order=value in ordered, wide=others
            )
    hand_on_inside(wiring, level)
    write_parts_inside(wiring, level, passed)
    write_parts_of_kernels(wiring, level, passed.keys(), LITTLE * wiring.least_s)
    sum_apart(wiring, level, reading)
    send_once(wiring, level, reading)
    pass_on_viewed(wiring, level, reading)
    round_before_loops(wiring, level)
    join_cuts(wiring, level)
    join_turned(wiring, level)
    for position, inner in level.inner.items():
        op = level.graph.ops[level.program.kernels[position].ops[-1]]
        for number in inner:
            _hand_on(wiring, wiring.levels[number])
            if op.kind != REGION:
                _close(wiring, wiring.levels[number], op, level)


def _lay_out_before_barriers(wiring: Wiring, level: Level) -> None:
    """What is read before and behind barriers may be brought into another layout once, where it is made."""
    for value in dict.fromkeys(value for _, value in level.behind):
        made = level.source.get(value)
        if made is None or value in level.graph.arguments or made.node in wiring.carries:
            continue
        maker = wiring.nodes[made.node]
        if maker.stems is not None and maker.ended is None and not maker.in_passing:
            level.source[value] = value_node(wiring, level, value, repeats=maker.repeats)
            wiring.edge(made, level.source[value], level.graph.values[value], maker.times)


def _lay_out_loop(wiring: Wiring, level: Level, position: int, inner: Sequence[int]) -> list[tuple[int, Port, bool]]:
    """Nodes for what a loop carries and reads, or what a branch takes and gives: what each operand has to become.

    What a loop only reads comes in as it lies where no plan has a name for it in between, and a turn that wants it
    otherwise reshards the part that it takes. What has one may be brought elsewhere before, once for all loops. What of
    the step's arguments it reads is split further before it, and not in it: propagation has that from what reads it.
    """
    op = level.graph.ops[level.program.kernels[position].ops[-1]]
    if op.kind == REGION:
        return _lay_out_region(wiring, level, op, wiring.levels[inner[0]])
    asked = []
    named = {value for op in level.graph.ops for value, _ in op.named if not op.bodies}
    for number in inner:
        body = wiring.levels[number]
        lead = len(op.operands) - len(body.graph.arguments)
        changing = len(body.graph.results) if op.kind == "while" else 0
        for place, (operand, argument) in enumerate(zip(op.operands[lead:], body.graph.arguments, strict=True)):
            body.source[argument] = value_node(wiring, body, argument)
            wiring.carries.add(body.source[argument].node)
            if is_converted(level, operand, body, argument):
                wiring.rounded.add(body.source[argument].node)
            kept = place >= changing or body.graph.results[place] == argument
            as_it_lies = kept and bool(body.graph.values[argument].shape) and operand not in named
            asked.append((operand, body.source[argument], as_it_lies))
            if place >= changing and not level.number and operand in level.graph.arguments:
                wiring.opened.add(body.source[argument].node)
    first = wiring.levels[inner[0]]
    for place, made in enumerate(op.results):
        carried = op.kind == "while"
        level.source[made] = (
            first.source[first.graph.arguments[place]]
            if carried
            else value_node(wiring, level, made, repeats=op.origin.repeats)
        )
        wiring.carries.add(level.source[made].node)
    return asked


def _open_parts(wiring: Wiring, level: Level) -> None:
    """What is only cut out of what is opened is no more cut further in a loop than that is."""
    for position, kernel in enumerate(level.program.kernels):
        sources = [level.source[value].node for value in kernel.reads if value in level.source]
        if not kernel.bodies and id(kernel) in wiring.strategies.known.free and not wiring.opened.isdisjoint(sources):
            wiring.opened.add(level.kernels[position])


def _lay_out_region(wiring: Wiring, level: Level, op: Op, body: Level) -> list[tuple[int, Port, bool]]:
    """Nodes for what a region that the step maps itself is given and gives, which lies as it says; inside of it is the
    work of one device.
    """
    asked = []
    for operand, argument, layout in zip(op.operands, body.graph.arguments, op.attributes["in_shardings"], strict=True):
        port = value_node(wiring, level, operand, [layout], op.origin.repeats)
        body.source[argument] = value_node(wiring, body, argument, [whole(len(body.graph.values[argument].shape))])
        wiring.carries.update((port.node, body.source[argument].node))
        asked.append((operand, port, False))
    for made, layout in zip(op.results, op.attributes["out_shardings"], strict=True):
        level.source[made] = value_node(wiring, level, made, [layout], op.origin.repeats)
        wiring.carries.add(level.source[made].node)
    return asked


def _close(wiring: Wiring, body: Level, op: Op, level: Level) -> None:
    """What a body makes is brought into the layout of what the loop carries, or of the branch's result."""
    carried = [body.source[argument] for argument in body.graph.arguments] if op.kind == "while" else []
    ends = carried or [level.source[made] for made in op.results]
    for position, (result, end) in enumerate(zip(body.graph.results, ends, strict=False)):
        _connect(wiring, body, result, end)
        body.closed[position] = end


def _connect(wiring: Wiring, level: Level, value: int, target: Port, *, result: int = 0) -> None:
    source = level.source.get(value)
    if source is not None and source.node != target.node and level.graph.values[value].shape:
        often = wiring.nodes[target.node].times if result else level.times * level.repeats
        wiring.edge(source, target, level.graph.values[value], often, in_order=not result, result=result)
        wiring.add_each_turn(source, target, value)
