"""What a device runs at once: the operations of one device as kernels, grouped as TPU compilers, or XLA on GPUs, do."""

from .fuse import fuse

__all__ = ["fuse"]
