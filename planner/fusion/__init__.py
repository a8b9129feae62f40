"""What a device runs at once: the operations of one device grouped into kernels, as the TPU compiler groups them."""

from .fuse import fuse
from .operands import Units

__all__ = ["Units", "fuse"]
