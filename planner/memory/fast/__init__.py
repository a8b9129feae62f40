"""What stays in a chip's own fast memory: XLA's memory space assignment."""
