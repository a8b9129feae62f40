"""A kernel in which pieces take the place of operations, fused once for all layouts that give pieces of one form."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, Protocol

from ....dsl.records import record
from ...compute.apart import Apart
from ...compute.price import price_at
from ...compute.scaled import Scaled, scaled
from ...compute.speed import Speed
from ...compute.work import REGISTER_ELEMENTS, Work, padded_bytes, work_of
from ...fusion import fuse
from ...graph import Graph, Op, Value
from ...kernels import Kernel, Program
from ...lookups import LOOK_UP
from .around import Around
from .passing import own_ops
from .pieces import Piece

MOVES = frozenset({"dynamic_slice", "dynamic_update_slice"})
Part = Callable[[int, str], Value]  # what one device holds of a kernel's value, in a dtype


class Passing(Protocol):
    """A value that a kernel computes instead of reading it, in so many vector operations a number, of little if it
    ``is_light``.
    """

    @property
    def value(self) -> int:
        """Its number."""

    @property
    def operations(self) -> float:
        """Vector operations for each number."""

    @property
    def is_light(self) -> bool:
        """Whether what it is made of is less than half its bytes."""


class Company(NamedTuple):
    """What else a kernel does: what reads what is ``passing`` computes it, what makes a value leaves another
    ``beside`` it, which it goes through as float32 to round it.
    """

    passing: frozenset[Passing] = frozenset()
    beside: Mapping[int, Value] = MappingProxyType({})


@record(frozen=True, slots=True, kw_only=True)
class Fused:
    """The kernels that a device runs for one, and the values whose shapes matter: ``own`` ones of the kernel, and those
    ``made`` inside pieces, with the operation and the piece's value. ``around`` is what the step knows of them,
    ``apart`` the same where no shapes matter to it, ``took`` is what was worked out before.
    """

    program: Program
    works: Mapping[tuple[int, ...], Scaled]
    own: tuple[int, ...]
    made: tuple[tuple[int, int, int], ...]
    around: Around = field(default_factory=Around)
    apart: Apart | None = None
    took: dict[Hashable, float] = field(default_factory=dict)

    def among(self, around: Around) -> Fused:
        """The same where the step knows something else of its values, which makes no other kernels of it."""
        return replace(self, around=around, apart=None if around.images else around.apart({}), took={})

    def seconds(self, part: Part, pieces: Mapping[int, Piece], speed: Speed, company: Company) -> float:
        """What computing takes in other shapes and in such ``company``, each worked out once."""
        values = self.program.graph.values
        others = {number: part(number, values[number].dtype) for number in self.own}
        shapes = [pieces[op].graph.values[place].shape for _, op, place in self.made]
        on = speed.source, speed.clock_hz, company.passing, *company.beside.items()
        key = (*on, *[value.shape for value in others.values()], *shapes)
        found = self.took.get(key)
        if found is None:
            for (number, _, _), shape in zip(self.made, shapes, strict=True):
                others[number] = Value(shape, values[number].dtype)
            found = self.took[key] = self._seconds(others, speed, company)
        return found

    def _seconds(self, others: Mapping[int, Value], speed: Speed, company: Company) -> float:
        own, values = self.program.graph, list(self.program.graph.values)
        for number, value in others.items():
            values[number] = value
        graph = own.holding(tuple(values))
        program = _leaving(Program(graph=graph, kernels=self.program.kernels), company.beside)
        apart = self.apart or self.around.apart({number: value.shape for number, value in others.items()})
        prices = price_at(program, speed, count=partial(self._count, company), apart=apart, kinds=own.kinds)
        return sum((each.seconds + each.uncounted_s) * each.times for each in prices)

    def _count(self, company: Company, graph: Graph, kernel: Kernel) -> Work:
        found = self.works.get(kernel.ops)
        own = self.program.graph
        is_own = bool(company.beside) and graph.ops is own.ops  # and no loop's body
        beside = [graph.values[v] for v in kernel.writes if v >= len(own.values)] if is_own else []
        is_known = found is not None and (found.kernel is kernel or bool(beside))
        work = found.work(graph) if found is not None and is_known else work_of(graph, kernel)
        work = _with_beside(work, beside) if beside else work
        passing = company.passing
        inside = [each for each in passing if each.value in kernel.reads] if passing and work.reads else []
        if not inside:
            return work
        light = {each.value for each in inside if each.is_light}
        reads = (0 if v in light else size for v, size in zip(kernel.reads, work.reads, strict=True))
        more = sum(each.operations * graph.values[each.value].num_elements for each in inside) / REGISTER_ELEMENTS
        return replace(work, reads=tuple(reads), registers=work.registers + more)


def fused(
    own: Graph,
    part: Part,
    pieces: Mapping[int, Piece],
    form_of: Mapping[int, int],
    masks: frozenset[int],
    near_bytes: int,
    around: Around,
    *,
    is_gpu: bool = False,
    pads: bool = True,
) -> Fused:
    """The kernels for these layouts on a chip that keeps ``near_bytes``, ``masks`` being left as bits. Without pieces
    or masks the kernel is one, as it stands; on a GPU (``is_gpu``) it is fused as there.
    """
    local = replace(own, values=tuple(part(number, value.dtype) for number, value in enumerate(own.values)))
    made: tuple[tuple[int, int, int], ...] = ()
    if pieces or masks:
        local, made = _spliced(local, pieces)
        program = fuse(
            local,
            is_mask=lambda _, __, op: op.results[0] in masks,
            near_bytes=near_bytes,
            is_gpu=is_gpu,
            pads=pads,
        )
    else:
        kernel = Kernel(ops=tuple(range(len(own.ops))), reads=own.arguments, writes=own.results)
        kernel = replace(kernel, ops=own_ops(own, kernel))
        program = Program(graph=local, kernels=(kernel,))
    # A single operation may be fused with what comes before it, which takes less for some; what only moves stays alone.
    alone = {kernel.ops for kernel in program.kernels if not pieces and _moves(program.graph, kernel)}
    works = {
        kernel.ops: scaled(
            program.graph, kernel, lambda value: form_of.get(value, -1 - value), may_be_single=kernel.ops in alone
        )
        for kernel in program.kernels
    }
    needed = _looked_up(program.graph).union(around.lent, *(work.values for work in works.values()))
    return Fused(
        program=program,
        works=works,
        own=tuple(sorted(number for number in needed if number < len(own.values))),
        made=tuple(each for each in made if each[0] in needed),
        around=around,
        apart=None if around.images else around.apart({}),
    )


def _with_beside(work: Work, beside: Sequence[Value]) -> Work:
    """The work of a kernel that leaves others beside what it makes."""
    rounded = (padded_bytes(Value(each.shape, "f32")) for each in beside if each.bits < 32)
    writes = (*work.writes, *map(padded_bytes, beside))
    return replace(work, writes=writes, spill_bytes=max(work.spill_bytes, *rounded, 0))


def _leaving(program: Program, beside: Mapping[int, Value]) -> Program:
    """The program with values that what makes some of its values leaves beside these, behind all others."""
    if not beside:
        return program
    graph = program.graph
    numbers = {value: len(graph.values) + place for place, value in enumerate(beside)}
    kernels = (
        each
        if numbers.keys().isdisjoint(each.writes)  # the one that its work is known of
        else replace(each, writes=(*each.writes, *(numbers[value] for value in each.writes if value in numbers)))
        for each in program.kernels
    )
    return Program(graph=graph.holding((*graph.values, *beside.values())), kernels=tuple(kernels))


def _looked_up(graph: Graph) -> frozenset[int]:
    """What lookups and scatters read and make: how that lies says what is copied for them."""
    return frozenset(value for op in graph.ops if op.kind in LOOK_UP for value in (*op.operands, *op.results))


def _moves(graph: Graph, kernel: Kernel) -> bool:
    """Whether it takes or puts a part of a stack, or fills what it makes with a number."""
    ops = [graph.ops[number] for number in kernel.ops]
    return any(op.kind in MOVES for op in ops) or all(not graph.values[value].shape for value in kernel.reads)


def _spliced(local: Graph, pieces: Mapping[int, Piece]) -> tuple[Graph, tuple[tuple[int, int, int], ...]]:
    values, ops = list(local.values), list[Op]()
    made: list[tuple[int, int, int]] = []
    for number, op in enumerate(local.ops):
        piece = pieces.get(number)
        if piece is None:
            ops.append(op)
            continue
        read = tuple(dict.fromkeys(op.operands))
        read = read if len(read) == len(piece.graph.arguments) else op.operands  # what it reads twice lies alike
        names = dict(zip(piece.graph.arguments, read, strict=True))
        handed_on = [(v, name) for v, name in zip(piece.graph.results, op.results, strict=True) if v in names]
        names |= {v: name for v, name in zip(piece.graph.results, op.results, strict=True) if v not in names}
        for each in piece.graph.ops:
            for value in each.results:
                if value not in names:
                    names[value] = len(values)
                    made.append((len(values), number, value))
                    values.append(piece.graph.values[value])
            ops.append(_renamed(each, names))
        ops += (Op(kind="copy", operands=(names[v],), results=(name,), origin=op.origin) for v, name in handed_on)
    return replace(local, values=tuple(values), ops=tuple(ops)), tuple(made)


def _renamed(op: Op, names: Mapping[int, int]) -> Op:
    return op.moved(_all(op.operands, names), _all(op.results, names))


def _all(values: Sequence[int], names: Mapping[int, int]) -> tuple[int, ...]:
    return tuple([names[value] for value in values])
