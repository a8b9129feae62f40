"""What one device does in a step on a chip: kernels with their seconds, memory, bounds; all but where its mesh lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..chip import Chip
from ..compute import Calibration, speed_of
from ..compute.price import price_at
from ..memory.kinds import WEIGHTS
from ..topology import Machine
from .device_program import DeviceProgram
from .figures import Bound, PredictedKernel, PredictedMemory, TensorLayout
from .gradients import gradients
from .held import held
from .late import late, may_be_late
from .layouts import layouts
from .roofline import bound
from .runs import kernels


@may_be_late("tensors")
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWork:
    """A device's program, and what it takes on ``chip``; ``compute_source`` says where its seconds come from."""

    laid_out: DeviceProgram
    chip: Chip
    kernels: tuple[PredictedKernel, ...]
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
) -> DeviceWork:
    """What a device of this machine does.

    ``kinds`` is what each argument is for, by its path; ``returned`` the path of the argument that a result is the next
    value of, by the result's; ``calibration`` prices kernels in place of the table that ships for the chip.
    """
    kinds = kinds or {}
    weights = {path: name for path, name in (returned or {}).items() if kinds.get(name) == WEIGHTS}
    program, speed = laid_out.program, speed_of(machine.chip, calibration)
    found = kernels(program, price_at(program, speed), counts_all=machine.platform != "tpu")
    return DeviceWork(
        laid_out=laid_out,
        chip=machine.chip,
        kernels=tuple(found),
        compute_source=speed.source,
        memory=held(laid_out.order, machine, kinds),
        bound=bound(laid_out.step, laid_out.local, machine.chip),
        tensors=late(lambda: tuple(layouts(laid_out.step))),
        gradients=gradients(program, weights),
    )
