"""What kernels have in common that are alike, in layers alike and under other layouts of their step: what is worked out
of one holds for all.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from .graph import Graph

MOST = 20_000
Form = dict[Hashable, Any]
"""What is known of kernels of one form, by what was asked."""


class Forms:
    """The forms of kernels: alike are those of operations of the same kinds and attributes, wired alike, on values of
    the same shapes and dtypes.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, Form] = {}
        self._attributes: dict[int, Mapping[str, Any]] = {}

    def of(self, graph: Graph, numbers: Sequence[int], reads: Sequence[int], writes: Sequence[int]) -> Form:
        """The form of a kernel of this graph's operations, which reads and writes these values."""
        said, wires, ops, values = list[Hashable](), list[int](), graph.ops, graph.values
        for number in numbers:
            op = ops[number]
            operands, results, attributes = op.operands, op.results, op.attributes
            said += (op.kind, len(operands), len(results), id(attributes) if attributes else 0)
            wires += operands
            wires += results
        places = {value: place for place, value in enumerate(dict.fromkeys(wires))}
        shapes = tuple([(value.shape, value.dtype) for value in map(values.__getitem__, places)])
        wires += reads
        wires += writes
        key = tuple(said), shapes, tuple(map(places.__getitem__, wires)), len(reads)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST:
                self._known.clear()
                self._attributes.clear()
            found = self._known[key] = {}
            for number in numbers:
                attributes = ops[number].attributes
                self._attributes[id(attributes)] = attributes  # no other has this ``id`` while it is kept
        return found
