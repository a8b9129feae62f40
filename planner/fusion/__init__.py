"""What a device runs at once: the operations of one device as kernels, grouped as TPU compilers, or XLA on GPUs, do."""

from .fuse import fuse
from .packed import with_packed
from .returned import with_copies

__all__ = ["fuse", "with_copies", "with_packed"]
