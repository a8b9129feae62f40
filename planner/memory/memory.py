"""What a device holds during a step: predicted, without compiling anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..chip import Chip
from ..graph import Graph
from ..kernels import Program
from .code import code_bytes
from .kinds import BATCH, CODE, GAPS, PADDING, RESULTS, WEIGHTS
from .level import Level, level
from .points import LiveTensor, Point, live_tensors, points
from .replay import heap_bytes
from .schedule import Scheduled, put_in_order
from .tight import is_tight, lent
from .tiles import memoised, padded_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of one device, as the TPU compiler counts them, predicted.

    ``argument_bytes`` and ``output_bytes`` are with the padding of tiles, ``alias_bytes`` the results that lie in
    donated arguments, ``temp_bytes`` the heap of temporaries with its gaps, ``code_bytes`` the program. ``points`` are
    all points of the program in its order, ``program``; ``peak`` is the one at which most temporaries are live,
    ``tensors`` what is live at it, the largest first, arguments too. ``bytes_by_kind`` adds up to the peak.
    """

    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    temp_bytes: int
    code_bytes: int
    bytes_by_kind: Mapping[str, int]
    tensors: tuple[LiveTensor, ...]
    points: tuple[Point, ...] = field(repr=False)
    peak: Point | None = field(repr=False)
    program: Program = field(repr=False)
    level: Level = field(repr=False)

    @property
    def peak_bytes(self) -> int:
        """Arguments, results that are not aliased, temporaries and the program: what must fit."""
        return self.constant_bytes + self.temp_bytes

    @property
    def constant_bytes(self) -> int:
        """What is there at every point."""
        return self.argument_bytes + self.output_bytes - self.alias_bytes + self.code_bytes


def memory(program: Program | Scheduled, chip: Chip | None = None, *, argument_kinds: Sequence[str] = ()) -> Memory:
    """What a device holds that runs a whole step; kernels not in the compiler's order are put into it.

    ``chip`` decides what stays in fast memory, when a program is tight, and whether its code lies in the device's
    memory (a TPU's does); without it nothing stays and none is. ``argument_kinds`` are the kinds of the arguments in
    order (``argument_kind``); what is missing counts as weights.
    """
    step = program if isinstance(program, Scheduled) else put_in_order(program, chip)
    program, graph = step.program, step.program.graph
    sizes = memoised(padded_bytes)
    kinds = [*argument_kinds, *[WEIGHTS] * (len(graph.arguments) - len(argument_kinds))]
    argument_bytes = sum(sizes(graph.values[v]) for v in graph.arguments)
    output_bytes = sum(sizes(graph.values[v]) for v in graph.results)
    alias_bytes = sum(sizes(graph.values[graph.results[result]]) for result in graph.aliases)
    code = code_bytes(program, chip) if chip is None or chip.platform == "tpu" else 0
    placed = level(step, chip)
    temp_bytes = heap_bytes(placed)
    constant_bytes = argument_bytes + output_bytes - alias_bytes + code
    if is_tight(constant_bytes + temp_bytes, chip.hbm_bytes if chip else None):
        borrowed = lent(placed)
        placed = replace(placed, spans={b: span for b, span in placed.spans.items() if b not in borrowed})
        temp_bytes = heap_bytes(placed)
    weights = frozenset(graph.shape(v) for v, kind in zip(graph.arguments, kinds, strict=False) if kind == WEIGHTS)
    all_points = points(placed, weights)
    peak = max(all_points, key=lambda point: point.num_bytes, default=None)
    held = _argument_tensors(graph, kinds)
    by_kind = _by_kind(held, peak)
    by_kind[RESULTS] = output_bytes - alias_bytes
    by_kind[CODE] = code
    by_kind[PADDING] = by_kind.get(PADDING, 0) + argument_bytes - sum(t.num_bytes for t in held)
    by_kind[GAPS] = argument_bytes + output_bytes - alias_bytes + code + temp_bytes - sum(by_kind.values())
    live = live_tensors(placed, peak.path, weights) if peak else []
    return Memory(
        argument_bytes=argument_bytes,
        output_bytes=output_bytes,
        alias_bytes=alias_bytes,
        temp_bytes=temp_bytes,
        code_bytes=code,
        bytes_by_kind=by_kind,
        tensors=tuple(sorted([*held, *live], key=lambda tensor: -tensor.num_bytes)),
        points=tuple(all_points),
        peak=peak,
        program=program,
        level=placed,
    )


def _argument_tensors(graph: Graph, kinds: Sequence[str]) -> list[LiveTensor]:
    found = []
    for position, value in enumerate(graph.arguments):
        held = graph.values[value]
        found.append(
            LiveTensor(
                name=graph.names[position] if position < len(graph.names) else f"argument {position}",
                kind=kinds[position] if position < len(kinds) else BATCH,
                num_bytes=held.num_bytes,
                padding_bytes=0,
                shape=held.shape,
                dtype=held.dtype,
            )
        )
    return found


def _by_kind(held: Sequence[LiveTensor], peak: Point | None) -> dict[str, int]:
    by_kind = dict(peak.bytes_by_kind) if peak else {}
    for tensor in held:
        by_kind[tensor.kind] = by_kind.get(tensor.kind, 0) + tensor.num_bytes
    return by_kind
