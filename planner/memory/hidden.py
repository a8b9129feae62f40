"""The order in which v5e runs kernels so that gathers are hidden: XLA's latency-hiding scheduler (``bottom_up``).

A gather is awaited as soon as it may be and none other is under way; it begins no sooner than what takes its time is
placed in between, whatever that is: gradients of weights, which only the end of the step needs, among it. Permutes are
hidden too, several at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..chip import Chip
from ..compute.cycles import cycles_of
from ..compute.speed import Speed, speed_of
from ..compute.work import work_of
from ..graph import Graph
from ..kernels import Kernel, Program
from ..kinds import ALL_GATHER, COLLECTIVE_PERMUTE
from .bottom_up import Schedulable, bottom_up
from .combined import Members, in_order
from .flow import Flow, regrouped

LINKS = {ALL_GATHER: 2, COLLECTIVE_PERMUTE: 1}
OF_A_LINK = 0.933
"""Of a link's bytes: the scheduler's log has 62.2 bytes of a gather's result a cycle on v5e, half of it of a permute's,
whatever the mesh.
"""

MOST = {ALL_GATHER: 1, COLLECTIVE_PERMUTE: 5}
"""How many may be under way at a time (``xla_max_concurrent_async_all_gathers``)."""

BEGIN_S = 1e-9
CYCLES = "cycles"

UNKNOWN_BYTES_PER_S = 4e11

def hidden(program: Program, flow: Flow, chip: Chip, joint: Members = ()) -> list[int]:
    """The order in which each gather stands where it begins; what is ``joint`` is one."""
    graph = program.graph
    sends = [_sends(graph, each) for each in program.kernels]
    if ALL_GATHER not in sends:
        return list(range(len(sends)))
    members = in_order(flow, joint) if joint else tuple((kernel,) for kernel in range(len(sends)))
    nodes, kernels = _nodes(program, regrouped(flow, members) if joint else flow, members, sends, chip)
    order = [kernels[node] for node in bottom_up(nodes) if node not in nodes.starts]
    return [kernel for group in order for kernel in members[group]]


def _nodes(
    program: Program, flow: Flow, members: Members, sends: Sequence[str | None], chip: Chip
) -> tuple[Schedulable, list[int]]:
    """What is to be put in order, and the group of kernels that each node is."""
    spent_s, sent_s = _takes_s(program, chip, sends)
    kernels, last = list[int](), list[int]()
    for group, kernels_of in enumerate(members):
        kernels += [group] * (2 if sends[kernels_of[0]] else 1)
        last.append(len(kernels) - 1)
    starts = {last[group]: last[group] - 1 for group, each in enumerate(members) if sends[each[0]]}
    awaiting = set(starts.values())
    after = _in_place(program, flow, members)
    before, reads, takes_s = list[list[int]](), list[tuple[int, ...]](), list[float]()
    several = {value for made in flow.made if len(made) > 1 for value in made}
    for node, group in enumerate(kernels):
        if node in starts:
            before.append([node - 1])
            reads.append((-1 - 2 * (node - 1),))
            takes_s.append(BEGIN_S)
            continue
        makers = dict.fromkeys([*(flow.maker[value] for value in flow.operands[group]), *after.get(group, ())])
        before.append([last[maker] for maker in makers])
        taken = dict.fromkeys([v for kernel in members[group] for v in flow_reads(program, kernel)])
        reads.append(tuple(dict.fromkeys(_read(value, flow, several, last) for value in taken)))
        takes_s.append(BEGIN_S if node in awaiting else sum(spent_s[kernel] for kernel in members[group]))
    resource = {done: str(sends[members[kernels[done]][0]]) for done in starts}
    return Schedulable(
        before=before,
        takes_s=takes_s,
        reads=reads,
        starts=starts,
        sent_s={done: sent_s[members[kernels[done]][0]] for done in starts},
        resource=resource,
        most=MOST,
    ), kernels


def flow_reads(program: Program, kernel: int) -> tuple[int, ...]:
    return program.kernels[kernel].reads


def _read(value: int, flow: Flow, several: set[int], last: Sequence[int]) -> int:
    """The instruction that is read: a kernel, an argument, or what takes a kernel's result out of several."""
    maker = flow.maker.get(value)
    return 2 * value if maker is None or value in several else -1 - 2 * last[maker]


def _in_place(program: Program, flow: Flow, members: Members) -> dict[int, list[int]]:
    """What has to read a donated argument before its next value lies there, by the kernel that makes this."""
    graph = program.graph
    point = {kernel: group for group, kernels in enumerate(members) for kernel in kernels}
    found: dict[int, list[int]] = {}
    for result, argument in graph.aliases.items():
        made = flow.maker.get(graph.results[result])
        if made is not None:
            touching = flow.touches.get(graph.arguments[argument], ())
            found.setdefault(made, []).extend(group for group in touching if group < made)
    del point
    return found


def _sends(graph: Graph, kernel: Kernel) -> str | None:
    """The gather or the permute that a kernel is."""
    kind = graph.ops[kernel.ops[0]].kind
    return kind if len(kernel.ops) == 1 and kind in (ALL_GATHER, COLLECTIVE_PERMUTE) else None


def _takes_s(program: Program, chip: Chip, sends: Sequence[str | None]) -> tuple[list[float], list[float]]:
    """The seconds of each kernel with nothing near, and those that what is sent is on its way."""
    link = chip.ici.link_gb_per_s * 1e9 if chip.ici else UNKNOWN_BYTES_PER_S
    speed = speed_of(chip)
    spent, sent = list[float](), list[float]()
    for kernel, kind in zip(program.kernels, sends, strict=True):
        whole = sum(program.graph.values[value].num_bytes for value in kernel.writes)
        spent.append(0.0 if kind else _cycles(program.graph, kernel, speed) / speed.clock_hz)
        sent.append(whole / (LINKS[kind] * OF_A_LINK * link) if kind else 0.0)
    return spent, sent


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
