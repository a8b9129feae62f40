"""From the graph of global tensors to the raw graph of one device: each operation by its rule, in program order."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..fusion.nature import PRODUCTS, REDUCE
from ..graph import Graph, Op, Sharding
from ..kinds import KINDS
from ..ranked import TOP_K
from .builder import Builder
from .halos import exchanged
from .layout import Mesh, stated, whole
from .looped import in_loop
from .reshard import SLICE
from .reused import Reused
from .rules import OF_FACTORS, OF_VALUES, RULES, strategy
from .strategy import Asked, PartialSum, Strategy
from .target import Target
from .top_k import PACKED, best_of_parts, is_packed, is_ranked_whole, top_k_layout, top_of_parts
from .wishes import Wishes

_LOCAL = "manual_computation"
_STATED = {kind.replace("-", "_"): kind for kind in KINDS} | {kind: kind for kind in KINDS}
_SAME_VALUE = frozenset({"reshard", "sharding_constraint", "propagation_barrier"})
_APART = frozenset({*_STATED, *_SAME_VALUE, _LOCAL})


def spread(graph: Graph, mesh: Mesh, target: Target, reused: Reused | None = None) -> Graph:
    """The graph of one device, its collectives as XLA's partitioner leaves them, before any later pass.

    ``reused`` is what was found before over this mesh for this target, and is added to.
    """
    writer = _Writer(graph, mesh, target, reused or Reused())
    return writer.graph(tuple(writer.argument(number) for number in graph.arguments))


class _Writer:
    """One graph, or the body of a loop in it, on its way to one device."""

    def __init__(self, graph: Graph, mesh: Mesh, target: Target, reused: Reused):
        self.source = graph
        self.mesh = mesh
        self.builder = Builder(mesh, reused)
        self.at: dict[int, int] = {}
        unique = {id(v): v for v in graph.values}.values()
        of_value = {id(v): stated(v.sharding, len(v.shape), mesh) for v in unique}
        self.layouts = [of_value[id(v)] for v in graph.values]
        known = {layout: number for number, layout in enumerate(dict.fromkeys(of_value.values()))}
        kinds = {value: known[layout] for value, layout in of_value.items()}
        self.alike = [kinds[id(v)] for v in graph.values]
        self.split = {number for layout, number in known.items() if any(layout)}
        self.target = target
        self.reused = reused
        known_parts = {id(v): self.builder.part(v.shape, v.dtype, of_value[id(v)]) for v in unique}
        self.parts = [known_parts[id(v)] for v in graph.values]
        self.wishes = Wishes(graph)

    def argument(self, number: int) -> int:
        self.at[number] = self.builder.value(self.parts[number])
        return self.at[number]

    def graph(self, arguments: tuple[int, ...], wanted: tuple[Sharding, ...] | None = None) -> Graph:
        for op in self.source.ops:
            self._op(op)
        results, makers = [], {value: op for op in self.source.ops for value in op.results} if wanted else {}
        for position, number in enumerate(self.source.results):
            layout = wanted[position] if wanted is not None else self.layouts[number]
            results.append(self._laid(number, layout, makers.get(number)))
        return replace(
            self.source,
            values=tuple(self.builder.values),
            ops=tuple(self.builder.ops),
            arguments=arguments,
            results=tuple(results),
        )

    def region(self) -> Graph:
        """The body of a region written for one device, its own collectives under the planner's names."""
        return self.graph(tuple(self.argument(number) for number in self.source.arguments))

    def _laid(self, number: int, layout: Sharding, op: Op | None) -> int:
        origin = op.origin if op is not None else Op(kind="").origin
        return self.builder.reshard(self.at[number], self.source.values[number], self.layouts[number], layout, origin)

    def _op(self, op: Op) -> None:
        if not (op.bodies or op.kind in _APART):
            if self._lies_right(op) or self._stands(op):
                self._same(op)
            else:
                self._plain(op)
        elif op.kind in _SAME_VALUE:
            self.at[op.results[0]] = self._laid(op.operands[0], self.layouts[op.results[0]], op)
        elif op.kind == _LOCAL:
            self._manual(op)
        elif op.bodies:
            self._bodies(op)
        else:
            self._stated(op, _STATED[op.kind])

    def _same(self, op: Op) -> None:
        """Writes an operation that is computed with its tensors as they lie."""
        at, results = self.at, op.results
        first = self.builder.same(op, tuple(map(at.__getitem__, op.operands)), [self.parts[n] for n in results])
        for number in results:
            at[number] = first
            first += 1

    def _stands(self, op: Op) -> bool:
        """Whether an operation is computed with its tensors as they lie, otherwise alike as these are."""
        kind = op.kind
        if op.factors is None or kind == TOP_K or (kind in RULES and kind not in OF_FACTORS):
            return False
        parts = self.parts
        key = kind, id(op.factors), len({*op.operands}) > 1, *[id(parts[n]) for n in op.operands + op.results]
        found = self.reused.standing.get(key)
        if found is None:
            how = self._strategy(op)
            found = how.operands == tuple([self.layouts[n] for n in op.operands])
            found &= how.made == tuple([self.layouts[n] for n in op.results])
            found &= not (any(how.paths) or how.sums or how.halos or how.window or how.attributes)
            self.reused.standing[key] = found
        return found

    def _plain(self, op: Op) -> None:
        if op.kind == TOP_K and self.target.is_tpu and self._ranked(op):
            return
        found = self._strategy(op)
        paths = found.paths or ((),) * (len(op.operands) + len(op.results))
        ways = zip(op.operands, paths, found.operands, strict=False)
        operands = [self._sent(n, self.at[n], self.layouts[n], (*path, last), op) for n, path, last in ways]
        operands = exchanged(self.builder, op, operands, found.halos)
        values = self.source.values
        parts = [
            self.builder.part(values[n].shape, values[n].dtype, layout)
            for n, layout in zip(op.results, found.made, strict=True)
        ]
        attributes = self.reused.with_said(op.attributes, found.attributes)
        made: tuple[int, ...]
        if found.window is not None:
            made = (in_loop(self.builder, op, found.window, operands, parts[0], attributes),)
        else:
            made = self.builder.op(op.kind, operands, parts, attributes, op.origin)
        sums = found.sums
        if sums and len(made) > 1 and op.kind == REDUCE:
            axes = tuple(axis for each in sums for axis in each.axes)
            made, sums = best_of_parts(self.builder, op, made, operands[len(made) :], axes), ()
        for number, value, layout, path in zip(op.results, made, found.made, paths[len(op.operands) :], strict=True):
            self._complete(op, number, value, layout, sums, path)

    def _ranked(self, op: Op) -> bool:
        """Writes the largest of a split dim, where each device has as many, or of all that all have."""
        (number,) = op.operands
        if is_ranked_whole(op, self.layouts[number], self.source.values[number], self.mesh):
            self._whole(op, number)
            return True
        layout = top_k_layout(self.builder, op, self.layouts[number], self.source.values[number].shape[-1])
        if layout is None:
            return False
        dtypes = [self.source.values[n].dtype for n in op.results]
        made = top_of_parts(self.builder, op, self.at[number], self.layouts[number][-1], dtypes)
        for result, value in zip(op.results, made, strict=True):
            self._complete(op, result, value, layout, ())
        return True

    def _whole(self, op: Op, number: int) -> None:
        """Writes the largest of an operand that is made whole for it."""
        given, layout = self.source.values[number], self.layouts[number]
        value = self.at[number]
        if is_packed(given) and len(layout) > 1:
            given = replace(given, dtype=PACKED)
            part = self.builder.part(given.shape, PACKED, layout)
            (value,) = self.builder.op("convert", (value,), (part,), {}, op.origin)
        value = self.builder.reshard(value, given, layout, whole(len(given.shape)), op.origin)
        made = self.builder.op(op.kind, (value,), [self.source.values[n] for n in op.results], op.attributes, op.origin)
        for result, each in zip(op.results, made, strict=True):
            self._complete(op, result, each, whole(len(self.source.values[result].shape)), ())

    def _sent(self, number: int, value: int, layout: Sharding, path: Sequence[Sharding], op: Op) -> int:
        """A value laid out in one way after the other."""
        if len(path) == 1 and path[0] == layout:
            return value
        whole_value = self.source.values[number]
        for before, after in itertools.pairwise((layout, *path)):
            value = self.builder.reshard(value, whole_value, before, after, op.origin)
        return value

    def _stated(self, op: Op, kind: str) -> None:
        """A collective that the step itself asks for."""
        attributes = {"dimensions": (), **op.attributes}
        parts = [self.parts[n] for n in op.results]
        made = self.builder.op(kind, [self.at[n] for n in op.operands], parts, attributes, op.origin)
        self.at.update(zip(op.results, made, strict=True))

    def _lies_right(self, op: Op) -> bool:
        """Whether an operation that works number by number, or on what is whole, has all its tensors alike.

        One that exchanges dims does not, however alike they lie.
        """
        alike = {*map(self.alike.__getitem__, op.operands + op.results)}
        if alike.isdisjoint(self.split):
            return True
        factors = op.factors
        if len(alike) > 1 or op.kind in RULES or factors is None:
            return False
        even = self.reused.even.get(id(factors))
        if even is None:
            self.reused.factors[id(factors)] = factors
            apart = factors.replicated or factors.permutation or factors.reduction
            even = self.reused.even[id(factors)] = not apart and len({*factors.operands, *factors.results}) == 1
        return even

    def _complete(
        self,
        op: Op,
        number: int,
        value: int,
        layout: Sharding,
        sums: tuple[PartialSum, ...],
        path: tuple[Sharding, ...] = (),
    ) -> None:
        """Sums up what is partial and lays the result out as asked, on this path."""
        whole_value = self.source.values[number]
        for sum_ in sums:
            if sum_.axes:
                value = self.builder.sum(value, sum_.axes, str(op.attributes.get("reducer", "add")), op.origin)
            if sum_.scattered is not None and not sum_.axes:
                value = self.builder.reshard(value, whole_value, layout, sum_.scattered, op.origin)
                layout = sum_.scattered
            elif sum_.scattered is not None:
                part = self.builder.part(whole_value.shape, whole_value.dtype, sum_.scattered)
                (value,) = self.builder.op(SLICE, (value,), (part,), {"axes": sum_.axes}, op.origin)
                layout = sum_.scattered
        self.at[number] = self._sent(number, value, layout, (*path, self.layouts[number]), op)

    def _strategy(self, op: Op) -> Strategy:
        """How an operation is computed; worked out once for all of which its rule would be told the same."""
        operands = tuple([self.layouts[n] for n in op.operands])
        results = tuple([self.layouts[n] for n in op.results])
        key: object = None
        if op.kind == "dot_general":
            dtypes = [self.source.values[n].dtype for n in (*op.operands, *op.results)]
            key = (op.kind, id(op.factors), operands, results, self._shared(op), *dtypes)
        elif op.factors is not None and (op.kind in OF_FACTORS or op.kind not in RULES):
            shapes = tuple([self.source.values[n].shape for n in (*op.operands, *op.results)])
            key = (op.kind, id(op.factors), operands, results, shapes, len({*op.operands}) > 1)
        elif op.factors is not None and op.kind in OF_VALUES:
            values = tuple([self.source.values[n] for n in (*op.operands, *op.results)])
            key = (op.kind, id(op.factors), operands, results, values, op.attributes.get("slice_sizes"))
        found = self.reused.strategies.get(key) if key is not None else None
        if found is None:
            found = strategy(self._asked(op, operands, results))
            if key is not None:
                self.reused.strategies[key] = found
                if op.factors is not None:
                    self.reused.factors[id(op.factors)] = op.factors
        return found

    def _asked(self, op: Op, operands: tuple[Sharding, ...], results: tuple[Sharding, ...]) -> Asked:
        return Asked(
            op=op,
            reads=tuple(self.source.values[n] for n in op.operands),
            makes=tuple(self.source.values[n] for n in op.results),
            operands=operands,
            results=results,
            mesh=self.mesh,
            target=self.target,
            shared=self._shared(op),
        )

    def _shared(self, op: Op) -> tuple[bool, ...]:
        is_asked = op.kind in PRODUCTS and self.target.window_flops_per_byte is not None
        return self.wishes.shared(op, self.layouts) if is_asked else ()

    def _bodies(self, op: Op) -> None:
        """A loop or a branch: what it reads is laid out as its bodies' arguments, what it makes as its results."""
        lead = len(op.operands) - len(op.bodies[0].arguments)
        first = op.bodies[0]
        asked = [stated(first.values[n].sharding, len(first.values[n].shape), self.mesh) for n in first.arguments]
        operands = [self._laid(n, whole(0), op) for n in op.operands[:lead]]
        operands += [self._laid(n, layout, op) for n, layout in zip(op.operands[lead:], asked, strict=True)]
        layouts = tuple(self.layouts[n] for n in op.results)
        bodies = tuple(self._body(body, layouts) for body in op.bodies)
        parts = [self.parts[n] for n in op.results]
        made = self.builder.op(op.kind, operands, parts, op.attributes, op.origin, bodies, op.trips)
        self.at.update(zip(op.results, made, strict=True))

    def _body(self, body: Graph, layouts: tuple[Sharding, ...]) -> Graph:
        inner = _Writer(body, self.mesh, self.target, self.reused)
        return inner.graph(tuple(inner.argument(n) for n in body.arguments), layouts)

    def _manual(self, op: Op) -> None:
        """A region of one device's shapes: operands are laid out as it says, its operations stand among the others."""
        rows: Mapping[str, tuple[Sharding, ...]] = op.attributes
        operands = [self._laid(n, layout, op) for n, layout in zip(op.operands, rows["in_shardings"], strict=True)]
        (body,) = op.bodies
        inner = _Writer(body, self.mesh, self.target, self.reused)
        made = self.builder.inlined(inner.region(), operands)
        for number, value, layout in zip(op.results, made, rows["out_shardings"], strict=True):
            self._complete(op, number, value, layout, ())
