"""How pinned values are laid out: made in any layout, then brought into the one that is pinned, once for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...graph import Graph, Sharding
from ...kernels import Kernel
from ...operands import operand_paths, readers_of
from ..step.passing import own_ops
from .reading import rounded_reads, value_node
from .wires import Level, Node, Port, Wiring


def pinned(graph: Graph, pins: Mapping[str, Sharding]) -> dict[int, Sharding]:
    """The layouts that are pinned, by path, of what the operations of a graph make."""
    named = (each for op in graph.ops for each in op.named) if pins else ()
    return {made: pins[path] for made, path in named if path in pins}


def pinned_reads(graph: Graph, pins: Mapping[str, Sharding]) -> dict[tuple[int, int], Sharding]:
    """The layouts that are pinned of what operations of a graph read as they alone read it, by operation and value."""
    found: dict[tuple[int, int], Sharding] = {}
    for number, paths in readers_of(graph).items() if pins else ():
        op = graph.ops[number]
        for place, value in enumerate(op.operands):
            for path in operand_paths(op, place, paths):
                found |= {(number, value): pins[path]} if path in pins and graph.values[value].shape else {}
    return found


def brought(wiring: Wiring, level: Level, kernel: Kernel, value: int, port: Port, *, narrow: bool) -> Port:
    """Who asks for a value that a kernel reads: where all that it computes of it reads it as it is pinned, a node that
    has it so.
    """
    reading = [at for at in own_ops(level.graph, kernel) if value in level.graph.ops[at].operands]
    pins = {level.asked.get((at, value)) for at in reading}
    pin = pins.pop() if len(pins) == 1 else None
    made = level.source.get(value)
    if pin is None or made is None or _is_left_inside(wiring.nodes[made.node]) or (value, port.node) in wiring.updates:
        return port
    reader, known = wiring.nodes[port.node], level.graph.values[value]
    node = value_node(wiring, level, value, [pin], reader.repeats)
    wiring.shared[node.node] = port.node
    wiring.edge(node, port, replace(known, dtype="bf16") if narrow else known, reader.times)
    return node


def lay_out_pinned(wiring: Wiring, level: Level) -> None:
    """Nodes for what is pinned, between who makes it and who reads it; what those compute in passing is pinned where it
    is read (``reading``).
    """
    for value, layout in level.pinned.items():
        made = level.source.get(value)
        if made is None:
            continue
        level.made[value] = made
        maker = wiring.nodes[made.node]
        if not _is_left_inside(maker):
            level.source[value] = value_node(wiring, level, value, [layout], maker.repeats)
            _bring(wiring, level, value, made)


def wide_pins(wiring: Wiring, level: Level) -> set[int]:
    """What is pinned that some kernel computes with as it is: so it is brought there for all, not rounded for products.

    Others are there that only compute it in passing, like those that are handed it.
    """
    if not level.pinned:
        return set()
    graph, found = level.graph, set[int]()
    for kernel in level.program.kernels:
        operands = {value for number in kernel.ops for value in graph.ops[number].operands}
        pins = operands & level.pinned.keys() if not kernel.bodies else set()
        found |= pins - rounded_reads(wiring, graph, kernel) if pins else pins
    return found


def _bring(wiring: Wiring, level: Level, value: int, made: Port) -> None:
    """Adds what bringing a value into the layout that is pinned takes who makes it: operations are partitioned to leave
    it so, what loops carry is brought there.
    """
    pinned, maker = level.source[value], wiring.nodes[made.node]
    kernel = next((level.program.kernels[at] for at, number in level.kernels.items() if number == made.node), None)
    more = None if kernel is None else wiring.strategies.brought(level.graph, kernel, value, level.pinned[value])
    if more is not None:
        level.written[value] = maker.times * more[1]
        wiring.hand_on(made, pinned, maker.times * more[0][:, None])
        return
    wiring.edge(made, pinned, level.graph.values[value], maker.times)
    wiring.spare(made, pinned, value)


def _is_left_inside(maker: Node) -> bool:
    return maker.in_passing or maker.ended is not None
