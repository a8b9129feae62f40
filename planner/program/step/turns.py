"""What a turn of a loop takes of a stack, and leaves in one, apart from what it computes.

The kernels of a turn cut its part out of stacks that the loop reads, and put what they make in its place in others. A
part may be laid out otherwise than the stack that it is of, and is then resharded alone: so cutting and putting are
kernels of their own here. They take nothing where the kernel beside them reads or writes what they hand on as it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...fusion.nature import VIEWS
from ...graph import Graph, Op
from ...kernels import Kernel, Program

CUT, PUT = "dynamic_slice", "dynamic_update_slice"


def with_turns_apart(program: Program, free: dict[int, Kernel], *, inside: bool = False) -> Program:
    """The program with cutting and putting apart from the other kernels of its loops; ``free`` gets these, by their
    ids. What several kernels cut alike is cut once.
    """
    kernels: list[Kernel] = []
    made: set[int] = set()
    for kernel in program.kernels:
        if kernel.bodies:
            loops = program.graph.ops[kernel.ops[-1]].kind == "while"
            bodies = tuple(with_turns_apart(body, free, inside=inside or loops) for body in kernel.bodies)
            kernels.append(replace(kernel, bodies=bodies))
        elif inside:
            parts = _apart(program.graph, kernel, free)
            kernels += (part for part in parts if id(part) not in free or not made.issuperset(part.writes))
            made.update(value for part in parts for value in part.writes)
        else:
            kernels.append(kernel)
    return replace(program, kernels=tuple(kernels))


def put_of(graph: Graph, kernel: Kernel) -> tuple[int, ...]:
    """What a kernel puts into a stack."""
    stacks = {graph.ops[number].operands[0] for number in kernel.ops if graph.ops[number].kind == PUT}
    return tuple(value for value in kernel.reads if value not in stacks) if stacks else ()


def _apart(graph: Graph, kernel: Kernel, free: dict[int, Kernel]) -> list[Kernel]:
    """A kernel in several: what says where to cut, each that cuts, what computes, each that puts."""
    where, cutting = _cutting(graph, kernel)
    putting = _putting(graph, kernel, {number for part in (where, *cutting) for number in part})
    apart = {number for part in (where, *cutting, *putting) for number in part}
    middle = [number for number in kernel.ops if number not in apart]
    works = any(graph.ops[number].kind not in VIEWS and not _is_scalar(graph, number) for number in middle)
    if not works or not (cutting or putting):
        return [kernel]
    parts = [part for part in (where, *cutting, middle, *putting) if part]
    found = [_part(graph, kernel, part, parts) for part in parts]
    free |= {id(each): each for each in found if each.ops != tuple(middle)}
    return found


def _cutting(graph: Graph, kernel: Kernel) -> tuple[list[int], list[list[int]]]:
    """What says where to cut, and for each part that is cut out of what the kernel reads what cuts it and views it."""
    made = {value for number in kernel.ops for value in graph.ops[number].results}
    where: list[int] = []
    parts: list[list[int]] = []
    known: set[int] = set()
    part_of: dict[int, list[int]] = {}
    for number in kernel.ops:
        op = graph.ops[number]
        outside = [value not in made or value in known for value in op.operands]
        if _is_scalar(graph, number) and all(outside):
            where.append(number)
            known.update(op.results)
        elif op.kind == CUT and op.operands[0] not in made and all(outside):
            parts.append([number])
            part_of[op.results[0]] = parts[-1]
        elif op.kind in VIEWS and op.operands[0] in part_of:
            part_of[op.operands[0]].append(number)
            part_of[op.results[0]] = part_of[op.operands[0]]
    return (where, parts) if parts else ([], [])


def _putting(graph: Graph, kernel: Kernel, before: set[int]) -> list[list[int]]:
    """For each part that is put in its place in what the kernel writes what puts it and views it."""
    part_of: dict[int, list[int]] = {}
    parts: list[list[int]] = []
    reading: dict[int, list[int]] = {}
    for number in kernel.ops:
        for value in graph.ops[number].operands:
            reading.setdefault(value, []).append(number)
    for number in reversed(kernel.ops):
        op = graph.ops[number]
        readers = sorted({other for value in op.results for other in reading.get(value, ())})
        if number in before:
            continue
        if op.kind == PUT and not readers:
            parts.insert(0, [number])
            part_of[number] = parts[0]
        elif op.kind in VIEWS and len(readers) == 1 and readers[0] in part_of and not _is_written(kernel, op):
            part_of[number] = part_of[readers[0]]
            part_of[number].insert(0, number)
    return parts


def _is_written(kernel: Kernel, op: Op) -> bool:
    return bool(set(op.results) & set(kernel.writes))


def _is_scalar(graph: Graph, number: int) -> bool:
    op = graph.ops[number]
    return not op.bodies and all(not graph.values[value].shape for value in (*op.operands, *op.results))


def _part(graph: Graph, kernel: Kernel, ops: Sequence[int], parts: Sequence[Sequence[int]]) -> Kernel:
    made = [value for number in ops for value in graph.ops[number].results]
    read = dict.fromkeys(value for number in ops for value in graph.ops[number].operands if value not in set(made))
    others = (number for part in parts if part is not ops for number in part)
    wanted = {value for number in others for value in graph.ops[number].operands} | set(kernel.writes)
    return Kernel(ops=tuple(ops), reads=tuple(read), writes=tuple(value for value in made if value in wanted))
