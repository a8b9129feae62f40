"""What one device does in a step on a chip: kernels with their seconds, memory, bounds; all but where its mesh lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..chip import Chip
from ..compute import Calibration, speed_of
from ..compute.counted import Counted
from ..compute.price import price_at
from ..memory import memory
from ..memory.kinds import WEIGHTS
from ..topology import Machine
from .device_program import DeviceProgram
from .figures import Bound, PredictedKernel, PredictedMemory, TensorLayout
from .gradients import gradients
from .held import held
from .late import late, may_be_late
from .layouts import layouts
from .roofline import bound
from .runs import Sending, kernels, runs_of


@may_be_late("kernels", "bound", "tensors", "gradients")
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWork:
    """A device's program, and what it takes on ``chip``; ``compute_source`` says where its seconds come from.

    ``compute_s`` are those of what counts, ``uncounted_s`` those of the rest, ``sending`` the collectives.
    """

    laid_out: DeviceProgram
    chip: Chip
    compute_s: float
    uncounted_s: float
    kernels: tuple[PredictedKernel, ...]
    sending: tuple[Sending, ...]
    compute_source: str
    memory: PredictedMemory
    bound: Bound
    tensors: tuple[TensorLayout, ...]
    gradients: Mapping[int, tuple[str, ...]]


def device_work(
    laid_out: DeviceProgram,
    machine: Machine,
    *,
    kinds: Mapping[str, str] | None = None,
    returned: Mapping[str, str] | None = None,
    calibration: Calibration | None = None,
    counted: Counted | None = None,
) -> DeviceWork:
    """What a device of this machine does.

    ``kinds`` is what each argument is for, by its path; ``returned`` the path of the argument that a result is the next
    value of, by the result's; ``calibration`` prices kernels in place of the table that ships for the chip;
    ``counted`` has the work of kernels from price to price.
    """
    kinds = kinds or {}
    weights = {path: name for path, name in (returned or {}).items() if kinds.get(name) == WEIGHTS}
    program, speed, counted = laid_out.program, speed_of(machine.chip, calibration), counted or Counted()
    said = [kinds.get(name, WEIGHTS) for name in program.graph.names]
    placed = memory(laid_out.order, machine.chip, argument_kinds=said)
    near = placed.level if machine.chip.buffer_vmem_bytes else None
    prices = price_at(program, speed, count=counted, pace=counted.cycles, near=near)
    runs = runs_of(program, prices, counts_all=machine.platform != "tpu")
    return DeviceWork(
        laid_out=laid_out,
        chip=machine.chip,
        compute_s=sum(run.total_s for run in runs.computing if run.counted),
        uncounted_s=sum(run.uncounted_s for run in runs.computing),
        kernels=late(lambda: tuple(kernels(runs.computing))),
        sending=runs.sending,
        compute_source=speed.source,
        memory=held(placed),
        bound=late(lambda: bound(laid_out.step, laid_out.local, machine.chip)),
        tensors=late(lambda: tuple(layouts(laid_out.step))),
        gradients=late(lambda: gradients(program, weights)),
    )
