"""Every strategy of a kernel worth having, with its seconds: alike kernels are worked out once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...graph import Graph, Sharding
from ...kernels import Kernel, Program
from ..step.blueprint import Blueprint
from ..step.known import Known
from .beside import shared
from .choices import Split
from .options import Options, Seconds
from .strategy_prices import StrategyPrices, of_rest

REGION = "manual_computation"


@dataclass(kw_only=True)
class Strategies:
    """The strategies of kernels on one mesh; ``found`` are those worked out before, by the kernel's blueprint, and of
    products apart from what ends them by the value that they make.
    """

    prices: StrategyPrices
    known: Known
    found: dict[tuple[int, int | None], Options] = field(default_factory=dict)

    @cached_property
    def of_one_device(self) -> Strategies:
        """Those of what one device computes by itself: one for each kernel."""
        pricing = replace(self.prices.pricing, mesh={})
        return Strategies(prices=StrategyPrices(pricing=pricing, pieces=pricing.pieces()), known=self.known)

    def splits(self, graph: Graph, kernel: Kernel, choice: int) -> tuple[int, tuple[Split, ...] | None]:
        """The id of a kernel's blueprint, and what the axes split under a choice; None for what one device computes."""
        blueprint, _, made = self._asked(graph, kernel)
        found = self.found.get((id(blueprint), made))
        return id(blueprint), None if found is None else found.chosen[choice].splits

    def of(self, graph: Graph, kernel: Kernel) -> Options:
        """Those of a kernel, its values by their numbers."""
        blueprint, numbers, made = self._asked(graph, kernel)
        if (id(blueprint), made) not in self.found:
            self.found[id(blueprint), made] = self._worked_out(blueprint, made)
        return self.found[id(blueprint), made].renamed(numbers)

    def brought(self, graph: Graph, kernel: Kernel, value: int, layout: Sharding) -> tuple[Seconds, Seconds] | None:
        """Seconds more of one run where what makes a value leaves it in a layout, by the kernel's choices: how that is
        brought there is for the partitioner to say; and those more where it is written so. None of what is computed in
        passing, or with what ends it.
        """
        blueprint, numbers, made = self._asked(graph, kernel)
        if made is not None or blueprint.is_free:
            return None
        place, options = numbers.index(value), self.of(graph, kernel)
        costs = self.prices.costs(blueprint.apart)
        took = [
            costs.brought_s(choice, place, layout) if own != layout else (seconds, 0.0)
            for choice, seconds, own in zip(options.chosen, options.costs.tolist(), options.layouts[value], strict=True)
        ]
        alone_s = options.costs.copy()
        for choice in options.rough:
            alone_s[choice] = costs.seconds(options.chosen[choice])
        return np.array([each for each, _ in took]) - alone_s, np.array([each for _, each in took])

    def divided(self, graph: Graph, kernel: Kernel, value: int) -> Seconds:
        """Seconds more of one run, by the kernel's choices, where what comes after a value that it leaves is a kernel
        of its own.
        """
        blueprint, numbers, _ = self._asked(graph, kernel)
        place, chosen = numbers.index(value), self.of(graph, kernel).chosen
        whole = self.prices.costs(blueprint.apart)
        more = -np.array([whole.computing_s(each) for each in chosen])
        for part, ops, forms in (blueprint.until(place), blueprint.after(place)):
            costs = self.prices.costs(part)
            more = more + np.array([costs.computing_s(of_rest(each, forms, ops)) for each in chosen])
        return np.array(np.maximum(more, 0.0))

    def until(self, graph: Graph, kernel: Kernel, value: int) -> Seconds:
        """Seconds of one run, by the kernel's choices, of making one of its values and nothing after that."""
        blueprint, numbers, _ = self._asked(graph, kernel)
        part, ops, forms = blueprint.until(numbers.index(value))
        costs = self.prices.costs(part)
        return np.array([costs.computing_s(of_rest(each, forms, ops)) for each in self.of(graph, kernel).chosen])

    def spares(self, graph: Graph, kernel: Kernel, value: int) -> Seconds:
        """Seconds of one run less, by the kernel's choices, where it is handed one of its values; less than 0 where it
        takes longer to read that.
        """
        blueprint, numbers, _ = self._asked(graph, kernel)
        rest, ops, forms = blueprint.without(numbers.index(value))
        whole, costs = self.prices.costs(blueprint.apart), self.prices.costs(rest)
        chosen = self.of(graph, kernel).chosen
        less = [whole.computing_s(each) - costs.computing_s(of_rest(each, forms, ops)) for each in chosen]
        return np.array(less)

    def beside(self, graph: Graph, kernel: Kernel, value: int, dtype: str) -> Seconds:
        """Seconds more of one run, by the kernel's choices, where what makes a value leaves as many numbers more."""
        blueprint, numbers, _ = self._asked(graph, kernel)
        chosen, own = self.of(graph, kernel).chosen, blueprint.apart
        place = (numbers.index(value), dtype)
        one, both = self.prices.costs(own), replace(self.prices.costs(own), computed={}, beside=(place,))
        return np.array([both.computing_s(each) - one.computing_s(each) for each in chosen])

    def views(self, graph: Graph, kernel: Kernel) -> dict[int, tuple[NDArray[np.bool_], Seconds]]:
        """By what the kernel reads only to spread it the choices under which that is over what other devices have, and
        seconds of one run of reading it.
        """
        blueprint, numbers, _ = self._asked(graph, kernel)
        costs, chosen = self.prices.costs(blueprint.apart), self.of(graph, kernel).chosen
        return {
            numbers[value]: (
                np.array([costs.is_viewed(each, value, made) for each in chosen]),
                np.array([0.0 if costs.is_view(each) else costs.read_s(each, value) for each in chosen]),
            )
            for value, made in blueprint.spreads.items()
        }

    def sent(self, graph: Graph, kernel: Kernel, number: int) -> Seconds:
        """Seconds of one run, by the kernel's choices, that neighbours send each other for an operation."""
        blueprint, numbers, _ = self._asked(graph, kernel)
        costs = self.prices.costs(blueprint.apart)
        made = numbers.index(graph.ops[number].results[0])
        place = next(at for at, op in enumerate(blueprint.own.ops) if made in op.results)
        return np.array([costs.sent_s(place, each) for each in self.of(graph, kernel).chosen])

    def share(self, program: Program) -> None:
        """Works those of all kernels of a program out, with another process's help: a family by one of the two, in
        order, for what parts become is said by those that are the first to have them.
        """
        asked: dict[int, tuple[Blueprint, dict[int | None, None]]] = {}
        for blueprint, made in self._every(program):
            asked.setdefault(id(blueprint), (blueprint, {}))[1][made] = None
        families: dict[int, list[tuple[Blueprint, int | None]]] = {}
        for blueprint, parts in asked.values():
            families.setdefault(id(blueprint.alike), []).extend((blueprint, made) for made in parts)
        axes = len(self.prices.pricing.mesh)
        jobs = sorted(families.values(), key=lambda job: -sum(blueprint.effort(axes) for blueprint, _ in job))

        def work(number: int) -> list[Options]:
            for blueprint, made in jobs[number]:
                self.found[id(blueprint), made] = self._worked_out(blueprint, made)
            return [self.found[id(blueprint), made] for blueprint, made in jobs[number]]

        for job, several in zip(jobs, shared(work, len(jobs)), strict=True):
            self.found |= {(id(blueprint), made): each for (blueprint, made), each in zip(job, several, strict=True)}

    def _every(self, program: Program) -> Iterator[tuple[Blueprint, int | None]]:
        """What is asked for of the kernels of a program and of its loops."""
        for kernel in program.kernels:
            if not kernel.bodies:
                blueprint, _, made = self._asked(program.graph, kernel)
                yield blueprint, made
            elif program.graph.ops[kernel.ops[-1]].kind != REGION:
                for body in kernel.bodies:
                    yield from self._every(body)

    def _asked(self, graph: Graph, kernel: Kernel) -> tuple[Blueprint, tuple[int, ...], int | None]:
        """The blueprint of a kernel, the numbers of its values; of a product apart from what ends it what it makes."""
        _, whole = self.known.ended.get(id(kernel), (kernel, kernel))
        blueprint, numbers = self.known.blueprint(graph, whole)
        return blueprint, numbers, None if whole is kernel else numbers.index(kernel.writes[0])

    def _worked_out(self, blueprint: Blueprint, made: int | None) -> Options:
        if made is None:
            return self.prices.options(blueprint)
        if (id(blueprint), None) not in self.found:
            self.found[id(blueprint), None] = self.prices.options(blueprint)
        return self.prices.before_end(blueprint, self.found[id(blueprint), None], made)

    def exactly_s(self, graph: Graph, kernel: Kernel, choice: int) -> float:
        """Seconds of one run more than a rough choice costs, however much less it takes for what it is handed."""
        blueprint, _, made = self._asked(graph, kernel)
        return self.prices.exactly_s(blueprint, made, self.found[id(blueprint), made], choice)
