"""The exact price of a solution: the whole step laid out and priced as ``estimate`` does; what the program missed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from types import MappingProxyType

from ....dsl.plan import Mesh
from ...convolution_layout import any_wrong, as_products
from ...estimate.device_program import DeviceProgram, device_program
from ...estimate.device_work import device_work
from ...estimate.estimate import estimate
from ...estimate.figures import Estimate
from ...estimate.runs import main_op
from ...graph import Graph, Origin
from ...kernels import Kernel, Program
from ...lookups import FILL, SCATTER, tables_of
from ...memory import Memory, memory
from ...memory.points import LiveTensor
from ...partition.passes.summed_gathers import sums_viewed
from ...topology import Machine
from ..step.passing import own_ops
from ..wiring.handing import Handing, handing
from ..wiring.wires import LOOPS, Wiring
from .decode import laid_out_step

NO_KIN: Mapping[int, frozenset[int]] = MappingProxyType({})
MOST = 0.8  # of what a cluster takes more than its costs: what its kin have to take less to be what it takes
LITTLE = 0.2  # of the same: what another takes less that says nothing of the rest of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """What a cluster of nodes takes beyond their costs. ``read`` has the nodes that it is handed values by, each with
    those of its choices that hand on the same. ``shared_s`` of it hang on what others have of the fast memory, known
    where all that a device holds at once would have room there: what lies there hangs on the whole step then.
    """

    nodes: tuple[int, ...]
    read: Mapping[int, frozenset[int]]
    seconds: float
    shared_s: float = 0.0

    @property
    def own_s(self) -> float:
        """What the cluster takes more whatever other nodes choose."""
        return self.seconds - self.shared_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact:
    """A solution's estimate, what clusters of nodes miss, and the bytes that each node's values take at the peak.

    It takes ``least_s`` at least: less than the estimate where convolutions have to be computed otherwise, which no
    price but the written plan's says how long it takes, and where vectors are summed that a plan may gather as they are
    viewed. What clusters miss is said beside that.
    """

    estimate: Estimate
    least_s: float
    missed: tuple[Missed, ...]
    held_bytes: Mapping[int, int]


def exact(wiring: Wiring, choices: Sequence[int], mesh: Mesh, machine: Machine) -> Exact:
    """Prices a solution whole.

    Kernels of the whole may hold operations of several nodes: those form a cluster, whose seconds are compared with
    what the program says of its nodes.
    """
    used = [axis for axis, size in wiring.reshards.mesh.items() if size > 1]
    graph = _labelled(wiring, choices)

    def priced(graph: Graph, *, sums_viewed: bool = True) -> tuple[DeviceProgram, Estimate]:
        laid = device_program(graph, machine, wiring.partitioned, wiring.counted.forms, sums_viewed=sums_viewed)
        return laid, estimate(device_work(laid, machine, counted=wiring.counted), mesh, machine)

    laid, found = priced(graph)
    _, as_written = priced(as_products(graph, used)) if any_wrong(graph, used) else (laid, found)
    if sums_viewed(laid.local):
        laid, found = priced(graph, sums_viewed=False)
    promised = list(_promised(wiring, choices))
    clusters = _Clusters(laid, {node for node, seconds in promised if seconds})
    for ends, more in wiring.together.items():
        if more[choices[ends[0]], choices[ends[1]]]:
            clusters.join(*ends)
            clusters.join(ends[0], wiring.reader(ends))
    took, sent, shared = (defaultdict[int, float](float) for _ in range(3))
    fits_near = found.peak_bytes <= machine.chip.buffer_vmem_bytes
    for kernel in found.kernels:
        if kernel.step_s:
            took[clusters.of(kernel.origin)] += kernel.step_s
            shared[clusters.of(kernel.origin)] += kernel.shared_s * kernel.times * fits_near
    for collective in found.collectives:
        took[clusters.of(collective.origin)] += collective.total_s
        sent[_node(collective.origin)] += collective.total_s
    for node, seconds in promised:
        took[clusters.root(node)] -= seconds
        sent[node] -= max(seconds, 0.0)  # what others are spared for it is none of what it sends
    handed = list(handing(wiring, choices))
    nodes, read, apart_read = clusters.members(), _read(handed, clusters.root), _read(handed, lambda node: node)
    for root, several in nodes.items():
        for node in several:
            if wiring.nodes[node].in_passing:  # which is handed values too
                _add(read[root], apart_read.get(node, {}))
    missed = [
        Missed(nodes=nodes.get(root, ()), read=read.get(root, {}), seconds=s, shared_s=shared[root])
        for root, s in took.items()
    ]
    apart = alone(netted(missed, _kin(wiring)), sent, apart_read)
    held = held_bytes(found.memory.tensors)
    return Exact(estimate=as_written, least_s=found.step_time_s, missed=tuple(apart), held_bytes=held)


def alone(
    missed: Sequence[Missed], sent: Mapping[int, float], read: Mapping[int, Mapping[int, frozenset[int]]]
) -> list[Missed]:
    """Clusters, apart from what single nodes of theirs have sent beyond all that is said of them, as far as their
    cluster takes more: that hangs on those alone and on what they are handed by, ``read``, and on no other node.
    """
    found = []
    for each in missed:
        left_s = each.seconds
        for node in each.nodes if len(each.nodes) > 1 else ():
            more_s = min(sent.get(node, 0.0), left_s)
            if more_s > 0:
                left_s -= more_s
                found.append(Missed(nodes=(node,), read=read.get(node, {}), seconds=more_s))
        found.append(replace(each, seconds=left_s))
    return found


def netted(missed: Sequence[Missed], kin: Mapping[int, frozenset[int]] = NO_KIN) -> list[Missed]:
    """Clusters of which some take less than their costs, each one with those that share nodes with it and take more, as
    far as that makes up for it: what one kernel computes in passing is at home in one and may be counted in another.
    What is made up for by little of what one takes more is taken off that.

    ``kin`` are those nodes of each that compute the same, of which one gives a kernel its name: what is left is made up
    for by theirs, where it is most of what those take more.
    """
    left = sorted(missed, key=lambda each: (-each.seconds, each.nodes))
    found = []
    while left and left[-1].seconds < 0:
        one = left.pop()
        own = set(one.nodes)
        for other in [each for each in left if each.seconds > 0 and not own.isdisjoint(each.nodes)]:
            if one.seconds < 0:
                left.remove(other)
                if -one.seconds < LITTLE * other.seconds:
                    found.append(replace(other, seconds=other.seconds + one.seconds))
                    one = replace(one, seconds=0.0)
                else:
                    one = _both(one, other)
        found.append(one)
    return _among_kin([*left, *found], kin)


def _among_kin(missed: Sequence[Missed], kin: Mapping[int, frozenset[int]]) -> list[Missed]:
    less = [each for each in missed if each.seconds < 0]
    found = []
    for more in [each for each in missed if each.seconds >= 0]:
        related = frozenset[int]().union(*(kin.get(node, ()) for node in more.nodes))
        theirs = [each for each in less if not related.isdisjoint(each.nodes)]
        if MOST * more.seconds <= -sum(each.seconds for each in theirs):
            for each in theirs:
                if more.seconds > 0:
                    less.remove(each)
                    more = _both(more, each)
        found.append(more)
    return found + less


def _both(one: Missed, other: Missed) -> Missed:
    read = {
        node: one.read.get(node, other.read.get(node, frozenset()))
        & other.read.get(node, one.read.get(node, frozenset()))
        for node in {**one.read, **other.read}
    }
    nodes = tuple(sorted({*one.nodes, *other.nodes}))
    shared_s = one.shared_s + other.shared_s
    return Missed(nodes=nodes, read=read, seconds=one.seconds + other.seconds, shared_s=shared_s)


def _kin(wiring: Wiring) -> dict[int, frozenset[int]]:
    """By node those that compute some operation that it does, or fill as much with a number."""
    found: dict[int, frozenset[int]] = {}
    for level in wiring.levels:
        alike: dict[object, set[int]] = defaultdict(set)
        for position, node in level.kernels.items():
            for name in _computed(level.graph, level.program.kernels[position]):
                alike[name].add(node)
        for nodes in alike.values():
            for node in nodes if len(nodes) > 1 else ():
                found[node] = found.get(node, frozenset()) | nodes
    return found


def _computed(graph: Graph, kernel: Kernel) -> Iterator[object]:
    """The operations of a kernel, or if it only fills something with a number how much that is."""
    numbers = own_ops(graph, kernel)
    if not any(graph.values[value].shape for number in numbers for value in graph.ops[number].operands):
        yield from ((graph.values[value].shape, graph.values[value].dtype) for value in kernel.writes)
    yield from numbers


def exact_memory(wiring: Wiring, choices: Sequence[int], machine: Machine) -> Memory:
    """What a device holds under a solution, as its exact price has it."""
    forms = wiring.counted.forms
    return memory(device_program(_labelled(wiring, choices), machine, wiring.partitioned, forms).order, machine.chip)


def held_bytes(tensors: Iterable[LiveTensor]) -> dict[int, int]:
    """What each node's values take of the memory that these tensors take."""
    held: dict[int, int] = defaultdict(int)
    for tensor in tensors:
        if tensor.source is not None and tensor.source.isdigit():
            held[int(tensor.source)] += tensor.num_bytes
    return dict(held)


def _read(handed: Iterable[Handing], root: Callable[[int], int]) -> defaultdict[int, dict[int, frozenset[int]]]:
    """The nodes that hand values to each cluster, by its ``root``, with the choices that hand on the same: they take as
    long for all.
    """
    found = defaultdict[int, dict[int, frozenset[int]]](dict)
    for reader, node, same in handed:
        _add(found[root(reader)], {node: same})
    return found


def _add(read: dict[int, frozenset[int]], more: Mapping[int, frozenset[int]]) -> None:
    """Takes in what else is read, of each node the choices that hand on the same for both."""
    for node, same in more.items():
        read[node] = read.get(node, same) & same


def _promised(wiring: Wiring, choices: Sequence[int]) -> Iterator[tuple[int, float]]:
    """What the program says that each node takes: its own cost, and that of what is handed to it."""
    for number, node in enumerate(wiring.nodes):
        yield wiring.shared.get(number, number), float(node.costs[choices[number]])
    for ends, table in wiring.tables.items():
        seconds = float(table[choices[ends[0]], choices[ends[1]]])
        if ends in wiring.writing:
            written = float(wiring.writing[ends][choices[ends[0]], choices[ends[1]]])
            seconds -= written
            if written:
                yield wiring.handing(ends)[0], written
        if ends in wiring.closing:
            closing = float(wiring.closing[ends][choices[ends[0]], choices[ends[1]]])
            seconds -= closing
            if closing:
                yield LOOPS, closing
        if seconds:
            yield wiring.reader(ends), seconds


def _labelled(wiring: Wiring, choices: Sequence[int]) -> Graph:
    """The step laid out, each operation with the number of its node as its origin."""
    return laid_out_step(wiring, choices, label=_label)


def _label(node: int, own: Origin) -> Origin:
    return Origin(source=str(node), scope=own.scope, repeats=own.repeats)


class _Clusters:
    """Nodes that take something together: those that kernels are named after, each with those of whose operations it
    has some and that something is ``promised`` of, but that no kernel is named after.

    What else a kernel computes, in passing, belongs to its cluster, as it may to others, and joins none.
    """

    def __init__(self, laid: DeviceProgram, promised: AbstractSet[int]):
        self._parent: dict[int, int] = {}
        self._passing: dict[int, set[int]] = defaultdict(set)
        kernels = [
            (_node(main_op(program, kernel).origin), _nodes(program, kernel))
            for program, kernel, _ in laid.program.walk()
        ]
        for program, kernel, _ in laid.program.walk():
            for node in _begun_by(program, kernel):
                self.join(node, _node(main_op(program, kernel).origin))
        joining = promised - {named for named, _ in kernels}
        for named, nodes in kernels:
            for node in nodes & joining:
                self.join(named, node)
        for named, nodes in kernels:
            for node in nodes - joining:
                self._passing[node].add(self.root(named))

    def join(self, one: int, other: int) -> None:
        """Two nodes take something together."""
        a, b = self.root(one), self.root(other)
        self._parent[max(a, b)] = min(a, b)

    def root(self, node: int) -> int:
        while self._parent.setdefault(node, node) != node:
            node = self._parent[node]
        return node

    def of(self, origin: Origin) -> int:
        return self.root(_node(origin))

    def members(self) -> dict[int, tuple[int, ...]]:
        found: dict[int, list[int]] = {}
        for node in sorted(self._parent):
            if node >= 0:
                for root in {self.root(node), *self._passing.get(node, ())}:
                    found.setdefault(root, []).append(node)
        return {root: tuple(nodes) for root, nodes in found.items()}


def _begun_by(program: Program, kernel: Kernel) -> Iterator[int]:
    """The nodes of what is filled with a number for a kernel to add rows to: what adds them is charged for that."""
    tables = {
        v for number in kernel.ops for op in (program.graph.ops[number],) if op.kind == SCATTER for v in tables_of(op)
    }
    for op in program.graph.of_kind(FILL) if tables else ():
        if not tables.isdisjoint(op.results) and not program.graph.shape(op.operands[0]):
            yield _node(op.origin)


def _nodes(program: Program, kernel: Kernel) -> set[int]:
    """The nodes of a kernel's operations, but for those of what is filled with a number: that is of no node."""
    graph = program.graph
    ops = [graph.ops[number] for number in kernel.ops]
    found = {_node(op.origin) for op in ops if any(graph.values[value].shape for value in op.operands)}
    return (found or {_node(op.origin) for op in ops}) - {LOOPS}


def _node(origin: Origin) -> int:
    return int(origin.source) if origin.source is not None and origin.source.isdigit() else LOOPS
