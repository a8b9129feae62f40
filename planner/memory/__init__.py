"""What a program of one device holds: the compiler's order of its kernels, bytes live at every point, the peak.

Room by room, each calling only those before: ``tensors`` says what each takes, ``flow`` who makes and reads which
buffer, ``copies`` what is made beside these, ``order`` when kernels run, ``fast`` what stays in a chip's own memory;
``level`` brings these together for a program and its loops, ``memory`` finds the peak.
"""

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
