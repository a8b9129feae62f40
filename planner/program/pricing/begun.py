"""What scatters add rows to that is nothing but one number everywhere: they fill it themselves, or it is written first.

That hangs on what a device has of the table and of the rows, which a scatter's choice says and that of the kernel which
fills the table does not: so the scatter is charged, and filling takes nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from ...compute.copies.turned import WIDE_EDGE
from ...compute.single_ops import fill_seconds
from ...compute.speed import Speed
from ...graph import Graph
from ...lookups import SCATTER, added_by, tables_of, takes_many
from ..step.fused import Part


def begun_seconds(own: Graph, filled: Collection[int], part: Part, speed: Speed) -> float:
    """Seconds of writing what is ``filled`` for a kernel's scatters, of which a device has a ``part``, where these do
    not fill it.
    """
    total = 0.0
    for op in own.of_kind(SCATTER) if filled and not speed.is_gpu else ():  # on GPUs the kernel that fills it pays
        pairs = ((v, a) for v, a in zip(tables_of(op), added_by(op), strict=True) if v in filled)
        for table, added in ([part(each, own.values[each].dtype) for each in pair] for pair in pairs):
            if speed.edge <= 1 or not takes_many(table, added, is_wide=speed.edge >= WIDE_EDGE):
                total += fill_seconds(table, speed)
    return total
