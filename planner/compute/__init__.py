"""What running a kernel takes: seconds on a chip, from a formula and a table learned from the compiler."""

from .calibration import Calibration, dump, load, shipped
from .price import KernelPrice, price
from .speed import speed_of

__all__ = ["Calibration", "KernelPrice", "dump", "load", "price", "shipped", "speed_of"]
