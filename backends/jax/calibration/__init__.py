"""Learns what kernels take from the TPU compiler: small programs compiled ahead of time, their cycles read."""

from .calibrate import calibrate

__all__ = ["calibrate"]
