"""Every strategy of a kernel worth having, with its seconds: alike kernels are worked out once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..graph import Graph, Sharding
from ..kernels import Kernel
from .blueprint import Blueprint
from .choices import Choice, choices
from .costs import Costs, Pricing
from .known import Known
from .pieces import Pieces

Costs_s = NDArray[np.float64]
Found = tuple[Costs_s, Costs_s, list[list[Sharding]]]


@dataclass(kw_only=True)
class Strategies:
    """The strategies of kernels on one mesh; ``found`` are those worked out before, by the kernel's blueprint."""

    pricing: Pricing
    known: Known
    found: dict[int, Found] = field(default_factory=dict)
    pieces: Pieces = field(init=False)

    def __post_init__(self) -> None:
        self.pieces = self.pricing.pieces()

    @cached_property
    def of_one_device(self) -> Strategies:
        """Those of what one device computes by itself: one for each kernel."""
        return Strategies(pricing=replace(self.pricing, mesh={}), known=self.known)

    def of(self, graph: Graph, kernel: Kernel) -> tuple[Costs_s, Costs_s, dict[int, list[Sharding]]]:
        """Seconds of one run under each strategy, those more if a kernel that is free has to run by itself, and the
        layouts of all of the kernel's values, by their numbers.
        """
        blueprint, numbers = self.known.blueprint(graph, kernel)
        if id(blueprint) not in self.found:
            self.found[id(blueprint)] = self._work_out(blueprint)
        costs, apart, layouts = self.found[id(blueprint)]
        return costs, apart, {number: layouts[place] for place, number in enumerate(numbers)}

    def _work_out(self, blueprint: Blueprint) -> Found:
        nest = blueprint.nest
        costs = Costs(blueprint=blueprint, pricing=self.pricing, pieces=self.pieces)
        best: dict[tuple[Sharding, ...], tuple[float, Choice]] = {}
        for choice in choices(nest, self.pricing.mesh):
            seen = tuple(choice.layouts[form] for form in blueprint.edge)
            seconds = costs.seconds(choice)
            if seen not in best or seconds < best[seen][0]:
                best[seen] = (seconds, choice)
        by_form = [[choice.layouts[form] for _, choice in best.values()] for form in range(len(nest.forms))]
        seconds_all = np.array([seconds for seconds, _ in best.values()])
        chosen = [choice for _, choice in best.values()]
        apart = np.array([costs.computing_s(choice) if blueprint.is_free else 0.0 for choice in chosen])
        return seconds_all, apart, [by_form[nest.form_of[value]] for value in range(len(blueprint.own.values))]
