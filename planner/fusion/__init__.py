"""What a device runs at once: the operations of one device grouped into kernels, as the TPU compiler groups them."""

from .fuse import fuse

__all__ = ["fuse"]
