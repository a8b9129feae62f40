"""How a matrix product is split over devices, as XLA's partitioner decides it."""

from .problem import Choice, Loops, Reduction, Windowed
from .solve import choose

__all__ = ["Choice", "Loops", "Reduction", "Windowed", "choose"]
