"""Every strategy of a kernel worth having, with its seconds: alike kernels are worked out once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...graph import Graph, Sharding
from ...images import LANES
from ...kernels import Kernel, Program
from ..step.blueprint import Blueprint
from ..step.far import far_reads, large_reads
from ..step.known import Known
from ..step.pieces import Pieces
from .beside import shared
from .choices import Among, Choice, Split, choices
from .costs import Costs, Pricing, Sum
from .rough import Worth, worth

Seconds = NDArray[np.float64]
Exactly = Sequence[Choice | None]  # None of what is known roughly
REGION = "manual_computation"
LITTLE = 1e-3
"""What part of what a kernel takes is not worked out where it is at most that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The strategies of a kernel: ``costs`` are seconds of one run under each, ``apart`` those more if one that is free
    has to run by itself, ``after`` if a product before it is to compute it, ``layouts`` those of its values.

    ``savings`` are the seconds less where it reads a value that it is handed, not computing it in passing;
    ``tables`` those more where it reads a value as it lies that was scattered into, ``far`` where it reads one from the
    large memory that lies there so, ``parts`` where it does a part of one, ``across`` where one has been gathered of
    pieces that lie across; ``rounded`` are those less where it reads one that was rounded for its products. Those of a
    product that something ends are more by ``ended`` if that is computed with it, and by ``alone`` if not. ``sums`` has
    what is added up over devices as it is written, ``done`` under which strategies nothing done to it later can be
    computed with it, by the value: it is left as bits, or devices sent it. What is computed in passing takes ``whole``
    more, by the value, where a device's part is cut out of it: then it is written before. From those ``deterred`` a
    search is kept as if they cost so much more.
    """

    costs: Seconds
    apart: Seconds
    after: Seconds
    layouts: dict[int, list[Sharding]]
    savings: dict[int, Seconds]
    tables: dict[int, Seconds] = field(default_factory=dict)
    far: dict[int, Seconds] = field(default_factory=dict)
    parts: dict[int, Seconds] = field(default_factory=dict)
    across: dict[int, Seconds] = field(default_factory=dict)
    rounded: dict[int, Seconds] = field(default_factory=dict)
    chosen: tuple[Choice, ...] = ()
    ended: Seconds | None = None
    alone: Seconds | None = None
    sums: dict[int, list[Sum | None]] = field(default_factory=dict)
    done: dict[int, NDArray[np.bool_]] = field(default_factory=dict)
    whole: dict[int, Seconds] = field(default_factory=dict)
    rough: dict[int, float] = field(default_factory=dict)
    deterred: dict[int, float] = field(default_factory=dict)

    @property
    def exactly(self) -> list[bool]:
        """Which of them are priced."""
        return [place not in self.rough for place in range(len(self.chosen))]

    def renamed(self, numbers: Sequence[int]) -> Options:
        """The same of a kernel whose values have other numbers."""
        layouts = {numbers[place]: each for place, each in self.layouts.items()}
        by_value = (self.savings, self.tables, self.far, self.parts, self.across, self.whole, self.rounded)
        savings, tables, far, *read = ({numbers[v]: each for v, each in found.items()} for found in by_value)
        parts, across, whole, rounded = read
        sums = {numbers[value]: each for value, each in self.sums.items()}
        done = {numbers[value]: each for value, each in self.done.items()}
        kept = replace(self, layouts=layouts, savings=savings, tables=tables, far=far, parts=parts, across=across)
        return replace(kept, whole=whole, rounded=rounded, sums=sums, done=done)


@dataclass(kw_only=True)
class Strategies:
    """The strategies of kernels on one mesh; ``found`` are those worked out before, by the kernel's blueprint, and of
    products apart from what ends them by the value that they make, ``priced`` has what prices each blueprint. Choices
    are all, or those ``among`` some: of each kernel, or by its blueprint's id; all priced ``exactly``, or none that is
    far from the best.
    """

    pricing: Pricing
    known: Known
    pieces: Pieces
    among: Among | Mapping[int, Among] | None = None
    exactly: bool = False
    found: dict[tuple[int, int | None], Options] = field(default_factory=dict)
    priced: dict[int, Costs] = field(default_factory=dict)

    @cached_property
    def of_one_device(self) -> Strategies:
        """Those of what one device computes by itself: one for each kernel."""
        pricing = replace(self.pricing, mesh={})
        return Strategies(pricing=pricing, known=self.known, pieces=pricing.pieces())

    def _costs(self, blueprint: Blueprint) -> Costs:
        """What prices a blueprint, which is kept and with it what it finds."""
        if id(blueprint) not in self.priced:
            self.priced[id(blueprint)] = Costs(blueprint=blueprint, pricing=self.pricing, pieces=self.pieces)
        return self.priced[id(blueprint)]

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
        costs = self._costs(blueprint.apart)
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
        whole = self._costs(blueprint.apart)
        more = -np.array([whole.computing_s(each) for each in chosen])
        for part, ops, forms in (blueprint.until(place), blueprint.after(place)):
            costs = self._costs(part)
            more = more + np.array([costs.computing_s(_of_rest(each, forms, ops)) for each in chosen])
        return np.array(np.maximum(more, 0.0))

    def beside(self, graph: Graph, kernel: Kernel, value: int, dtype: str) -> Seconds:
        """Seconds more of one run, by the kernel's choices, where what makes a value leaves as many numbers more."""
        blueprint, numbers, _ = self._asked(graph, kernel)
        chosen, own = self.of(graph, kernel).chosen, blueprint.apart
        place = (numbers.index(value), dtype)
        one, both = self._costs(own), replace(self._costs(own), computed={}, beside=(place,))
        return np.array([both.computing_s(each) - one.computing_s(each) for each in chosen])

    def sent(self, graph: Graph, kernel: Kernel, number: int) -> Seconds:
        """Seconds of one run, by the kernel's choices, that neighbours send each other for an operation."""
        blueprint, numbers, _ = self._asked(graph, kernel)
        costs = self._costs(blueprint.apart)
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
        axes = len(self.pricing.mesh)
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
            return self._work_out(blueprint)
        if (id(blueprint), None) not in self.found:
            self.found[id(blueprint), None] = self._work_out(blueprint)
        return self._before_end(blueprint, self.found[id(blueprint), None], made)

    def _before_end(self, blueprint: Blueprint, found: Options, made: int) -> Options:
        """The strategies of a product apart from what ends it. What it takes less where it is handed a value it takes
        less with and without its end, and its end no more than that takes of one that is handed it.
        """
        product, ops, forms = blueprint.until(made)
        costs = self._costs(product)
        rests = [_of_rest(each, forms, ops) for each in found.chosen]
        exactly = found.exactly
        whole = self._costs(blueprint)
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
        by_value = (found.far, found.parts, found.across, found.rounded)
        far, parts, across, rounded = ({v: each for v, each in known.items() if v in inside} for known in by_value)
        kept = replace(found, layouts=layouts, savings=savings, tables={}, far=far, parts=parts, across=across)
        kept = replace(kept, rounded=rounded, sums=sums)
        return replace(kept, costs=least, ended=ended, alone=beside)

    def _handed(self, blueprint: Blueprint, found: Options, made: int, value: int) -> Seconds:
        """Seconds of computing what a kernel makes before its end where it is handed a value."""
        rest, ops, forms = blueprint.until(made, value)
        costs = self._costs(rest)
        pairs = zip(found.exactly, found.chosen, strict=True)
        took = (costs.computing_s(_of_rest(each, forms, ops)) if is_exact else 0.0 for is_exact, each in pairs)
        return np.array(list(took))

    def exactly_s(self, graph: Graph, kernel: Kernel, choice: int) -> float:
        """Seconds of one run more than a rough choice costs, however much less it takes for what it is handed."""
        blueprint, _, made = self._asked(graph, kernel)
        rough = self.found[id(blueprint), made]
        costs = self._costs(blueprint.apart)
        own = rough.chosen[choice]
        exact = self._options(blueprint, costs, [Worth(own, costs.seconds(own))])
        exact = exact if made is None else self._before_end(blueprint, exact, made)
        more_s = sum(float(each[0]) for by_value in (exact.savings, exact.rounded) for each in by_value.values())
        for by_value in (exact.tables, exact.far, exact.parts, exact.across):
            more_s -= sum(min(float(each[0]), 0.0) for each in by_value.values())
        for own_s, known_s in ((exact.ended, rough.ended), (exact.alone, rough.alone)):
            more_s += 0.0 if own_s is None or known_s is None else max(float(known_s[choice] - own_s[0]), 0.0)
        return max(float(exact.costs[0] - rough.costs[choice]) - more_s, 0.0)

    def _work_out(self, blueprint: Blueprint) -> Options:
        costs = self._costs(blueprint.apart)
        among = self.among.get(id(blueprint)) if isinstance(self.among, Mapping) else self.among
        every = list(choices(blueprint.nest, self.pricing.mesh, among))
        return self._options(blueprint, costs, worth(costs, every, blueprint.edge, exactly=self.exactly))

    def _options(self, blueprint: Blueprint, costs: Costs, found: Sequence[Worth]) -> Options:
        nest = blueprint.nest
        chosen = [each.choice for each in found]
        exactly = [each.choice if each.roughly is None else None for each in found]
        by_form = [[choice.layouts[form] for choice in chosen] for form in range(len(nest.forms))]
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
            far=self._far(blueprint.apart, costs, exactly, far_reads(blueprint.around, *on)),
            parts=self._far(blueprint.apart, costs, exactly, large_reads(blueprint.around, *on)),
            across=dict(self._across(blueprint.apart, costs, exactly)),
            rounded=self._rounded(blueprint.apart, costs, exactly),
            chosen=tuple(chosen),
            rough={place: each.roughly for place, each in enumerate(found) if each.roughly is not None},
            deterred={place: more_s for place, each in enumerate(chosen) if (more_s := costs.deterred_s(each))},
            sums=_sums(blueprint, costs, chosen, _left(blueprint.own)),
            done=_done(blueprint, costs, chosen, masks),
            whole=dict(self._whole(blueprint, costs, chosen)),
        )

    def _savings(self, blueprint: Blueprint, costs: Costs, chosen: Exactly) -> Iterator[tuple[int, Seconds]]:
        for value in blueprint.handed:
            rest, ops, forms = blueprint.without(value)
            others = self._costs(rest)
            less = (
                0.0 if each is None else costs.computing_s(each) - others.computing_s(_of_rest(each, forms, ops))
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
            own = self._costs(part)
            took = (
                own.computing_s(_of_rest(each, forms, ops)) if is_passed else 0.0
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
            others = self._costs(blueprint.reading_rounded(value))
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
        others = self._costs(blueprint)
        more = (0.0 if each is None else others.computing_s(each) - costs.computing_s(each) for each in chosen)
        return np.array(list(more))


def _sums(
    blueprint: Blueprint, costs: Costs, chosen: Sequence[Choice], values: Iterable[int]
) -> dict[int, list[Sum | None]]:
    """What of these values is added up over devices as it is written."""
    summed = {value: blueprint.summed[value] for value in values if value in blueprint.summed}
    return {value: [costs.sum_of(number, each) for each in chosen] for value, number in summed.items()}


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


def _of_rest(choice: Choice, forms: Sequence[int], ops: Sequence[int]) -> Choice:
    asking = tuple(place for place, number in enumerate(ops) if number in choice.asking)
    return Choice(tuple(choice.layouts[form] for form in forms), asking)
