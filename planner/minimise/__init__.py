"""Writes the layouts that a search chose as a plan that a person reads: the fewest annotations of the same price.

A short plan grows from causes: propagation alone says which values lie wrongly before the places that take too long;
the first of them is annotated, then those that still do, a few times before the next price, and what is not needed is
dropped (``shorten``, ``guide``). Where that is slow or long, all that products and collectives read and make is said at
once, and then less (``bundles``). A plan that takes longer than was promised is mended by the causes that help; what
led it astray is given up. What no argument decides is never named: the compiler would no longer see that it is
constant. What a loop carries, or is read behind a barrier, is named where another reads it.
"""

from .minimise import Short, minimise

__all__ = ["Short", "minimise"]
