"""Every strategy of a kernel worth having, with its seconds: alike kernels are worked out once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph import Graph, Op, Sharding
from ..kernels import Kernel
from .choices import choices
from .costs import Pricing, kernel_graph, laid_out
from .nest import nest_of

Found = tuple[NDArray[np.float64], list[list[Sharding]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategies:
    """The strategies of kernels on one mesh; ``known`` are those worked out before, by what the kernel does."""

    pricing: Pricing
    known: dict[object, Found] = field(default_factory=dict)

    def of(self, graph: Graph, kernel: Kernel) -> tuple[NDArray[np.float64], dict[int, list[Sharding]]]:
        """Seconds of one run under each strategy, and the layouts of all of the kernel's values, by their numbers."""
        own, numbers = kernel_graph(graph, kernel, self.pricing.mesh)
        key = (tuple(map(signature, own.ops)), tuple((v.shape, v.dtype) for v in own.values), own.results)
        if key not in self.known:
            self.known[key] = self._work_out(own)
        costs, layouts = self.known[key]
        return costs, {number: layouts[place] for place, number in enumerate(numbers)}

    def _work_out(self, own: Graph) -> Found:
        edge = sorted({*own.arguments, *own.results})
        nest = nest_of(own, range(len(own.ops)))
        best: dict[tuple[Sharding, ...], tuple[float, Mapping[int, Sharding]]] = {}
        for choice, layouts in choices(nest, self.pricing.mesh):
            seen = tuple(layouts[value] for value in edge)
            talks = any(split.loop in nest.sums or split.loop in nest.exchanged for split in choice)
            seconds = self.pricing.seconds(laid_out(own, layouts), talks=talks)
            if seen not in best or seconds < best[seen][0]:
                best[seen] = (seconds, layouts)
        costs = np.array([seconds for seconds, _ in best.values()])
        return costs, [[layouts[value] for _, layouts in best.values()] for value in range(len(own.values))]


def signature(op: Op) -> object:
    """What an operation does, to be compared."""
    return (op.kind, op.operands, op.results, op.factors, _frozen(op.attributes))


def _frozen(value: Any) -> object:
    if isinstance(value, Mapping):
        return tuple((k, _frozen(v)) for k, v in sorted(value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(map(_frozen, value))
    return value
