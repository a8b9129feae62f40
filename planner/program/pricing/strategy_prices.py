"""What each strategy of a kernel takes, worked out by its blueprint: in all, and more or less in other company."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ...graph import Graph
from ...images import LANES
from ..step.blueprint import Blueprint
from ..step.far import far_reads, large_reads
from ..step.pieces import Pieces
from .choices import Among, Choice, choices
from .costs import Costs, Pricing, Sum
from .options import EachTurn, Options, Seconds
from .rough import Worth, saving_too_much, worth

Exactly = Sequence[Choice | None]  # None of what is known roughly
LITTLE = 1e-3
"""What part of what a kernel takes is not worked out where it is at most that."""


@dataclass(kw_only=True)
class StrategyPrices:
    """Works out the strategies of blueprints: all, or those ``among`` some, of each or by its id; all priced
    ``exactly``, or none that is far from the best. ``priced`` has what prices each blueprint. Axes of one dim stand in
    ``order`` (``choices``).
    """

    pricing: Pricing
    pieces: Pieces
    among: Among | Mapping[int, Among] | None = None
    order: Sequence[str] | None = None
    exactly: bool = False
    priced: dict[int, Costs] = field(default_factory=dict)

    def costs(self, blueprint: Blueprint) -> Costs:
        """What prices a blueprint, which is kept and with it what it finds."""
        if id(blueprint) not in self.priced:
            self.priced[id(blueprint)] = Costs(blueprint=blueprint, pricing=self.pricing, pieces=self.pieces)
        return self.priced[id(blueprint)]

    def options(self, blueprint: Blueprint) -> Options:
        """Every strategy of a blueprint worth having."""
        costs = self.costs(blueprint.apart)
        among = self.among.get(id(blueprint)) if isinstance(self.among, Mapping) else self.among
        every = list(choices(blueprint.nest, self.pricing.mesh, among, self.order))
        found = worth(costs, every, blueprint.edge, exactly=self.exactly)
        options = self._options_of(blueprint, costs, found)
        if self.exactly or costs.is_sending_all:
            return options
        roughly = list(saving_too_much(costs, found, options))
        return options if roughly == found else self._options_of(blueprint, costs, roughly)

    def before_end(self, blueprint: Blueprint, found: Options, made: int) -> Options:
        """The strategies of a product apart from what ends it. What it takes less where it is handed a value it takes
        less with and without its end, and its end no more than that takes of one that is handed it.
        """
        product, ops, forms = blueprint.until(made)
        costs = self.costs(product)
        rests = [of_rest(each, forms, ops) for each in found.chosen]
        exactly = found.exactly
        whole = self.costs(blueprint)
        alone = np.array(
            [
                costs.seconds(rest) if is_exact else took - whole.sent_in_all_s(choice) + costs.sent_in_all_s(rest)
                for is_exact, choice, rest, took in zip(exactly, found.chosen, rests, found.costs.tolist(), strict=True)
            ]
        )
        computing = alone
        if found.savings:
            pairs = zip(exactly, rests, strict=True)
            computing = np.array([costs.computing_s(rest) if is_exact else 0.0 for is_exact, rest in pairs])
        least = np.minimum(found.costs, alone)
        ended, beside, savings = found.costs - least, alone - least, dict[int, Seconds]()
        for value, saving in found.savings.items():
            with_end = found.costs - saving
            without = alone - np.maximum(computing - self._handed(blueprint, found, made, value), 0.0)
            least_handed = np.minimum(with_end, without)
            savings[value] = np.maximum(least - least_handed, 0.0)
            ended, beside = np.minimum(ended, with_end - least_handed), np.minimum(beside, without - least_handed)
        inside = {
            value for number in ops for op in (blueprint.own.ops[number],) for value in (*op.operands, *op.results)
        }
        layouts = {value: each for value, each in found.layouts.items() if value in inside}
        sums = _sums(blueprint, whole, found.chosen, (made,))
        kept = replace(found.reading(inside), layouts=layouts, savings=savings, tables={}, sums=sums)
        return replace(kept, costs=least, ended=ended, alone=beside)

    def exactly_s(self, blueprint: Blueprint, made: int | None, rough: Options, choice: int) -> float:
        """Seconds more than a rough choice costs, however much less it takes for what it is handed; of a product apart
        from what ends it by what it makes.
        """
        costs = self.costs(blueprint.apart)
        own = rough.chosen[choice]
        exact = self._options_of(blueprint, costs, [Worth(own, costs.seconds(own))])
        exact = exact if made is None else self.before_end(blueprint, exact, made)
        more_s = sum(float(each[0]) for by_value in (exact.savings, exact.rounded) for each in by_value.values())
        for by_value in (exact.tables, exact.far, exact.parts, exact.across):
            more_s -= sum(min(float(each[0]), 0.0) for each in by_value.values())
        for own_s, known_s in ((exact.ended, rough.ended), (exact.alone, rough.alone)):
            more_s += 0.0 if own_s is None or known_s is None else max(float(known_s[choice] - own_s[0]), 0.0)
        return max(float(exact.costs[0] - rough.costs[choice]) - more_s, 0.0)

    def _handed(self, blueprint: Blueprint, found: Options, made: int, value: int) -> Seconds:
        """Seconds of computing what a kernel makes before its end where it is handed a value."""
        rest, ops, forms = blueprint.until(made, value)
        costs = self.costs(rest)
        pairs = zip(found.exactly, found.chosen, strict=True)
        took = (costs.computing_s(of_rest(each, forms, ops)) if is_exact else 0.0 for is_exact, each in pairs)
        return np.array(list(took))

    def _options_of(self, blueprint: Blueprint, costs: Costs, found: Sequence[Worth]) -> Options:
        nest = blueprint.nest
        chosen = [each.choice for each in found]
        exactly = [each.choice if each.roughly is None else None for each in found]
        lies = self.pricing.lies
        by_form = [[lies(choice.layouts[form]) for choice in chosen] for form in range(len(nest.forms))]
        apart = np.array([costs.computing_s(choice) if blueprint.is_free else 0.0 for choice in chosen])
        masks = [costs.masks(choice) for choice in chosen]
        on = self.pricing.machine, self.pricing.speed
        return Options(
            costs=np.array([each.seconds for each in found]),
            apart=apart,
            after=np.where(list(map(bool, masks)), apart, 0.0),
            layouts={value: by_form[nest.form_of[value]] for value in range(len(blueprint.own.values))},
            savings=dict(self._savings(blueprint, costs, exactly)),
            tables=self._tables(blueprint, costs, exactly),
            far=self._far(blueprint.apart, costs, exactly, far_reads(blueprint.around, *on))
            | _relaid(blueprint, costs, chosen),
            parts=self._far(blueprint.apart, costs, exactly, large_reads(blueprint.around, *on)),
            across=dict(self._across(blueprint.apart, costs, exactly)),
            rounded=self._rounded(blueprint.apart, costs, exactly),
            chosen=tuple(chosen),
            rough={place: each.roughly for place, each in enumerate(found) if each.roughly is not None},
            deterred={place: more_s for place, each in enumerate(chosen) if (more_s := costs.deterred_s(each))},
            sums=_sums(blueprint, costs, chosen, _left(blueprint.own)),
            each_turn=dict(_each_turn(blueprint, costs, chosen)),
            done=_done(blueprint, costs, chosen, masks),
            whole=dict(self._whole(blueprint, costs, chosen)),
        )

    def _savings(self, blueprint: Blueprint, costs: Costs, chosen: Exactly) -> Iterator[tuple[int, Seconds]]:
        for value in blueprint.handed:
            rest, ops, forms = blueprint.without(value)
            others = self.costs(rest)
            less = (
                0.0 if each is None else costs.computing_s(each) - others.computing_s(of_rest(each, forms, ops))
                for each in chosen
            )
            yield value, np.maximum(list(less), 0.0)

    def _whole(self, blueprint: Blueprint, costs: Costs, chosen: Sequence[Choice]) -> Iterator[tuple[int, Seconds]]:
        """What writing takes what is else computed in passing, where a device's part is cut out of it: nothing on a
        GPU, which cuts it out as it computes it.
        """
        passed = [self.pricing.machine.platform != "gpu" and costs.is_passed(choice) for choice in chosen]
        for value in blueprint.own.results if any(passed) else ():
            written = blueprint.written_whole(value)
            if written is None:
                continue
            part, ops, forms = blueprint.until(written)
            own = self.costs(part)
            took = (
                own.computing_s(of_rest(each, forms, ops)) if is_passed else 0.0
                for each, is_passed in zip(chosen, passed, strict=True)
            )
            yield value, np.array(list(took))

    def _tables(self, blueprint: Blueprint, costs: Costs, chosen: Exactly) -> dict[int, Seconds]:
        if blueprint.table is None or blueprint.is_free:
            return {}
        return {blueprint.table: self._more(blueprint, costs, chosen)}

    def _far(self, blueprint: Blueprint, costs: Costs, chosen: Exactly, far: frozenset[int]) -> dict[int, Seconds]:
        """What its products take more that read a value from the large memory, of those that are ``far``."""
        read = () if blueprint.is_free else sorted(far.intersection(blueprint.own.arguments))
        return {value: self._more(blueprint.reading_far(value), costs, chosen) for value in read}

    def _across(self, blueprint: Blueprint, costs: Costs, chosen: Exactly) -> Iterator[tuple[int, Seconds]]:
        """What convolutions take more, or less, whose kernel lies across: wide squares hold it one way."""
        for value in sorted(blueprint.gapped) if 1 < self.pricing.speed.edge <= LANES else ():
            more = self._more(blueprint.reading_across(value), costs, chosen)
            if more.any():
                yield value, more

    def _rounded(self, blueprint: Blueprint, costs: Costs, chosen: Exactly) -> dict[int, Seconds]:
        """What its products take less that read a value rounded: its bytes take no longer, and they multiply still.
        Where that is little it is not worked out.
        """
        found = {}
        for value in blueprint.rounded if blueprint.multiplied and not blueprint.is_free else ():
            if value not in blueprint.own.arguments:
                continue
            others = self.costs(blueprint.reading_rounded(value))
            less = np.zeros(len(chosen))
            for place, choice in enumerate(chosen):
                if choice is not None:
                    took_s, most_s = costs.computing_s(choice), costs.rounding_saves_s(choice, value)
                    is_little = most_s <= LITTLE * took_s
                    less[place] = most_s if is_little else max(took_s - others.computing_s(choice), 0.0)
            if less.any():
                found[value] = less
        return found

    def _more(self, blueprint: Blueprint, costs: Costs, chosen: Exactly) -> Seconds:
        """What computing takes more of a kernel that is in other company."""
        others = self.costs(blueprint)
        more = (0.0 if each is None else others.computing_s(each) - costs.computing_s(each) for each in chosen)
        return np.array(list(more))


def _relaid(blueprint: Blueprint, costs: Costs, chosen: Sequence[Choice]) -> dict[int, Seconds]:
    """What a GPU's products take more that read what products made, or the caller, where it is copied for them."""
    found: dict[int, Seconds] = {}
    for each in blueprint.around.relaid if not blueprint.is_free else ():
        more = np.array([costs.copying_s(choice, each) for choice in chosen])
        if each.value in blueprint.own.arguments and more.any():
            found[each.value] = found.get(each.value, 0.0) + more
    return found


def _sums(
    blueprint: Blueprint, costs: Costs, chosen: Sequence[Choice], values: Iterable[int]
) -> dict[int, list[Sum | None]]:
    """What of these values is added up over devices as it is written."""
    summed = {value: blueprint.summed[value] for value in values if value in blueprint.summed}
    return {value: [costs.sum_of(number, each) for each in chosen] for value, number in summed.items()}


def _each_turn(blueprint: Blueprint, costs: Costs, chosen: Sequence[Choice]) -> Iterator[tuple[int, EachTurn]]:
    """What of the values that a kernel leaves is added up behind a loop, and may be in every turn."""
    for number in blueprint.behind:
        value = blueprint.left_of(number)
        found = [costs.each_turn(number, each) for each in chosen]
        if value is not None and any(each for _, each in found):
            yield value, (np.array([more_s for more_s, _ in found]), [each for _, each in found])


def _done(
    blueprint: Blueprint, costs: Costs, chosen: Sequence[Choice], masks: Sequence[frozenset[int]]
) -> dict[int, NDArray[np.bool_]]:
    """Under which strategies nothing that is done to a value later can be computed with it."""
    summed = [value for value in _left(blueprint.own) if value in blueprint.summed]
    found = {value: np.array([costs.is_received(blueprint.summed[value], each) for each in chosen]) for value in summed}
    bits = {value: np.array([value in each for each in masks]) for value in frozenset[int]().union(*masks)}
    return found | bits


def _left(own: Graph) -> list[int]:
    """What a kernel leaves and does not read itself."""
    read = {value for op in own.ops for value in op.operands}
    return [value for value in own.results if value not in read]


def of_rest(choice: Choice, forms: Sequence[int], ops: Sequence[int]) -> Choice:
    """A choice as a part of its kernel has it: of these forms and operations."""
    asking = tuple(place for place, number in enumerate(ops) if number in choice.asking)
    return Choice(tuple(choice.layouts[form] for form in forms), asking)
