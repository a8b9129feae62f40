"""Small graphs with their factors, written by hand or drawn at random, and exhaustive search over their layouts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.plan import Axis, Mesh
from meshwright.planner.graph import Factors, Graph, Op, Origin, Sharding, Value
from meshwright.planner.program import Program, build
from meshwright.planner.program.solving.exact import Exact, exact
from meshwright.planner.program.solving.learnt import Learnt
from meshwright.planner.topology import physical


@dataclass(slots=True)
class Drawing:
    """A graph while it is written down: every method gives the number of the value that it adds."""

    values: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    arguments: list[int] = field(default_factory=list)
    dtype: str = "f32"
    turn_number: int | None = None
    began: int = 0

    def block(self, turn: int) -> None:
        """What follows is the next repetition of a block."""
        self.turn_number, self.began = turn, len(self.ops)

    def arg(self, *shape: int) -> int:
        self.arguments.append(self._value(shape))
        return self.arguments[-1]

    def dot(self, left: int, right: int, left_dim: int = 1, right_dim: int = 0) -> int:
        """The product of two matrices along a dim of each."""
        one, other = self.values[left].shape, self.values[right].shape
        rows, columns, inner = one[1 - left_dim], other[1 - right_dim], one[left_dim]
        factors = Factors(
            sizes=(rows, columns, inner),
            operands=(_pair(left_dim, 2, 0), _pair(right_dim, 2, 1)),
            results=(((0,), (1,)),),
            reduction=(2,),
        )
        said = {"lhs_contracting_dimensions": (left_dim,), "rhs_contracting_dimensions": (right_dim,)}
        return self._op("dot_general", (left, right), (rows, columns), factors, said)

    def each(self, kind: str, *operands: int) -> int:
        shape = self.values[operands[0]].shape
        dims = tuple((d,) for d in range(len(shape)))
        return self._op(kind, operands, shape, Factors(sizes=shape, operands=(dims,) * len(operands), results=(dims,)))

    def fill(self, *shape: int) -> int:
        """An array of one number."""
        zero = self._value(())
        self.ops.append(Op(kind="constant", results=(zero,), attributes={"splat": 0.0}))
        dims = tuple((d,) for d in range(len(shape)))
        factors = Factors(sizes=shape, operands=((),), results=(dims,))
        return self._op("broadcast_in_dim", (zero,), shape, factors, {"broadcast_dimensions": ()})

    def total(self, value: int, dim: int) -> int:
        """The sum along a dim."""
        shape = self.values[value].shape
        zero = self._value(())
        self.ops.append(Op(kind="constant", results=(zero,), attributes={"splat": 0.0}))
        kept = tuple(d for d in range(len(shape)) if d != dim)
        factors = Factors(
            sizes=shape,
            operands=(tuple((d,) for d in range(len(shape))), ()),
            results=(tuple((d,) for d in kept),),
            reduction=(dim,),
        )
        said = {"dimensions": (dim,), "reducer": "add"}
        return self._op("reduce", (value, zero), tuple(shape[d] for d in kept), factors, said)

    def turn(self, value: int) -> int:
        """The transpose of a matrix."""
        rows, columns = self.values[value].shape
        factors = Factors(sizes=(rows, columns), operands=(((0,), (1,)),), results=(((1,), (0,)),))
        return self._op("transpose", (value,), (columns, rows), factors, {"permutation": (1, 0)})

    def reshape(self, value: int, sizes: Sequence[int], operand: Any, result: Any) -> int:
        """The same numbers in another shape: ``operand`` and ``result`` have the factors of each dim."""
        shape = tuple(math.prod(sizes[f] for f in dim) for dim in result)
        factors = Factors(sizes=tuple(sizes), operands=(operand,), results=(result,))
        return self._op("reshape", (value,), shape, factors)

    def cut(self, value: int, dim: int, size: int) -> int:
        """The first so many of a dim."""
        whole = self.values[value].shape
        shape = tuple(size if d == dim else own for d, own in enumerate(whole))
        dims = tuple((d,) for d in range(len(whole)))
        factors = Factors(sizes=whole, operands=(dims,), results=(dims,), permutation=(dim,))
        said = {"start_indices": (0,) * len(whole), "limit_indices": shape, "strides": (1,) * len(whole)}
        return self._op("slice", (value,), shape, factors, said)

    def graph(self, *results: int, mesh: Mapping[str, int] | None = None) -> Graph:
        return Graph(
            values=tuple(self.values),
            ops=tuple(self.ops),
            arguments=tuple(self.arguments),
            results=results,
            names=tuple(f"a{number}" for number in range(len(self.arguments))),
            result_names=tuple(f"out/{number}" for number in range(len(results))),
            mesh=dict(mesh or {}),
        )

    def _op(
        self,
        kind: str,
        operands: Sequence[int],
        shape: Sequence[int],
        factors: Factors,
        said: Mapping[str, Any] | None = None,
    ) -> int:
        result = self._value(shape)
        path = f"ops/{kind}.{len(self.ops) - self.began}" + ("" if self.turn_number is None else f"/{self.turn_number}")
        self.ops.append(
            Op(
                kind=kind,
                operands=tuple(operands),
                results=(result,),
                factors=factors,
                attributes=said or {},
                origin=Origin(value=path),
            )
        )
        return result

    def _value(self, shape: Sequence[int]) -> int:
        self.values.append(Value(tuple(shape), self.dtype, ((),) * len(shape)))
        return len(self.values) - 1


def _pair(dim: int, summed: int, kept: int) -> tuple[tuple[int, ...], ...]:
    return ((summed,), (kept,)) if dim == 0 else ((kept,), (summed,))


SIZES = (64, 512, 4096)


@st.composite
def steps(draw: st.DrawFn, most: int = 4) -> tuple[Graph, dict[str, str]]:
    """A step of up to ``most`` operations on matrices, some values read twice; and the argument that each result
    returns the next value of.
    """
    drawing = Drawing()
    pick = lambda found: draw(st.sampled_from(found))  # noqa: E731
    known = [drawing.arg(pick(SIZES), pick(SIZES))]
    for _ in range(draw(st.integers(1, most))):
        value = pick(known)
        shape = drawing.values[value].shape
        kind = pick(["dot", "dot", "each", "add", "turn", "total"]) if len(shape) == 2 else "each"
        if kind == "dot":
            dim = pick([0, 1])
            mates = [v for v in known if len(drawing.values[v].shape) == 2 and drawing.values[v].shape[0] == shape[dim]]
            right = pick([*mates, -1])
            known.append(drawing.dot(value, drawing.arg(shape[dim], pick(SIZES)) if right < 0 else right, dim))
        elif kind == "add":
            mates = [v for v in known if drawing.values[v].shape == shape]
            right = pick([*mates, -1])
            known.append(drawing.each("add", value, drawing.arg(*shape) if right < 0 else right))
        elif kind == "each":
            known.append(drawing.each("tanh", drawing.each("negate", value)))
        else:
            known.append(drawing.turn(value) if kind == "turn" else drawing.total(value, pick([0, 1])))
    read = {v for op in drawing.ops for v in op.operands}
    made = [op.results[0] for op in drawing.ops if op.kind != "constant"]
    results = [v for v in made if v not in read] or made[-1:]
    results += [v for v in made if v in read and draw(st.booleans()) and draw(st.booleans())][:1]
    graph = drawing.graph(*results)
    returned: dict[str, str] = {}
    for result, value in zip(graph.result_names, results, strict=True):
        like = [n for n, v in zip(graph.names, graph.arguments, strict=True) if graph.shape(v) == graph.shape(value)]
        like = [name for name in like if name not in returned.values()]
        if like and draw(st.booleans()):
            returned[result] = pick(like)
    return graph, returned


def mesh_of(sizes: Mapping[str, int]) -> Mesh:
    return Mesh(axes=tuple(Axis(name=name, size=size) for name, size in sizes.items()))


def program_of(graph: Graph, topology: str, sizes: Mapping[str, int], **options: Any) -> Program:
    graph = replace(graph, mesh=dict(sizes))
    return build(graph, mesh_of(sizes), physical(parse_topology(topology)), **options)


def size_of(program: Program) -> int:
    """How many strategies there are in all: a choice for each node that decides."""
    return math.prod(len(program.wiring.nodes[number].costs) for number in program.deciders)


def strategies(program: Program) -> Iterator[list[int]]:
    """Every strategy of the program: the choice of each node."""
    deciders = [int(number) for number in program.deciders]
    place = {number: position for position, number in enumerate(deciders)}
    for picked in itertools.product(*(range(len(program.wiring.nodes[number].costs)) for number in deciders)):
        yield [picked[place[int(leader)]] for leader in program.leader]


def promised_s(program: Program, choices: Sequence[int]) -> float:
    """What the program says that a strategy takes: each node's seconds, and those of each pair."""
    wiring = program.wiring
    alone = sum(node.costs[choice] for node, choice in zip(wiring.nodes, choices, strict=True))
    return float(alone + sum(table[choices[a], choices[b]] for (a, b), table in wiring.tables.items()))


def nothing(program: Program) -> Learnt:
    """Nothing learnt yet."""
    return Learnt(leader=program.leader, guess_s=[np.zeros(len(node.costs)) for node in program.wiring.nodes])


def exact_of(program: Program, choices: Sequence[int]) -> Exact:
    """The exact price of a strategy."""
    return exact(program.wiring, choices, program.mesh, program.machine)


def shardings(shape: Sequence[int], mesh: Mapping[str, int], *, padded: bool = False) -> Iterator[Sharding]:
    """Every way to split dims of these sizes evenly, or ``padded`` into no more parts than they are long, each dim over
    axes in the mesh's order.
    """
    homes = [None, *range(len(shape))]
    for places in itertools.product(homes, repeat=len(mesh)):
        own = [tuple(axis for axis, home in zip(mesh, places, strict=True) if home == dim) for dim in range(len(shape))]
        ways = [int(np.prod([mesh[axis] for axis in axes], dtype=int)) for axes in own]
        if all(size % count == 0 or (padded and size > count) for size, count in zip(shape, ways, strict=True)):
            yield tuple(own)


def parts(shape: Sequence[int], layout: Sharding, mesh: Mapping[str, int]) -> dict[tuple[int, ...], frozenset[int]]:
    """The elements (row-major numbers) that each device holds, by its place along each axis of the mesh."""
    numbers = np.arange(math.prod(shape)).reshape(shape)
    found = {}
    for device in itertools.product(*map(range, mesh.values())):
        place = dict(zip(mesh, device, strict=True))
        held = numbers
        for dim, axes in enumerate(layout):
            index, ways = 0, 1
            for axis in axes:
                index, ways = index * mesh[axis] + place[axis], ways * mesh[axis]
            held = np.split(held, ways, axis=dim)[index]
        found[device] = frozenset(int(n) for n in held.ravel())
    return found
