"""What a device holds during a step: predicted, without compiling anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..chip import Chip
from ..kernels import Program
from .code import code_bytes
from .details import Details
from .kinds import CODE, GAPS, PADDING, RESULTS, WEIGHTS
from .level import Level, level
from .order.schedule import Scheduled, put_in_order
from .points import LiveTensor, Point
from .replay import heap_bytes
from .tensors.tiles import memoised, on_tpu, stored_bytes
from .tight import is_tight, lent
from .tuples import tuple_bytes
from .unrolled import unrolled_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of one device, as the TPU compiler counts them, predicted.

    ``argument_bytes`` and ``output_bytes`` are with the padding of tiles, ``alias_bytes`` the results that lie in
    donated arguments, ``temp_bytes`` the heap of temporaries with its gaps and tuples, ``code_bytes`` the program.
    ``points`` are all points of the program in its order, ``program``; ``peak`` is the one at which most temporaries
    are live, ``tensors`` what is live at it, the largest first, arguments too. ``bytes_by_kind`` adds up to the peak.
    """

    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    temp_bytes: int
    code_bytes: int
    program: Program = field(repr=False)
    level: Level = field(repr=False)
    details: Details = field(repr=False, compare=False)

    @property
    def points(self) -> tuple[Point, ...]:
        """All points of the program in its order."""
        return self.details.points

    @property
    def peak(self) -> Point | None:
        """The point at which most temporaries are live."""
        return self.details.peak

    @property
    def tensors(self) -> tuple[LiveTensor, ...]:
        """What is live at the peak, the largest first, arguments too."""
        return self.details.tensors

    @property
    def bytes_by_kind(self) -> dict[str, int]:
        """What the bytes at the peak are for."""
        by_kind = dict(self.details.bytes_by_kind)
        by_kind[RESULTS] = self.output_bytes - self.alias_bytes
        by_kind[CODE] = self.code_bytes
        arguments = sum(tensor.num_bytes for tensor in self.details.held)
        by_kind[PADDING] = by_kind.get(PADDING, 0) + self.argument_bytes - arguments
        by_kind[GAPS] = self.peak_bytes - sum(by_kind.values())
        return by_kind

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
    is_tpu = on_tpu(chip)
    sizes = memoised(stored_bytes(is_tpu=is_tpu))
    kinds = [*argument_kinds, *[WEIGHTS] * (len(graph.arguments) - len(argument_kinds))]
    argument_bytes = sum(sizes(graph.values[v]) for v in graph.arguments)
    output_bytes = sum(sizes(graph.values[v]) for v in graph.results)
    alias_bytes = sum(sizes(graph.values[graph.results[result]]) for result in graph.aliases)
    placed = level(step, chip)
    code = code_bytes(program, chip) + unrolled_bytes(placed, chip) if is_tpu else 0
    tuples = tuple_bytes(placed, chip)
    temp_bytes = heap_bytes(placed) + tuples
    constant_bytes = argument_bytes + output_bytes - alias_bytes + code
    if is_tight(constant_bytes + temp_bytes, chip.hbm_bytes if chip else None):
        borrowed = lent(placed)
        placed = replace(placed, spans={b: span for b, span in placed.spans.items() if b not in borrowed})
        temp_bytes = heap_bytes(placed) + tuples
    return Memory(
        argument_bytes=argument_bytes,
        output_bytes=output_bytes,
        alias_bytes=alias_bytes,
        temp_bytes=temp_bytes,
        code_bytes=code,
        program=program,
        level=placed,
        details=Details(placed, kinds),
    )
