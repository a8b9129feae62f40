"""Copies that libraries of products need: an operand is read as a batch of matrices, whose dims lie side by side.

XLA on GPUs writes what is computed number by number in whatever order of dims its readers want, but what a product or
the caller made lies as it does, and is copied. Results of a step are brought into their order likewise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...fusion.nature import PRODUCTS, VIEWS
from ...graph import Graph, Op, Value
from ...kernels import Kernel
from ..coefficients import Coefficients

BATCH, SHARED, OWN = range(3)
Dims = tuple[int, ...]


class Copied(NamedTuple):
    """A ``value`` that is copied for a product: its ``dims`` in the order of how it was made, with their ``roles``."""

    value: int
    dims: Dims
    roles: Dims

    def is_copied(self, shape: Sequence[int]) -> bool:
        """Whether it is in this shape: dims of one lie anywhere."""
        return not is_plain([shape[dim] for dim in self.dims], self.roles)


class Relaid:
    """The copies around the products of a graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._makers = {value: op for op in graph.ops for value in op.results}
        self._results = frozenset(graph.results)

    def copies_cycles(self, kernel: Kernel, of: Coefficients) -> float:
        """Cycles of the copies that a kernel needs."""
        copied = [value for number in kernel.ops for value in self._copied(self._graph.ops[number])]
        copied += [value for value in kernel.writes if value in self._results and self._is_turned_result(value)]
        return sum(copy_cycles(self._graph.values[value], of) for value in copied)

    def read_by(self, kernel: Kernel) -> Iterator[Copied]:
        """What a kernel reads that is copied for a product of its, or what is a view of that; not where that has other
        dims, if not as many.
        """
        for op in (self._graph.ops[number] for number in kernel.ops):
            for side in (0, 1) if op.kind == "dot_general" else ():
                value, roles = op.operands[side], self._roles(op, side)
                dims = [*range(len(roles))]
                while value not in kernel.reads and (maker := self._makers.get(value)) is not None:
                    if maker.kind != "transpose":
                        break
                    value, dims = maker.operands[0], [maker.attributes["permutation"][dim] for dim in dims]
                if value in kernel.reads and self._is_moved(op, side):
                    yield Copied(value, *self._as_made(value, dims, roles))

    def _as_made(
        self, value: int, dims: Sequence[int], roles: Sequence[int]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The dims of a value in the order in which they lie, if nothing but transposes brought it into its own, with
        their roles, which it has for a product in these ``dims``.
        """
        role, order = dict(zip(dims, roles, strict=True)), [*range(len(dims))]
        while (maker := self._makers.get(value)) is not None and maker.kind == "transpose":
            said = maker.attributes["permutation"]
            order, value = [order[said.index(dim)] for dim in range(len(said))], maker.operands[0]
        return tuple(order), tuple(role[dim] for dim in order)

    def _copied(self, op: Op) -> Iterator[int]:
        """The operands of a product that are copied for it."""
        if op.kind != "dot_general":
            return
        for side in (0, 1):
            if self._is_moved(op, side):
                yield op.operands[side]

    def _is_moved(self, op: Op, side: int) -> bool:
        """Whether an operand lies otherwise than in matrices, and was made so by a product or the caller."""
        value = op.operands[side]
        roles: list[int] | None = self._roles(op, side)
        moved = False
        while (maker := self._makers.get(value)) is not None and maker.kind in VIEWS:
            if maker.kind == "transpose" and roles is not None:
                said = maker.attributes["permutation"]
                roles = [roles[said.index(dim)] for dim in range(len(said))]
            elif maker.kind == "transpose":
                moved |= self._turns(maker)
            elif roles is not None:
                moved |= not self._is_plain(maker.results[0], roles)
                roles = None
            value = maker.operands[0]
        moved |= roles is not None and not self._is_plain(value, roles)
        return moved and (maker is None or self._is_of_product(maker))

    def _roles(self, op: Op, side: int) -> list[int]:
        name = ("lhs", "rhs")[side]
        found = [OWN] * len(self._graph.shape(op.operands[side]))
        for dim in op.attributes.get(f"{name}_batching_dimensions", ()):
            found[dim] = BATCH
        for dim in op.attributes.get(f"{name}_contracting_dimensions", ()):
            found[dim] = SHARED
        return found

    def _is_plain(self, value: int, roles: Sequence[int]) -> bool:
        return is_plain(self._graph.shape(value), roles)

    def _is_of_product(self, op: Op) -> bool:
        """Whether a product made it, rounded or not."""
        if op.kind == "convert":
            before = self._makers.get(op.operands[0])
            return before is not None and before.kind in PRODUCTS
        return op.kind in PRODUCTS

    def _is_turned_result(self, value: int) -> bool:
        """Whether a result of the step is but what a product or the caller made, in another order."""
        turned = False
        while (maker := self._makers.get(value)) is not None and maker.kind in VIEWS:
            turned |= maker.kind == "transpose" and self._turns(maker)
            value = maker.operands[0]
        return turned and (maker is None or self._is_of_product(maker))

    def _turns(self, op: Op) -> bool:
        """Whether a transpose changes in which order numbers lie."""
        shape = self._graph.shape(op.operands[0])
        kept = [dim for dim in op.attributes["permutation"] if shape[dim] > 1]
        return kept != sorted(kept)


def is_plain(shape: Sequence[int], roles: Sequence[int]) -> bool:
    """Whether batches come first, then all that is shared and all that is not, either first."""
    sized = [role for role, size in zip(roles, shape, strict=True) if size > 1]
    runs = [role for place, role in enumerate(sized) if place == 0 or sized[place - 1] != role]
    return len(runs) == len(set(runs)) and BATCH not in runs[1:]


def copy_cycles(value: Value, of: Coefficients) -> float:
    """Cycles of copying a value: its bytes are read and written."""
    return 2 * (value.num_elements * value.bits // 8) * of.byte_cycles + of.start_cycles


def renamed_copies(copied: Iterable[Copied], numbers: Sequence[int]) -> tuple[Copied, ...]:
    """Those of values that have other numbers, the places that they have in ``numbers``."""
    return tuple(each._replace(value=numbers.index(each.value)) for each in copied if each.value in numbers)
