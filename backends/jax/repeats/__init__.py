"""A step of repeated layers made shorter: of those that are alike one stays, and stands for all."""

from .short import Short, shortened

__all__ = ["Short", "shortened"]
