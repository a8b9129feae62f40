"""Which collectives add up the gradient of which weight: followed back from the weights that a step returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..fusion.nature import MULTIPLYING
from ..graph import Op
from ..kernels import Program
from ..kinds import ALL_REDUCE, REDUCE_SCATTER

SUMS = (ALL_REDUCE, REDUCE_SCATTER)
PASSED = frozenset(
    {"dynamic_update_slice", "dynamic_slice", "slice", "pad", "concatenate", "reshape", "transpose", "all-gather"}
)
"""What hands a gradient on in another size or shape. All else that does must keep the number of elements."""
MAKERS = MULTIPLYING | frozenset({"gather", "scatter", "reduce", "sort", "custom_call"})
"""Where a gradient is made: nothing before belongs to one weight alone."""


def gradients(program: Program, weights: Mapping[str, str]) -> dict[int, tuple[str, ...]]:
    """The weights whose gradients each collective adds up, by the collective's (``id`` of its op).

    ``weights`` are the paths of weights by those of the results that are their next values.
    """
    found: dict[int, list[str]] = {}
    known: dict[int, _Makers] = {}
    for path, value in zip(program.graph.result_names, program.graph.results, strict=False):
        for op in _sums(program, value, known) if path in weights else ():
            found.setdefault(id(op), []).append(weights[path])
    return {op: tuple(dict.fromkeys(paths)) for op, paths in found.items()}


@dataclass(frozen=True, slots=True)
class _Makers:
    """What makes each value of a program, and the programs inside its loops."""

    ops: Mapping[int, Op]
    bodies: Mapping[int, tuple[Program, ...]]


def _makers(program: Program) -> _Makers:
    ops = program.graph.ops
    made = {value: op for op in ops for value in op.results}
    return _Makers(made, {id(ops[kernel.ops[-1]]): kernel.bodies for kernel in program.kernels if kernel.bodies})


def _sums(program: Program, value: int, known: dict[int, _Makers]) -> Iterator[Op]:
    """The sums over devices on the way back from a value to the product that it comes from."""
    stack, seen = [(program, value)], set[tuple[int, int]]()
    while stack:
        inner, number = stack.pop()
        if (id(inner), number) in seen:
            continue
        seen.add((id(inner), number))
        if id(inner) not in known:
            known[id(inner)] = _makers(inner)
        makers = known[id(inner)]
        op = makers.ops.get(number)
        if op is None or op.kind in MAKERS:
            continue
        if op.kind in SUMS:
            yield op
        position = op.results.index(number)
        for body in makers.bodies.get(id(op), ()):
            stack.append((body, body.graph.results[position]))
        if id(op) not in makers.bodies:
            stack += [(inner, source) for source in _sources(inner, op, position)]


def _sources(program: Program, op: Op, position: int) -> Iterator[int]:
    """The operands that a gradient may come from."""
    if op.kind in SUMS and len(op.operands) == len(op.results):
        yield op.operands[position]
        return
    values = program.graph.values
    size = values[op.results[position]].num_elements
    for number in op.operands:
        if (op.kind in PASSED and values[number].shape) or values[number].num_elements == size:
            yield number
