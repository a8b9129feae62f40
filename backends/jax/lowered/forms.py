"""What operations say, but for how their results lie, as numbers that are written on them: one attribute is read sooner
than all.
"""

from __future__ import annotations

from typing import Any

from .attributes import FORM, LIES
from .edges import integer
from .rewrites.simplify import nested

NUMBERED = "stablehlo."
"""How the names of the operations begin that have a number: what Shardy's own say, it changes itself."""


class Forms:
    """The numbers of what operations say in all modules of one draft: equal where they differ in layouts alone."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Any, ...], Any] = {}

    def write(self, module: Any) -> None:
        """Writes its number on each operation of a prepared module that Shardy has split, in place."""
        for operation, name in nested(module):
            if name.startswith(NUMBERED):
                try:
                    said = tuple([item for item in operation.attributes.items() if item[0] != LIES])
                except TypeError:  # a constant that the bindings cannot read
                    continue
                key = name, len(operation.results), said
                if key not in self._numbers:
                    self._numbers[key] = integer(len(self._numbers))
                operation.attributes[FORM] = self._numbers[key]
