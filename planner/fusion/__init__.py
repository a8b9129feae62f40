"""What a device runs at once: the operations of one device as kernels, as the TPU compiler groups them, or XLA on GPU."""

from .fuse import fuse

__all__ = ["fuse"]
