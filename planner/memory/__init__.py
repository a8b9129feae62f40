"""What a program of one device holds: the compiler's order of its kernels, bytes live at every point, the peak."""

from .schedule import schedule

__all__ = ["schedule"]
