"""From a step's graph of global tensors to the graph of one device, as XLA partitions it."""

from .partition import partition
from .reused import Found

__all__ = ["Found", "partition"]
