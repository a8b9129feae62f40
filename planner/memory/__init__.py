"""What a program of one device holds: the compiler's order of its kernels, bytes live at every point, the peak."""

from .dominant import dominant_points
from .kinds import argument_kind
from .memory import Memory, memory
from .order.schedule import Scheduled, put_in_order, schedule
from .points import LiveTensor, Point

__all__ = [
    "LiveTensor",
    "Memory",
    "Point",
    "Scheduled",
    "argument_kind",
    "dominant_points",
    "memory",
    "put_in_order",
    "schedule",
]
