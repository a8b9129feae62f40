"""The buffers of a program: which kernel makes them, which read them, which lie in the place of another.

A buffer has the number of the value that it holds first. What lies in the memory of the program's caller (arguments, a
loop's carry and what it reads from outside) is no buffer here: it lives before and after, whatever the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

from ...graph import Graph, Op
from ...kernels import Kernel, Program
from ...kinds import ALL_GATHER
from ..tensors.gathered_images import turned_bytes
from ..tensors.looked_up import rewritten_tables, rows_bytes, scatters_begin_with
from ..tensors.tiles import Sizes, bytes_gathered
from .arriving import arriving
from .operands import operands, shaped_for
from .places import Pairs, places

T = TypeVar("T")

VIEWS = frozenset({"bitcast", "optimization_barrier", "get_tuple_element", "tuple", "reshape", "transpose"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Kernels by position, buffers by value.

    ``operands`` and ``made`` are the values that each kernel takes from others, or waits for, and makes, ``maker`` the
    kernel of each value, ``results`` the program's results that it makes itself; ``reads`` and ``writes`` are each
    kernel's buffers; ``places`` the pairs (new, old) that share memory if nothing needs the old one any more;
    ``inside`` what a kernel's bodies need besides; ``held`` the buffers of the program's results, which live to its
    end. ``buffer`` is where each value lies, arguments in themselves; ``touches`` are the kernels that read each
    argument, the last of them at the end; ``scalar`` says which kernels make a single number; ``arriving`` are the
    kernels that read arguments, in the order in which these let them run (``arriving``), ``fused`` what
    each kernel reads, arguments too, in the order of its operands; ``after`` are values that must be there before it
    runs, of none if nothing waits so.
    """

    num_bytes: dict[int, int]
    operands: tuple[tuple[int, ...], ...]
    made: tuple[tuple[int, ...], ...]
    maker: dict[int, int]
    results: tuple[int, ...]
    reads: tuple[tuple[int, ...], ...]
    writes: tuple[tuple[int, ...], ...]
    places: tuple[Pairs, ...]
    inside: tuple[int, ...]
    held: frozenset[int]
    buffer: dict[int, int]
    touches: dict[int, tuple[int, ...]]
    scalar: tuple[bool, ...]
    arriving: tuple[int, ...] = ()
    fused: tuple[tuple[int, ...], ...] = ()
    after: tuple[tuple[int, ...], ...] = ()


def flow(program: Program, sizes: Sizes, inside: Callable[[Program], int], *, offloads: bool = False) -> Flow:
    """The buffers of a program; ``sizes`` has a value's bytes, ``inside`` the temporary bytes of a body.

    ``offloads`` if the chip has sums over devices made beside its own work (``offloaded``).
    """
    buffer = buffers(program)
    graph, kernels = program.graph, program.kernels
    arguments = frozenset(graph.arguments)
    elsewhere = arguments | scatters_begin_with(graph)
    own = {v: held for v, held in buffer.items() if held not in elsewhere}
    maker = {v: position for position, kernel in enumerate(kernels) for v in kernel.writes}
    rewritten = rewritten_tables(graph)
    shaped = shaped_for(graph)
    fused = tuple([operands(graph, kernel, shaped) for kernel in kernels])
    num_bytes = {v: 0 if v in rewritten else sizes(graph, v) for v, held in own.items() if v == held}
    for piece, whole in _gathered(graph, kernels):
        if num_bytes.get(whole):
            num_bytes[whole] = max(num_bytes[whole], bytes_gathered(graph.values[piece], graph.values[whole]))
    for image, size in turned_bytes(graph).items():
        if num_bytes.get(buffer.get(image, image)):
            num_bytes[buffer[image]] = max(num_bytes[buffer[image]], size)
    for row, size in rows_bytes(graph).items():
        if num_bytes.get(buffer.get(row, row)):
            num_bytes[buffer[row]] = max(num_bytes[buffer[row]], size)
    return Flow(
        num_bytes=num_bytes,
        operands=tuple(
            [
                tuple(dict.fromkeys([v for v in (*read, *k.waits) if v in maker]))
                for k, read in zip(kernels, fused, strict=True)
            ]
        ),
        made=tuple([kernel.writes for kernel in kernels]),
        maker=maker,
        results=tuple(dict.fromkeys(v for v in graph.results if v in maker)),
        reads=tuple([tuple(dict.fromkeys([own[v] for v in kernel.reads if v in own])) for kernel in kernels]),
        writes=tuple([tuple([v for v in kernel.writes if own.get(v) == v]) for kernel in kernels]),
        places=places(graph, kernels, own, offloads=offloads),
        inside=tuple([max(map(inside, kernel.bodies)) if kernel.bodies else 0 for kernel in kernels]),
        held=frozenset(own[v] for v in graph.results if v in own),
        buffer=buffer,
        touches=_touches(program, buffer),
        scalar=tuple([len(k.writes) == 1 and graph.values[k.writes[0]].num_elements == 1 for k in kernels]),
        arriving=arriving(program),
        fused=fused,
    )


def _gathered(graph: Graph, kernels: Sequence[Kernel]) -> Iterator[tuple[int, int]]:
    """What each all-gather takes and makes, a piece and the whole."""
    for op in (graph.ops[kernel.ops[-1]] for kernel in kernels):
        if op.kind == ALL_GATHER:
            yield from zip(op.operands, op.results, strict=False)


def regrouped(flow: Flow, groups: Sequence[tuple[int, ...]]) -> Flow:
    """The same buffers with the kernels in another order, those of a group as one kernel."""
    at = {kernel: point for point, group in enumerate(groups) for kernel in group}
    is_alone = len(at) == len(groups)

    def united(of_kernels: Sequence[tuple[T, ...]]) -> tuple[tuple[T, ...], ...]:
        if is_alone:
            return tuple([of_kernels[kernel] for (kernel,) in groups])
        return tuple(
            of_kernels[group[0]] if len(group) == 1 else tuple(dict.fromkeys(chain(*(of_kernels[k] for k in group))))
            for group in groups
        )

    return replace(
        flow,
        operands=united(flow.operands),
        made=united(flow.made),
        maker={value: at[kernel] for value, kernel in flow.maker.items()},
        reads=united(flow.reads),
        writes=united(flow.writes),
        places=united(flow.places),
        inside=tuple([max([flow.inside[kernel] for kernel in group]) for group in groups]),
        touches={
            value: tuple(sorted({*map(at.__getitem__, found)})) if len(found) > 1 else (at[found[0]],) if found else ()
            for value, found in flow.touches.items()
        },
        scalar=tuple([len(group) == 1 and flow.scalar[group[0]] for group in groups]),
        arriving=tuple(reversed(dict.fromkeys([at[kernel] for kernel in reversed(flow.arriving)]))),
        fused=united(flow.fused),
        after=united(flow.after) if flow.after else (),
    )


def buffers(program: Program) -> dict[int, int]:
    """The buffer in which each value lies: itself, an argument, or another that it is only a view of."""
    graph = program.graph
    buffer = {v: v for v in graph.arguments}
    for kernel in program.kernels:
        viewed = _viewed(graph, kernel)
        for value in kernel.writes:
            source = viewed.get(value, value)
            if source == value:
                buffer[value] = value
            elif source in buffer:
                buffer[value] = buffer[source]
    return buffer


def _touches(program: Program, buffer: dict[int, int]) -> dict[int, tuple[int, ...]]:
    found: dict[int, list[int]] = {v: [] for v in program.graph.arguments}
    for position, kernel in enumerate(program.kernels):
        for held in {buffer[v] for v in kernel.reads if v in buffer}:
            if held in found:
                found[held].append(position)
    return {v: tuple(positions) for v, positions in found.items()}


def _viewed(graph: Graph, kernel: Kernel) -> dict[int, int]:
    """What a kernel only hands on: a value under another shape, what a loop carries around unchanged."""
    last = graph.ops[kernel.ops[-1]]
    if last.kind == "while" and kernel.bodies:
        return _carried(last, kernel.bodies[0].graph)
    if last.kind not in VIEWS or any(graph.ops[op].kind not in VIEWS for op in kernel.ops):
        return {}
    source: dict[int, int] = {}
    for op in (graph.ops[number] for number in kernel.ops):
        for value, operand in zip(op.results, op.operands, strict=False):
            source[value] = source.get(operand, operand)
    sizes = graph.values
    return {v: source[v] for v in kernel.writes if v in source and sizes[source[v]].num_bytes == sizes[v].num_bytes}


def _carried(loop: Op, body: Graph) -> dict[int, int]:
    turns = zip(loop.results, loop.operands, body.arguments, body.results, strict=False)
    return {value: operand for value, operand, before, after in turns if before == after}
