"""An estimate as plain JSON values. README.md says what each field is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .figures import AxisPlace, Estimate, MemoryPoint, PredictedCollective, PredictedKernel, TensorLayout


def as_json(estimate: Estimate) -> dict[str, Any]:
    """Everything; bytes are of one device, times in seconds."""
    return summary(estimate) | {
        "axes": [_axis(axis) for axis in estimate.axes],
        "collectives": [_collective(collective) for collective in estimate.collectives],
        "kernels": [_kernel(kernel) for kernel in estimate.kernels],
        "memory": {
            "bytes_by_kind": dict(estimate.memory.by_kind),
            "argument_bytes": estimate.memory.argument_bytes,
            "output_bytes": estimate.memory.output_bytes,
            "alias_bytes": estimate.memory.alias_bytes,
            "temp_bytes": estimate.memory.temp_bytes,
            "code_bytes": estimate.memory.code_bytes,
            "tensors": [asdict(tensor) for tensor in estimate.memory.tensors],
            "timeline": [_point(point) for point in estimate.memory.timeline],
        },
        "tensors": [tensor_json(tensor) for tensor in estimate.tensors],
    }


def summary(estimate: Estimate) -> dict[str, Any]:
    """The figures of the whole step."""
    return {
        "what": estimate.what,
        "topology": estimate.topology,
        "mesh": dict(estimate.mesh),
        "fits": estimate.fits,
        "step_time_s": estimate.step_time_s,
        "compute_s": estimate.compute_s,
        "comm_s": estimate.comm_s,
        "overlapped_s": estimate.overlapped_s,
        "uncounted_s": estimate.uncounted_s,
        "compute_source": estimate.compute_source,
        "bound_s": estimate.bound_s,
        "of_bound": estimate.of_bound,
        "bound": asdict(estimate.bound),
        "peak_bytes": estimate.peak_bytes,
        "limit_bytes": estimate.limit_bytes,
        "limit_of": estimate.limit_of,
        "bytes_by_kind": dict(estimate.bytes_by_kind),
        "collective_bytes": estimate.collective_bytes,
        "notes": list(estimate.notes),
    }


def tensor_json(tensor: TensorLayout) -> dict[str, Any]:
    """How a tensor lies over the mesh."""
    return {
        "path": tensor.path,
        "role": tensor.role,
        "shape": list(tensor.shape),
        "dtype": tensor.dtype,
        "axes": [list(axes) for axes in tensor.axes],
        "device_bytes": tensor.device_bytes,
    }


def _axis(axis: AxisPlace) -> dict[str, Any]:
    spans = [{"dim": s.dim, "of": s.size, "extent": s.extent, "stride": s.stride, "ring": s.ring} for s in axis.spans]
    return {"name": axis.name, "size": axis.num_devices, "lies_on": spans, "shares_links_with": list(axis.shared_with)}


def _collective(collective: PredictedCollective) -> dict[str, Any]:
    return {
        "kind": collective.kind,
        "axes": list(collective.axes),
        "dims": list(collective.dims),
        "dtype": collective.dtype,
        "bytes": collective.num_bytes,
        "times": collective.times,
        "total_bytes": collective.total_bytes,
        "group_size": collective.group_size,
        "across_slices": collective.across_slices,
        "predicted_s": collective.predicted_s,
        "algorithm": collective.algorithm,
        "bottleneck": collective.bottleneck,
        "gradient_of": list(collective.gradient_of),
        "source": collective.origin.source,
        "op_name": collective.origin.scope,
        "position": collective.position,
    }


def _kernel(kernel: PredictedKernel) -> dict[str, Any]:
    return {
        "label": kernel.label,
        "unit": kernel.unit,
        "flops": kernel.flops,
        "bytes": kernel.num_bytes,
        "predicted_s": kernel.predicted_s,
        "counted": kernel.counted,
        "times": kernel.times,
        "layer": kernel.layer,
        "phase": kernel.phase,
        "source": kernel.origin.source,
        "op_name": kernel.origin.scope,
        "position": kernel.position,
    }


def _point(point: MemoryPoint) -> dict[str, Any]:
    return {"label": point.label, "bytes": point.num_bytes, "bytes_by_kind": dict(point.by_kind)}
