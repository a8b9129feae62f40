"""Writes the layouts that a search chose as a plan that a person reads: the fewest annotations of the same price."""

from .minimise import Short, minimise

__all__ = ["Short", "minimise"]
