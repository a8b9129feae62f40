"""The program of a step on one mesh: built once, solved under limits, its costs held against the exact price.

The costs of nodes and edges are those of kernels priced alone. A solution is then priced whole, as ``estimate`` does;
what its kernels take together beyond their costs is added to the choices that it made, and the program is solved again
until it promises what the exact price is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...dsl.plan import Mesh
from ..compute.speed import speed_of
from ..convolution_layout import convolutions_in
from ..estimate.limit import memory_limit
from ..estimate.traffic import tariff
from ..graph import Graph, Sharding
from ..images import images
from ..kernels import Program as Kernels
from ..memory.tight import is_tight
from ..partition.target import target
from ..solver.arrays import starts
from ..solver.problem import Problem, assemble
from ..topology import Machine
from .pricing.choices import Among, Counted, by_size
from .pricing.costs import Pricing
from .pricing.counted import CountedReshards, LeastTariff
from .pricing.reshards import Reshards
from .pricing.strategies import Strategies
from .pricing.strategy_prices import StrategyPrices
from .rows.needs import Need, needs
from .rows.standing import with_memory
from .rows.usage import Row, local_bytes, with_needs, with_rows
from .solving.bounded import bounded
from .solving.company import taken_together
from .solving.exact import exact_memory
from .solving.found import Found, Tell
from .solving.learnt import Learnt
from .solving.lowering import Lowering, Moves
from .solving.lowest import lowest
from .solving.rounds import Rounds
from .solving.solutions import PER_S, Solutions
from .step.known import Known
from .step.parted import cut, sizes_of
from .wiring.ties import tied
from .wiring.wires import Wiring
from .wiring.wiring import wire

S_PER_BYTE = 1e-15
"""What a byte of an argument costs, so that nothing is kept whole for no reason: a microsecond a gigabyte."""


@dataclass(slots=True, kw_only=True)
class Program:
    """The choices of a step on one mesh of one machine. ``leader`` has for each node the one that decides for it;
    ``needed`` what products need, by whether results count where they are made, doubt and the number of choices.
    """

    wiring: Wiring
    mesh: Mesh
    machine: Machine
    limit_bytes: int | None
    leader: NDArray[np.int64]
    needed: dict[tuple[bool, float, int], Sequence[Need]] = field(default_factory=dict)

    def solve(
        self,
        *,
        time_limit_s: float = 60.0,
        seed: int = 0,
        stop: Callable[[], bool] | None = None,
        cutoff_s: float = math.inf,
        tell: Tell | None = None,
    ) -> Found:
        """The layouts that take least and fit, found in the time; nothing above ``cutoff_s`` is looked for. The program
        may have more choices afterwards (``open_ways``). ``tell`` hears of the best before it is proven.
        """
        return Rounds(Solutions(self, time.monotonic() + time_limit_s, seed, stop, cutoff_s)).run(tell)

    def lowest(self, *, time_limit_s: float = 60.0, seed: int = 0, stop: Callable[[], bool] | None = None) -> Found:
        """The layouts that take least memory, as far as they are found (``Found.least``)."""
        return lowest(self, time_limit_s=time_limit_s, seed=seed, stop=stop)

    def bounded(
        self, *, time_limit_s: float, seed: int = 0, stop: Callable[[], bool] | None = None, cutoff_s: float = math.inf
    ) -> Found:
        """What the choices cost at least, as far as it is below ``cutoff_s``; no solution is priced."""
        return bounded(Solutions(self, time.monotonic() + time_limit_s, seed, stop, cutoff_s))

    def problem(
        self,
        limit_bytes: int | None,
        learnt: Learnt,
        *,
        guess: bool,
        doubt: float = 1.0,
        rows: Sequence[Row] = (),
        sure: bool = False,
    ) -> Problem:
        """The program as the solver reads it, its costs in picoseconds; without a limit memory is not counted, with one
        in so much ``doubt`` (``with_memory``), or in rows that are sure (``with_needs``). ``rows`` are counted beside
        those.

        What was learnt is added to the costs: as a ``guess`` to every choice that had a part in it, or exactly, by
        nodes of its own after the others. Of nodes that share a decision the first stands for all.
        """
        kept = self.deciders
        costs, tables = self._costs(learnt.guess_s if guess else None), self._tables()
        companies = [] if guess else taken_together(learnt.missed_s, costs, tables)
        one_s = [costs[number] for number in kept]
        place = np.zeros(len(self.leader), np.int64)
        place[kept] = np.arange(len(kept))
        ends = [(int(place[a]), int(place[b])) for a, b in tables]
        several = list(tables.values())
        for own, with_each in companies:
            ends += [(int(place[node]), len(one_s)) for node in with_each]
            several += with_each.values()
            one_s.append(own)
        one_s = [np.rint(each * PER_S) for each in one_s]
        several = [np.rint(each * PER_S) for each in several]
        plain = assemble(
            name="program",
            choice_start=starts(np.array([len(each) for each in one_s], np.int64)),
            costs=np.concatenate([np.zeros(0), *one_s]),
            ends=np.array(ends, np.int64).reshape(-1, 2),
            table_start=starts(np.array([table.size for table in several], np.int64)),
            tables=np.concatenate([np.zeros(0), *map(np.ravel, several)]),
            resources=(),
        )
        if limit_bytes is None:
            return plain
        at = place[self.leader]
        chip = self.machine.chip
        if sure:
            held = with_needs(self.wiring, plain, limit_bytes, at, chip, self._needs(limit_bytes, doubt))
        else:
            held = with_memory(self.wiring, plain, limit_bytes, at, chip, self._needs(limit_bytes, doubt), doubt)
        return with_rows(held, rows, at)

    def _needs(self, limit_bytes: int, doubt: float) -> Sequence[Need]:
        """What products need, worked out once as long as there are no more choices."""
        lent = is_tight(limit_bytes, self.machine.chip.hbm_bytes)
        known = lent, doubt, sum(len(node.costs) for node in self.wiring.nodes)
        if known not in self.needed:
            fast_bytes = self.machine.chip.buffer_vmem_most_bytes
            self.needed[known] = tuple(needs(self.wiring, with_results=lent, doubt=doubt, fast_bytes=fast_bytes))
        return self.needed[known]

    @property
    def deciders(self) -> NDArray[np.int64]:
        """The nodes that decide, for themselves and those that are as they are."""
        return np.unique(self.leader)

    def choices(self, decided: NDArray[np.int64]) -> list[int]:
        """The choice of every node, from those of the nodes that decide."""
        found = np.zeros(len(self.leader), np.int64)
        found[self.deciders] = decided[: len(self.deciders)]
        return [int(choice) for choice in found[self.leader]]

    def promised_s(self, choices: Sequence[int]) -> float:
        """What the program's costs say that a choice of every node takes."""
        wiring = self.wiring
        alone = sum(float(node.costs[choice]) for node, choice in zip(wiring.nodes, choices, strict=True))
        return alone + sum(float(table[choices[a], choices[b]]) for (a, b), table in wiring.tables.items())

    def moves(self) -> Moves:
        """What each node that decides may choose instead."""
        place = np.searchsorted(self.deciders, self.leader)
        costs, tables = self._costs(None), self._tables()
        return Moves(
            [costs[number] for number in self.deciders],
            {(int(place[a]), int(place[b])): table for (a, b), table in tables.items()},
        )

    def lowering(self, most: int, ended: Callable[[], bool], limit_bytes: int | None = None) -> Lowering:
        """Descents into the limit, or another, of the choices of the nodes that decide; so many solutions are looked
        at.
        """
        return Lowering(
            moves=self.moves(),
            takes=lambda decided: exact_memory(self.wiring, self.choices(decided), self.machine),
            place=np.searchsorted(self.deciders, self.leader),
            limit_bytes=(self.limit_bytes or 0) if limit_bytes is None else limit_bytes,
            most=most,
            ended=ended,
        )

    def _costs(self, extra_s: Sequence[NDArray[np.float64]] | None) -> dict[int, NDArray[np.float64]]:
        found: dict[int, NDArray[np.float64]] = {}
        for number, node in enumerate(self.wiring.nodes):
            leader, own = int(self.leader[number]), node.costs if extra_s is None else node.costs + extra_s[number]
            found[leader] = found[leader] + own if leader in found else own
        for (a, b), table in self.wiring.tables.items():
            if self.leader[a] == self.leader[b]:
                found[int(self.leader[a])] = found[int(self.leader[a])] + np.diagonal(table)
        return found

    def _tables(self) -> dict[tuple[int, int], NDArray[np.float64]]:
        found: dict[tuple[int, int], NDArray[np.float64]] = {}
        for (a, b), table in self.wiring.tables.items():
            one, other = int(self.leader[a]), int(self.leader[b])
            if one > other:
                one, other, table = other, one, table.T
            if one != other:
                found[one, other] = found[one, other] + table if (one, other) in found else table
        return found


def build(
    graph: Graph,
    mesh: Mesh,
    machine: Machine,
    *,
    pins: Mapping[str, Sharding] | None = None,
    returned: Mapping[str, str] | None = None,
    limit_bytes: int | None = None,
    known: Known | None = None,
    helped: bool = False,
    loose: bool = False,
    among: Among | Mapping[int, Among] | None = None,
    before: Program | None = None,
    alike: Sequence[Mesh] = (),
    order: Sequence[str] | None = None,
) -> Program:
    """The program of a step's graph, every sharding of which is whole, on a mesh with its sizes.

    ``pins`` are the layouts of values that are not to be chosen, by path; ``returned`` has the path of the argument
    that a result comes back in the place of, by the result's. ``limit_bytes`` is the plan's own limit of a device's
    memory. ``known`` keeps what is the same on every mesh from one program to the next. It is ``helped`` by a fork of
    this process, which must have no threads that hold locks. Pins that are ``loose`` say how values lie that kernels
    leave in memory, and nothing of how what stays inside of these is made. ``among`` says which choices kernels have,
    if not all (``Strategies``), and in which ``order`` axes split one dim, if not in the mesh's, or parts of axes
    (``parted``); ``before`` is another program of the step on this mesh, whose prices are known. With meshes that are
    ``alike``, whose axes have the sizes of the mesh in some order, it is of all of these at once, and nothing costs
    more in it than on any of them (``pricing/counted``).
    """
    sizes = {axis: size or 1 for axis, size in mesh.sizes.items()}
    sizes = sizes_of(tuple(order or sizes), sizes)
    prices = LeastTariff.of(sizes, alike, machine) if alike else tariff(mesh, machine, sizes)
    pins = {path: cut(layout, tuple(sizes)) for path, layout in (pins or {}).items()}
    pricing = Pricing(
        machine=machine,
        speed=speed_of(machine.chip, None),
        tariff=prices,
        mesh=sizes,
        convolutions=convolutions_in(graph),
        counted=bool(alike),
    )
    numbers = dict(zip(graph.names, graph.arguments, strict=False))
    results = dict(zip(graph.result_names, graph.results, strict=False))
    known = Known() if known is None else known
    chip, cut_at = machine.chip, () if loose else pins
    near_bytes, repeats, is_gpu = chip.buffer_vmem_bytes, chip.repeats_scores, machine.platform == "gpu"
    program, values = known.program(
        graph, near_bytes, cut_at, repeats_scores=repeats, is_gpu=is_gpu, pads=machine.platform == "tpu"
    )
    pieces = pricing.pieces() if before is None else before.wiring.strategies.prices.pieces
    inside = pins.keys() - numbers.keys() - results.keys()  # what is brought into a pin is said beyond prices
    known_prices = {} if before is None else before.wiring.strategies.prices.priced
    priced = StrategyPrices(
        pricing=pricing,
        pieces=pieces,
        among=_counted(sizes) if alike else among,
        order=order,
        exactly=bool(inside),
        priced=known_prices,
    )
    strategies = Strategies(prices=priced, known=known)
    if helped:
        strategies.share(program)
    reshards = (CountedReshards if alike else Reshards)(
        mesh=sizes,
        tariff=prices,
        speed=pricing.speed,
        target=target(machine.platform, machine, math.prod(sizes.values())),
        images=images(graph),
    )
    reshards = reshards if before is None else before.wiring.reshards
    wiring = wire(
        program,
        values,
        strategies,
        reshards,
        pins=_of_written(program, pins) if loose else pins,
        returned={results[r]: numbers[a] for r, a in (returned or {}).items() if r in results and a in numbers},
    )
    _prefer_small_arguments(wiring)
    limit, _ = memory_limit(machine, limit_bytes)
    return Program(wiring=wiring, mesh=mesh, machine=machine, limit_bytes=limit, leader=tied(wiring))


def holds_inside(graph: Graph, pins: Collection[str], machine: Machine, known: Known) -> bool:
    """Whether pins, by path, are of what stays inside of kernels: else they are the same where they are loose."""
    chip = machine.chip
    program, _ = known.program(
        graph,
        chip.buffer_vmem_bytes,
        repeats_scores=chip.repeats_scores,
        is_gpu=machine.platform == "gpu",
        pads=machine.platform == "tpu",
    )
    named = (
        (path, value in kernel.writes)
        for each, kernel, _ in (program.walk() if pins else ())
        for op in (each.graph.ops[number] for number in kernel.ops)
        for value, path in op.named
    )
    return any(path in pins and not is_written for path, is_written in named)


def _counted(mesh: Mapping[str, int]) -> Counted:
    axes = [axis for axis, size in mesh.items() if size > 1]
    return Counted(tuple(tuple(map(axes.index, each)) for size, each in by_size(mesh).items() if size > 1))


def _of_written(program: Kernels, pins: Mapping[str, Sharding]) -> dict[str, Sharding]:
    """The pins but for those of what stays inside of kernels."""
    written, made = set[str](), set[str]()
    for each, kernel, _ in program.walk():
        for op in (each.graph.ops[number] for number in kernel.ops):
            for value, path in op.named:
                made.add(path)
                written.update({path} if value in kernel.writes else ())
    return {path: layout for path, layout in pins.items() if path in written or path not in made}


def _prefer_small_arguments(wiring: Wiring) -> None:
    top = wiring.levels[0]
    for value in top.graph.arguments:
        port = top.source[value]
        node, known = wiring.nodes[port.node], top.graph.values[value]
        node.costs = node.costs + S_PER_BYTE * np.array(
            [local_bytes(known, layout, wiring.reshards.mesh) for layout in port.layouts], np.float64
        )
