"""The order in which v5e and TPU7x run kernels so that what is sent is hidden: XLA's latency-hiding scheduler
(``bottom_up``).

A gather is awaited as soon as it may be and none other is under way; it begins no sooner than what takes its time is
placed in between, whatever that is: gradients of weights, which only the end of the step needs, among it. Permutes are
hidden too, several at a time. On TPU7x, whose SparseCores send (``apart``), sums and lookups are hidden as well, any
number at a time: its products of gradients so stand behind whatever takes longest, as the end of the step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ...chip import Chip
from ...compute.cycles import cycles_of
from ...compute.speed import Speed, speed_of
from ...compute.work import work_of
from ...graph import Graph, Op
from ...kernels import Kernel, Program
from ...kinds import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, COLLECTIVE_PERMUTE, REDUCE_SCATTER
from ...lookups import LOOK_UP
from ..flow.flow import Flow, regrouped
from .apart import MOST_APART, apart_s, done_apart
from .bottom_up import Schedulable, bottom_up
from .combined import Members, in_order

LINKS = {ALL_GATHER: 2, REDUCE_SCATTER: 2, ALL_REDUCE: 1, COLLECTIVE_PERMUTE: 1, ALL_TO_ALL: 2 / 3}
"""Over how many links the scheduler takes the whole to be sent, sums over all devices over twice as many."""

OF_A_LINK = 0.933
"""Of a link's bytes: its log has 62.2 bytes of a gather's result a cycle on v5e, and 31.1 of a permute's."""

MOST = {ALL_GATHER: 1, COLLECTIVE_PERMUTE: 5}
"""How many may be under way at a time (``xla_max_concurrent_async_all_gathers``)."""

BRIEF_S = 1e-9
NUMBERS = frozenset({"s32", "u32", "s64", "u64"})
CYCLES = "cycles"

UNKNOWN_BYTES_PER_S = 4e11

NO_MESH = MappingProxyType[str, int]({})


def hidden(
    program: Program, flow: Flow, chip: Chip, joint: Members = (), mesh: Mapping[str, int] = NO_MESH
) -> list[int]:
    """The order in which each gather, and what else is hidden, stands where it begins; what is ``joint`` is one,
    ``mesh`` has the sizes of its axes.
    """
    graph = program.graph
    sends = [_sends(graph, each, chip) for each in program.kernels]
    if all(sent in (None, COLLECTIVE_PERMUTE) for sent in sends):
        return list(range(len(sends)))
    members = in_order(flow, joint) if joint else tuple((kernel,) for kernel in range(len(sends)))
    nodes = _Nodes(program, regrouped(flow, members) if joint else flow, members, sends, chip, mesh)
    placed = bottom_up(nodes.schedulable())
    begun = {start: done for done, start in nodes.starts.items()}
    order = [nodes.groups[begun.get(node, node)] for node in placed if node not in nodes.starts]
    return [kernel for group in order if group >= 0 for kernel in members[group]]


class _Nodes:
    """The groups of kernels as nodes: what is sent by a start and a done, what is looked up behind its numbers. Of sums
    that are one the scheduler counts the first, on TPU7x all.
    """

    def __init__(
        self,
        program: Program,
        flow: Flow,
        members: Members,
        sends: Sequence[str | None],
        chip: Chip,
        mesh: Mapping[str, int],
    ) -> None:
        self.program, self.flow, self.members, self.chip = program, flow, members, chip
        self.sends = [sends[group[0]] for group in members]
        self.most = MOST_APART if chip.offloads_collectives else MOST
        self.several = {value for made in flow.made if len(made) > 1 for value in made}
        self.spent_s, self.sent_s = _takes_s(program, chip, sends, mesh)
        self.last: list[int] = []
        self.before: list[list[int]] = []
        self.takes_s: list[float] = []
        self.reads: list[tuple[int, ...]] = []
        self.groups: list[int] = []
        self.starts: dict[int, int] = {}
        self.inside: dict[int, frozenset[str]] = {}

    def schedulable(self) -> Schedulable:
        """All of them, in order."""
        waiting = _in_place(self.program.graph, self.flow)
        for group, kernels in enumerate(self.members):
            makers = [self.flow.maker[value] for value in self.flow.operands[group]]
            before = list(dict.fromkeys([self.last[maker] for maker in (*makers, *waiting.get(group, ()))]))
            read = dict.fromkeys([value for kernel in kernels for value in self.program.kernels[kernel].reads])
            reads = tuple(dict.fromkeys(map(self._read, read)))
            if self.sends[group]:
                start = self._add(-1, before, reads, BRIEF_S)
                self.starts[len(self.groups)] = start
                self._add(group, [start], (_made(start),), BRIEF_S)
            else:
                numbers = self._numbers(kernels)
                if numbers:
                    given = [node for node in before if node in numbers]
                    told = self._add(-1, given, tuple(map(_made, given)), BRIEF_S)
                    before = [told, *(node for node in before if node not in numbers)]
                    reads = (_made(told), *(read for read in reads if read not in map(_made, given)))
                self._add(group, before, reads, self.spent_s[kernels[0]])
            self.last.append(len(self.groups) - 1)
            bodies = [body for kernel in kernels for body in self.program.kernels[kernel].bodies]
            if sent := _sent_inside(bodies, self.chip):
                self.inside[self.last[-1]] = sent
        resource = {done: str(self.sends[self.groups[done]]) for done in self.starts}
        return Schedulable(
            before=self.before,
            takes_s=self.takes_s,
            reads=self.reads,
            starts=self.starts,
            sent_s={done: self._sent_s(self.members[self.groups[done]]) for done in self.starts},
            resource=resource,
            most=self.most,
            inside=self.inside,
        )

    def _sent_s(self, kernels: Sequence[int]) -> float:
        """How long one is on its way, or several that are one."""
        return sum([self.sent_s[kernel] for kernel in kernels]) if self.most is MOST_APART else self.sent_s[kernels[0]]

    def _add(self, group: int, before: list[int], reads: tuple[int, ...], takes_s: float) -> int:
        self.groups.append(group)
        self.before.append(before)
        self.reads.append(reads)
        self.takes_s.append(takes_s)
        return len(self.groups) - 1

    def _read(self, value: int) -> int:
        """The instruction that is read: a kernel, an argument, or what takes a kernel's result out of several."""
        maker = self.flow.maker.get(value)
        return 2 * value if maker is None or value in self.several else _made(self.last[maker])

    def _numbers(self, kernels: Sequence[int]) -> set[int]:
        """What is gathered of the numbers by which something is looked up: a kernel of its own goes through these."""
        graph, found = self.program.graph, set[int]()
        for kernel in (self.program.kernels[each] for each in kernels):
            if not LOOK_UP.isdisjoint([graph.ops[number].kind for number in kernel.ops]):
                numbers = [v for v in kernel.reads if graph.values[v].dtype in NUMBERS and v in self.flow.maker]
                found |= {self.last[self.flow.maker[value]] for value in numbers}
        return found & self.starts.keys()


def _sent_inside(bodies: Sequence[Program], chip: Chip) -> frozenset[str]:
    """What loops of these bodies send."""
    kernels = [(body.graph, kernel) for body in bodies for kernel in body.kernels]
    found = {kind for graph, kernel in kernels if (kind := _sends(graph, kernel, chip))}
    return frozenset(found.union(*(_sent_inside(kernel.bodies, chip) for _, kernel in kernels if kernel.bodies)))


def _made(node: int) -> int:
    return -1 - 2 * node


def _in_place(graph: Graph, flow: Flow) -> dict[int, list[int]]:
    """What has to read a donated argument before its next value lies there, by the kernel that makes this."""
    found: dict[int, list[int]] = {}
    for result, argument in graph.aliases.items():
        made = flow.maker.get(graph.results[result])
        if made is not None:
            touching = flow.touches.get(graph.arguments[argument], ())
            found.setdefault(made, []).extend(kernel for kernel in touching if kernel < made)
    return found


def _sends(graph: Graph, kernel: Kernel, chip: Chip) -> str | None:
    """The gather or the permute that a kernel is, or what SparseCores do."""
    if chip.offloads_collectives:
        return done_apart(graph, kernel)
    kind = graph.ops[kernel.ops[0]].kind
    return kind if len(kernel.ops) == 1 and kind in (ALL_GATHER, COLLECTIVE_PERMUTE) else None


def _takes_s(
    program: Program, chip: Chip, sends: Sequence[str | None], mesh: Mapping[str, int]
) -> tuple[list[float], list[float]]:
    """The seconds of each kernel with nothing near, and those that what is sent is on its way."""
    graph, speed = program.graph, speed_of(chip)
    bytes_per_s = OF_A_LINK * chip.ici.link_gb_per_s * 1e9 if chip.ici else UNKNOWN_BYTES_PER_S
    spent, sent = list[float](), list[float]()
    for kernel, sending in zip(program.kernels, sends, strict=True):
        op = graph.ops[kernel.ops[-1]]
        if chip.offloads_collectives and sending:
            took_s = apart_s(graph, kernel, mesh, bytes_per_s, speed.clock_hz)
        elif op.kind in LINKS:
            took_s = _whole_bytes(graph, kernel) / (LINKS[op.kind] * _ways(graph, op) * bytes_per_s)
        else:
            took_s = _cycles(graph, kernel, speed) / speed.clock_hz
        spent.append(0.0 if sending else took_s)
        sent.append(took_s if sending else 0.0)
    return spent, sent


def _whole_bytes(graph: Graph, kernel: Kernel) -> int:
    return max(sum([graph.values[value].num_bytes for value in those]) for those in (kernel.reads, kernel.writes))


def _ways(graph: Graph, op: Op) -> int:
    """Two for sums over all devices, whose parts are sent over both dims at once."""
    devices = math.prod([graph.mesh.get(axis, 1) for axis in op.attributes.get("axes", ())])
    return 2 if op.kind == ALL_REDUCE and devices == math.prod(graph.mesh.values()) else 1


def _cycles(graph: Graph, kernel: Kernel, speed: Speed) -> float:
    """What a kernel takes where all that it reads and makes lies in the large memory, a loop all its turns."""
    if kernel.bodies:
        inside = sum(_cycles(body.graph, each, speed) for body in kernel.bodies for each in body.kernels)
        return graph.ops[kernel.ops[-1]].trips * inside
    if kernel.form is not None and CYCLES in kernel.form:
        return float(kernel.form[CYCLES])
    work = speed.work(work_of(graph, kernel))
    far = [False] * len(work.reads), [False] * len(work.writes)
    cycles = cycles_of(work, *far, speed.edge, speed.coefficients).total
    if kernel.form is not None:
        kernel.form[CYCLES] = cycles
    return cycles
