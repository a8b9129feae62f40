"""An estimate made by hand, small enough to be worked out in the head."""

from __future__ import annotations

from meshwright.planner.estimate.figures import (
    AxisPlace,
    Bound,
    Estimate,
    MemoryPoint,
    PredictedCollective,
    PredictedKernel,
    PredictedMemory,
    TensorLayout,
)
from meshwright.planner.graph import Origin
from meshwright.planner.memory import LiveTensor
from meshwright.planner.placement import Span

MIB = 2**20


def kernel(position: int, label: str, *, took_s: float, times: int = 1, unit: str = "matrix", layer: str = "mlp"):
    return PredictedKernel(
        label=label,
        unit=unit,
        flops=1e9 if unit == "matrix" else 0.0,
        num_bytes=MIB,
        predicted_s=took_s,
        times=times,
        origin=Origin(source="model.py:12", scope=f"jit(step)/jvp({layer})/{label}"),
        layer=layer,
        phase="forward",
        position=position,
    )


def collective(position: int, kind: str, *axes: str, took_s: float, times: int = 1) -> PredictedCollective:
    return PredictedCollective(
        kind=kind,
        axes=axes,
        dims=(0,),
        dtype="f32",
        num_bytes=2 * MIB,
        times=times,
        group_size=2,
        across_slices=False,
        predicted_s=took_s,
        algorithm="ring",
        bottleneck="x",
        origin=Origin(source="model.py:20"),
        position=position,
    )


def tensor(name: str, kind: str, num_bytes: int) -> LiveTensor:
    return LiveTensor(
        name=name, kind=kind, num_bytes=num_bytes, padding_bytes=0, shape=(num_bytes // 4096, 1024), dtype="f32"
    )


def small_estimate(**changes: object) -> Estimate:
    """Two axes of two devices on v5e:2x2: 5 ms of compute, 3 ms of communication, 6 of 8 MiB."""
    held = {"weights": 2 * MIB, "activations": 4 * MIB}
    figures: dict[str, object] = {
        "topology": "v5e:2x2",
        "mesh": {"data": 2, "model": 2},
        "compute_s": 5e-3,
        "comm_s": 3e-3,
        "peak_bytes": 6 * MIB,
        "limit_bytes": 8 * MIB,
        "limit_of": "the plan",
        "kernels": (
            kernel(0, "dot_general", took_s=1e-3, times=4),
            kernel(2, "add", took_s=1e-3, unit="memory", layer="update"),
        ),
        "collectives": (
            collective(1, "all-reduce", "data", took_s=0.5e-3, times=4),
            collective(3, "all-gather", "data", "model", took_s=1e-3),
        ),
        "memory": PredictedMemory(
            by_kind=held,
            tensors=(tensor("<b>hidden</b>", "activations", 4 * MIB), tensor("params/w", "weights", 2 * MIB)),
            argument_bytes=2 * MIB,
            output_bytes=0,
            alias_bytes=0,
            temp_bytes=4 * MIB,
            code_bytes=0,
            timeline=(
                MemoryPoint(label="dot_general", by_kind=held),
                MemoryPoint(label="add", by_kind={"weights": 2 * MIB, "activations": 0}),
            ),
        ),
        "bound": Bound(step_s=2e-3, plan_s=4e-3, step_flops=4e9, plan_flops=4e9),
        "axes": (
            AxisPlace(
                name="data",
                num_devices=2,
                spans=(Span(dim="x", size=2, extent=2, stride=1, block=2, ring=False),),
                shared_with=(),
            ),
            AxisPlace(
                name="model",
                num_devices=2,
                spans=(Span(dim="y", size=2, extent=2, stride=1, block=2, ring=False),),
                shared_with=(),
            ),
        ),
        "tensors": (
            TensorLayout(
                path="params/w",
                role="argument",
                shape=(1024, 1024),
                dtype="f32",
                axes=((), ("model",)),
                device_bytes=2 * MIB,
            ),
        ),
    }
    return Estimate(**(figures | changes))
