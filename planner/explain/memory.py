"""What a device holds when it holds most: tables by kind and by tensor."""

from __future__ import annotations

from ..estimate.figures import Estimate
from ..memory import LiveTensor
from .rows import Rows, binary, first, share


def kind_table(estimate: Estimate) -> Rows:
    """The peak by what the bytes are for."""
    kinds = sorted(estimate.bytes_by_kind.items(), key=lambda item: -item[1])
    rows = [(kind, binary(held), share(held, estimate.peak_bytes)) for kind, held in kinds if held]
    rows.append(("in all", binary(estimate.peak_bytes), "100.0%"))
    if estimate.limit_bytes is not None:
        used = f"{share(estimate.peak_bytes, estimate.limit_bytes)} of it used"
        rows.append((f"limit: {estimate.limit_of}", binary(estimate.limit_bytes), used))
    return Rows(
        title="Memory of a device at the peak, predicted", headers=("what", "bytes", "of the peak"), rows=tuple(rows)
    )


def tensor_table(estimate: Estimate) -> Rows:
    """The largest tensors at the peak."""
    peak_bytes = estimate.peak_bytes
    rows = first(
        (tensor.name, shape_text(tensor), tensor.kind, binary(tensor.num_bytes), share(tensor.num_bytes, peak_bytes))
        for tensor in estimate.memory.tensors
    )
    headers = ("tensor", "a device holds", "kind", "bytes", "of the peak")
    return Rows(title="Largest tensors at the peak, predicted", headers=headers, rows=rows)


def shape_text(tensor: LiveTensor) -> str:
    """What a device holds of a tensor: ``f32[64,512]``."""
    return f"{tensor.dtype}[{','.join(map(str, tensor.shape))}]"
