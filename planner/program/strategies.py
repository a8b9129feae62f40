"""Every strategy of a kernel worth having, with its seconds: alike kernels are worked out once."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..graph import Graph, Sharding
from ..kernels import Kernel
from .choices import Choice, choices
from .costs import Costs, Pricing, kernel_graph
from .nest import nest_of
from .pieces import Pieces, name_of

Found = tuple[NDArray[np.float64], list[list[Sharding]]]


@dataclass(slots=True, kw_only=True)
class Strategies:
    """The strategies of kernels on one mesh; ``known`` are those worked out before, by what the kernel does."""

    pricing: Pricing
    known: dict[object, Found] = field(default_factory=dict)
    pieces: Pieces = field(init=False)

    def __post_init__(self) -> None:
        self.pieces = self.pricing.pieces()

    def of(self, graph: Graph, kernel: Kernel) -> tuple[NDArray[np.float64], dict[int, list[Sharding]]]:
        """Seconds of one run under each strategy, and the layouts of all of the kernel's values, by their numbers."""
        own, numbers = kernel_graph(graph, kernel, self.pricing.mesh)
        key = name_of(own)
        if key not in self.known:
            self.known[key] = self._work_out(own)
        costs, layouts = self.known[key]
        return costs, {number: layouts[place] for place, number in enumerate(numbers)}

    def _work_out(self, own: Graph) -> Found:
        nest = nest_of(own, range(len(own.ops)))
        costs = Costs(own=own, nest=nest, pricing=self.pricing, pieces=self.pieces)
        edge = sorted({nest.form_of[value] for value in (*own.arguments, *own.results)})
        best: dict[tuple[Sharding, ...], tuple[float, Choice]] = {}
        for choice in choices(nest, self.pricing.mesh):
            seen = tuple(choice.layouts[form] for form in edge)
            seconds = costs.seconds(choice)
            if seen not in best or seconds < best[seen][0]:
                best[seen] = (seconds, choice)
        by_form = [[choice.layouts[form] for _, choice in best.values()] for form in range(len(nest.forms))]
        seconds_all = np.array([seconds for seconds, _ in best.values()])
        return seconds_all, [by_form[nest.form_of[value]] for value in range(len(own.values))]
