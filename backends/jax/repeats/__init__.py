"""A step of repeated layers made shorter: of those that are alike one stays, and stands for all."""

from .inherited import inherited
from .short import Short, shortened

__all__ = ["Short", "inherited", "shortened"]
