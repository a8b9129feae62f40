"""The loop nest of a kernel: the loops that its operations share, and what each of its values has of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..graph import Graph, Op
from .atoms import Atom, leaves, unify

SAME = frozenset({"propagation_barrier", "optimization_barrier", "sharding_constraint", "reshard", "copy"})
FREE = frozenset({"constant", "iota"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Nest:
    """Loops by number. ``sizes`` and ``blocked`` are theirs; ``dims`` has the loops of each dim of each value.

    ``sums`` has, for each loop that some operation adds up, the values that lie after such an operation: where they do
    not have the loop themselves they may be split otherwise than what comes before. ``exchanged`` are the loops of
    which devices need their neighbours' parts where they are split.
    """

    sizes: tuple[int, ...]
    blocked: tuple[bool, ...]
    dims: dict[int, tuple[tuple[int, ...], ...]]
    sums: dict[int, frozenset[int]]
    exchanged: frozenset[int]


def nest_of(graph: Graph, numbers: Sequence[int]) -> Nest:
    """The nest of these operations of a graph."""
    ops = [graph.ops[number] for number in numbers]
    atoms: dict[int, list[list[Atom]]] = {}
    factors = [(op, _join(graph, op, atoms)) for op in ops]
    return _numbered(graph, ops, atoms, factors)


def _join(graph: Graph, op: Op, atoms: dict[int, list[list[Atom]]]) -> list[Atom]:
    """Brings the dims of an operation's tensors together by its factors, which it gives."""
    for value in (*op.operands, *op.results):
        if value not in atoms:
            atoms[value] = [[Atom(size)] for size in graph.values[value].shape]
    if op.factors is None:
        _join_without_factors(graph, op, atoms)
        return []
    own = [Atom(size) for size in op.factors.sizes]
    for factor in op.factors.replicated:
        own[factor].blocked = True
    rules = (*zip(op.operands, op.factors.operands, strict=False), *zip(op.results, op.factors.results, strict=False))
    for value, rule in rules:
        for dim, factors in zip(atoms[value], rule, strict=True):
            if factors:
                _match(dim, [own[f] for f in factors])
    return own


def _match(dim: Sequence[Atom], factors: Sequence[Atom]) -> None:
    """A dim and its factors are one, if they go through as many elements: a window's dim may be larger."""
    if _product(dim) == _product(factors):
        unify(dim, factors)
    else:
        for atom in (*leaves(dim), *leaves(factors)):
            atom.blocked = True


def _product(atoms: Iterable[Atom]) -> int:
    count = 1
    for atom in atoms:
        count *= atom.size
    return count


def _join_without_factors(graph: Graph, op: Op, atoms: dict[int, list[list[Atom]]]) -> None:
    """Without a rule tensors of one shape are laid out alike where the operation only hands values on, else whole."""
    if op.kind in SAME:
        for source, result in zip(op.operands, op.results, strict=False):
            for a, b in zip(atoms[source], atoms[result], strict=True):
                unify(a, b)
    elif op.kind not in FREE:
        for value in (*op.operands, *op.results):
            for atom in leaves(atom for dim in atoms[value] for atom in dim):
                atom.blocked = True


def _numbered(
    graph: Graph, ops: Sequence[Op], atoms: dict[int, list[list[Atom]]], factors: Sequence[tuple[Op, list[Atom]]]
) -> Nest:
    number: dict[int, int] = {}
    found: list[Atom] = []
    dims: dict[int, tuple[tuple[int, ...], ...]] = {}
    for value, per_dim in atoms.items():
        rows = []
        for dim in per_dim:
            row = []
            for leaf in leaves(dim):
                if id(leaf) not in number:
                    number[id(leaf)] = len(found)
                    found.append(leaf)
                row.append(number[id(leaf)])
            rows.append(tuple(row))
        dims[value] = tuple(rows)
    sums: dict[int, set[int]] = {}
    exchanged: set[int] = set()
    for op, own in factors:
        if op.factors is not None and (op.factors.reduction or op.factors.permutation):
            after = _after(ops, op) if op.factors.reduction else frozenset()
            for leaf in leaves(own[factor] for factor in op.factors.reduction):
                sums.setdefault(number.get(id(leaf), -1), set()).update(after)
            exchanged.update(number.get(id(leaf), -1) for leaf in leaves(own[f] for f in op.factors.permutation))
    return Nest(
        sizes=tuple(atom.size for atom in found),
        blocked=tuple(atom.blocked for atom in found),
        dims=dims,
        sums={loop: frozenset(values) for loop, values in sums.items() if loop >= 0},
        exchanged=frozenset(exchanged),
    )


def _after(ops: Sequence[Op], first: Op) -> frozenset[int]:
    """The values that come after an operation: its results, what is made of them, and what else goes into that."""
    makers = {value: op for op in ops for value in op.results}
    readers: dict[int, list[Op]] = {}
    for op in ops:
        for value in op.operands:
            readers.setdefault(value, []).append(op)
    seen: set[int] = set()
    waiting = list(first.results)
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        waiting.extend(_beside(value, first, makers, readers))
    return frozenset(seen)


def _beside(value: int, first: Op, makers: dict[int, Op], readers: dict[int, list[Op]]) -> Iterator[int]:
    maker = makers.get(value)
    if maker is not None and maker is not first:
        yield from maker.operands
    for op in readers.get(value, ()):
        if op is not first:
            yield from op.operands
            yield from op.results
