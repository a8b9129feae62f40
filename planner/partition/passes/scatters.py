"""A sum of which each device keeps its part is a reduce-scatter.

The TPU compiler fuses such a sum with its slice. The ring passes pieces of equal size, a whole number of tiles each, so
that parts are padded; what of a device's own part the padding moved to its neighbours comes back by a permute.

Where only some rows of a part are read, or it is cut along several dims, the sum stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ...fusion.nature import BROADCAST, ELEMENTWISE
from ...graph import Axes, Graph, Op, Value
from ...images import CONVOLUTION
from ...kinds import ALL_REDUCE, COLLECTIVE_PERMUTE, REDUCE_SCATTER, RING_PADDING
from ..layout import Mesh, named, ways
from ..reshard import SLICE
from ..target import Target

Shape = tuple[int, ...]
TILE_BYTES, SUBLANES, LANES = 4096, 8, 128
EXCHANGED = "exchanged"
"""The attribute of products whose operands stand the other way round than the step has them."""
_NUMBER_BY_NUMBER = frozenset({"convert", "exponential", "negate", "tanh", "logistic", "add", "multiply", "subtract"})

_MOVED_ABOVE = _NUMBER_BY_NUMBER | {"transpose"}


def scatter(graph: Graph, target: Target, mesh: Mesh) -> Graph:
    """The graph with reduce-scatters in the place of all-reduces read by one slice along the same axes alone."""
    return _scattered(graph, target, mesh, is_step=True)


def kept_dims(graph: Graph, target: Target, mesh: Mesh) -> frozenset[int]:
    """The dims along which each device may keep its part of the sum that a graph ends with, and a ring leave it that:
    as the sum lies here, as one that is added to others does, or as one that is turned.
    """
    return _Scattering(graph, target, mesh, is_step=True).kept_dims(graph.ops[-1])


def _scattered(graph: Graph, target: Target, mesh: Mesh, *, is_step: bool) -> Graph:
    """The same of a whole step, whose results lie as they pad least, or of what is inside of one."""
    sums = {value for op in graph.of_kind(ALL_REDUCE) for value in op.results}
    if not graph.nesting and sums.isdisjoint([op.operands[0] for op in graph.of_kind(SLICE)]):
        return graph
    return _Scattering(graph, target, mesh, is_step=is_step).graph()


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a device keeps: the scattered dim, and by how many of its rows the ring pads it."""

    dim: int
    padding: int


class _Scattering:
    """A graph in which sums become reduce-scatters."""

    def __init__(self, graph: Graph, target: Target, mesh: Mesh, *, is_step: bool):
        self.source = graph
        self.target = target
        self.mesh = mesh
        self.values = list(graph.values)
        self.readers = graph.reads()
        self.readers.update(graph.results)
        self.trimmed = trimmed_values(graph, self.readers)
        turned = (op for op in graph.ops if op.kind == "transpose")
        self.turned = {op.operands[0]: tuple(op.attributes["permutation"]) for op in turned}
        self.products = {op.results[0]: op for op in graph.ops if op.kind in ("dot_general", CONVOLUTION)}
        self.tiled: dict[int, list[int]] = {}
        for op in graph.of_kind(REDUCE_SCATTER):
            self._follow(op.operands[0], op.results[0])
        self.returned = returned_values(graph) if is_step else frozenset[int]()

    def graph(self) -> Graph:
        reduces: dict[int, int] = {}
        ops: list[Op | None] = []
        for op in self.source.ops:
            if op.bodies:
                op = replace(op, bodies=tuple([self._inside(body) for body in op.bodies]))
            where = reduces.get(op.operands[0]) if op.kind == SLICE and "axes" in op.attributes else None
            reduce = ops[where] if where is not None else None
            if reduce is not None and where is not None and self._fits(reduce, op):
                ops[where] = None
                self._follow(reduce.operands[0], op.results[0])
                ops += self._joined(reduce, op)
                continue
            if op.kind == ALL_REDUCE:
                reduces[op.results[0]] = len(ops)
            ops.append(op)
        made = tuple(op for op in ops if op is not None)
        return replace(self.source, values=tuple(self.values), ops=made)

    def _follow(self, summed: int, kept: int) -> None:
        """Notes that what is kept of a product's sum lies as that does."""
        if product := self.products.get(summed):
            self.products[kept] = product
            self.tiled[kept] = self._tiled(summed)

    def kept_dims(self, reduce: Op) -> frozenset[int]:
        """The dims along which a part may be kept of what a sum leaves."""
        axes, (summed,) = reduce.attributes["axes"], reduce.operands
        whole, found = self.values[summed], set[int]()
        for dim, size in enumerate(whole.shape):
            kept = -(-size // ways(axes, self.mesh))
            part = Value((*whole.shape[:dim], kept, *whole.shape[dim + 1 :]), whole.dtype)
            tilings = [*self._tilings(summed, part.shape, returned=True), [*range(len(part.shape))][-2:]]
            is_turned = len(part.shape) > 3 and part.num_bytes >= TILE_BYTES
            if is_turned or self._may_keep(whole, part, dim, tilings):
                found.add(dim)
        return frozenset(found)

    def _inside(self, body: Graph) -> Graph:
        return _scattered(body, self.target, self.mesh, is_step=False)

    def _fits(self, reduce: Op, kept: Op) -> bool:
        axes, target = reduce.attributes["axes"], self.target
        if self.readers[reduce.results[0]] != 1 or not self._are_kept(axes, kept):
            return False
        if kept.results[0] in self.trimmed:
            return False
        if not target.may_scatter(axes, self.mesh):
            return False
        whole, part = self.values[kept.operands[0]], self.values[kept.results[0]]
        if ways(axes, self.mesh) * part.num_elements >= 2 * whole.num_elements:
            return False  # a part of an axis alone
        if sum(before != after for before, after in zip(whole.shape, part.shape, strict=True)) > 1:
            return False
        dim = self._dim(kept)
        if self._comes_first(kept, dim):
            return part.num_bytes >= TILE_BYTES
        returned = kept.results[0] in self.returned
        return self._may_keep(whole, part, dim, self._tilings(reduce.operands[0], part.shape, returned))

    def _may_keep(self, whole: Value, part: Value, dim: int, tilings: Iterable[Sequence[int]]) -> bool:
        """Whether a part of one dim may be kept, as tiles lie. Of a sum whose last dim is one, as what labels look up
        has, few rows are laid out each alone (``Target.fewest_rows``).
        """
        if whole.shape[-1:] == (1,) and whole.shape[dim] < self.target.fewest_rows:
            return False
        return any(_in_tiles(part, dim, tiled) for tiled in tilings)

    def _are_kept(self, axes: Axes, kept: Op) -> bool:
        """Whether a slice keeps parts along the same axes. It names the mesh's own: of a part it cuts as much."""
        own = set(named(axes, self.mesh))
        if own != set(kept.attributes["axes"]):
            return False
        whole, part = self.values[kept.operands[0]], self.values[kept.results[0]]
        return own == set(axes) or whole.num_elements <= ways(axes, self.mesh) * part.num_elements

    def _tilings(self, summed: int, part: Shape, returned: bool) -> Iterator[Sequence[int]]:
        """The pairs of dims that tiles may have: of an image its features with the batch, as convolutions have them, or
        with a row's places where it is ``returned``, since a step's results lie as they pad least.

        Places where they fill lanes better than the batch does, and features two tiles. Of a product whose operands are
        exchanged only later (``Target.exchanges_late``) the other way round.
        """
        made = self.products.get(summed)
        if made is None or made.kind != CONVOLUTION or not made.attributes["output_spatial_dimensions"]:
            is_turned = self.target.exchanges_late and made is not None and bool(made.attributes.get(EXCHANGED))
            yield self._tiled(summed)[:: -1 if is_turned else 1]
            return
        batch, features = (made.attributes[f"output_{name}_dimension"] for name in ("batch", "feature"))
        places = made.attributes["output_spatial_dimensions"][-1]
        yield sorted((batch, features))
        if returned and _fill(part[places]) > _fill(part[batch]) and part[features] % (2 * SUBLANES) == 0:
            yield sorted((places, features))

    def _comes_first(self, kept: Op, dim: int) -> bool:
        """Whether all that reads a part, of rank four or more, is a transpose that brings the scattered dim before all
        others: the sum then lies so (seen on v3: gradients of what experts are given).
        """
        order = self.turned.get(kept.results[0], ())
        return len(order) > 3 and order[0] == dim and self.readers[kept.results[0]] == 1

    def _tiled(self, summed: int) -> list[int]:
        """The dims whose numbers a tile of what is summed up has, the major one first.

        A matrix has its two dims, whatever dims of one it has besides. A product's tiles have that of either operand's
        own dims which fills their lanes best, the last one of equals; of one whose operands have none the last dims. A
        sum that is cut further lies as it was cut before (v5e: of ``bf16[768,12,16]`` whose lanes and rows are the
        outer dims, cut to 4 of 16, no part is kept by a ring).
        """
        if summed in self.tiled:
            return self.tiled[summed]
        made, shape = self.products.get(summed), self.values[summed].shape
        if made is None:
            wide = [dim for dim, size in enumerate(shape) if size > 1]
            return wide if len(wide) == 2 else [*range(len(shape))][-2:]
        if made.kind == CONVOLUTION or len(shape) < 3:
            return [*range(len(shape))][-2:]
        given, found = made.attributes, list[int]()
        end = batch = len(given.get("lhs_batching_dimensions", ()))
        for side, number in zip(("lhs", "rhs"), made.operands, strict=True):
            taken = batch + len(given.get(f"{side}_contracting_dimensions", ()))
            own = range(end, end := end + len(self.values[number].shape) - taken)
            found += sorted(own, key=lambda d: _fill(shape[d]))[-1:]
        return found or [*range(len(shape))][-2:]

    def _dim(self, kept: Op) -> int:
        """The dim that is scattered."""
        shapes = (self.values[kept.operands[0]].shape, self.values[kept.results[0]].shape)
        return next((d for d, (whole, part) in enumerate(zip(*shapes, strict=True)) if whole != part), 0)

    def _joined(self, reduce: Op, kept: Op) -> Iterator[Op]:
        dim, part = self._dim(kept), self.values[kept.results[0]]
        parts = ways(reduce.attributes["axes"], self.mesh)
        tiled = _by_fill(part, self._tiled(reduce.operands[0]))
        ring_bytes = self.target.ring_bytes if part.bits >= 32 else self.target.narrow_ring_bytes
        tiles = padding_tiles(part, dim, tiled, parts, ring_bytes) * (parts - 1)
        attributes = {**reduce.attributes, "dimensions": (dim,)}
        made = replace(reduce, kind=REDUCE_SCATTER, results=kept.results, attributes=attributes)
        yield from [made] if tiles == 0 else self._returned(made, part, dim, tiles, parts)

    def _returned(self, made: Op, part: Value, dim: int, tiles: int, parts: int) -> Iterator[Op]:
        """The reduce-scatter, then the permute of the tiles that its padding moved away."""
        strip = Value((tiles, SUBLANES, LANES), part.dtype)
        first, cut, sent = (self._add(value) for value in (part, strip, strip))
        attributes = {"axes": made.attributes["axes"], "dimensions": (dim,)}
        padding = strip.num_bytes // (parts - 1) * parts
        yield replace(made, results=(first,), attributes={**made.attributes, RING_PADDING: padding})
        yield replace(made, kind="slice", operands=(first,), results=(cut,), attributes={})
        yield replace(made, kind=COLLECTIVE_PERMUTE, operands=(cut,), results=(sent,), attributes=attributes)
        yield replace(made, kind="dynamic_update_slice", operands=(first, sent), attributes={})

    def _add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1


def returned_values(graph: Graph) -> frozenset[int]:
    """The values that become results of a graph, number by number, and nothing else reads; and those that are added to
    another where loops convolve: without loops (tensor parallel nets for v4 and v5e) they lie as convolutions want.
    """
    found, elsewhere = set(graph.results), set[int]()
    convolves = any(CONVOLUTION in body.kinds for op in graph.nesting for body in op.bodies)
    spread = {op.results[0] for op in graph.ops if op.kind == BROADCAST}
    for op in reversed(graph.ops):
        if convolves and op.kind == "add" and spread.isdisjoint(op.operands):
            found.update(op.results)
            elsewhere.difference_update(op.results)
        if op.kind in ELEMENTWISE and found.issuperset(op.results) and elsewhere.isdisjoint(op.results):
            found.update(op.operands)
        else:
            elsewhere.update(op.operands)
    return frozenset(found - elsewhere)


def trimmed_values(graph: Graph, readers: Counter[int]) -> frozenset[int]:
    """The values of which some reader keeps a run of rows only, or whose one reader keeps a device's part.

    The compiler joins that with the slice of a sum, which then is no even part, or that of more devices than added it
    up. It moves a run of rows above an operation that works number by number where nothing else reads what that makes,
    and above a transpose. A run of all rows cuts nothing.
    """
    parted = {op.operands[0] for op in graph.ops if op.kind == SLICE and "axes" in op.attributes}
    found: set[int] = set()
    for op in reversed(graph.ops):
        if op.kind == "slice":
            if graph.shape(op.operands[0]) == graph.shape(op.results[0]):
                # rows of a device's part that it has alone: nothing is cut here
                found.update(op.operands if op.results[0] in found else ())
            elif all(stride == 1 for stride in op.attributes.get("strides", ())):
                found.add(op.operands[0])
        elif op.kind in _MOVED_ABOVE and op.results[0] in found:
            found.update(op.operands if op.kind == "transpose" or readers[op.results[0]] == 1 else ())
    return frozenset(found | {value for value in parted if readers[value] == 1})


def _in_tiles(part: Value, dim: int, tiled: Sequence[int]) -> bool:
    """Whether a part is whole tiles, or lies apart in memory: the compiler cuts no tile, and leaves no gaps. A dim of
    which one is kept may lie before all others.

    A matrix is padded to whole rows of tiles for all parts; of a part of its rows more than a tile is written, lanes
    that it leaves empty counted.
    """
    if not part.num_elements:
        return False
    if _is_matrix(part, tiled) and dim in tiled and dim != (minor := _by_fill(part, tiled)[-1]):
        return part.shape[dim] >= SUBLANES and _with_empty_lanes(part, minor) > TILE_BYTES
    if part.num_bytes < TILE_BYTES and not _is_padded_matrix(part, dim, tiled):
        return False
    if dim not in tiled:
        return part.shape[dim] == 1 or all(size == 1 or d in tiled for d, size in enumerate(part.shape[:dim]))
    lanes = LANES * 32 // part.bits  # a whole register's, of narrow numbers
    if dim == _by_fill(part, tiled)[-1]:
        return part.shape[dim] % lanes == 0
    return part.shape[dim] % (SUBLANES * 32 // part.bits) == 0


def _is_matrix(part: Value, tiled: Sequence[int]) -> bool:
    """Whether a part has two dims, or of float32 no others but of one."""
    others = (dim for dim in range(len(part.shape)) if dim not in tiled)
    return len(tiled) == 2 and (len(part.shape) == 2 or (part.bits >= 32 and all(part.shape[d] == 1 for d in others)))


def _is_padded_matrix(part: Value, dim: int, tiled: Sequence[int]) -> bool:
    """Whether a part is a matrix but for dims of one, cut by its rows, and more than a tile with lanes left empty."""
    *_, minor = _by_fill(part, tiled)
    if dim not in tiled or dim == minor or any(size > 1 for d, size in enumerate(part.shape) if d not in tiled):
        return False
    return _with_empty_lanes(part, minor) > TILE_BYTES


def _with_empty_lanes(part: Value, minor: int) -> int:
    """Bytes of a part whose minor dim is filled up to whole lanes."""
    columns = part.shape[minor]
    return part.num_bytes // columns * -(-columns // LANES) * LANES


def _by_fill(part: Value, tiled: Sequence[int]) -> Sequence[int]:
    """The dims that tiles have, the minor one last: that which leaves them fuller."""
    sizes = [part.shape[d] for d in tiled]
    return tiled[::-1] if len(tiled) == 2 and _padded(*sizes) > _padded(*sizes[::-1]) else tiled


def _fill(size: int) -> float:
    """How full lanes are of so many numbers."""
    return size / (-(-size // LANES) * LANES)


def _padded(rows: int, columns: int) -> int:
    return -(-rows // SUBLANES) * SUBLANES * -(-columns // LANES) * LANES


def padding_tiles(part: Value, dim: int, tiled: Sequence[int], parts: int, ring_bytes: int) -> int:
    """By how many tiles a ring with so much memory pads a part: its pieces are as many tiles, or rows of tiles.

    Numbers of any dtype have four bytes in the ring. Parts that lie between each other are not padded.
    """
    flat = dim not in tiled
    if not flat and (dim == tiled[-1] or len(part.shape) > 2):
        return 0
    num_bytes = 4 * part.num_elements
    row = TILE_BYTES if flat else max(TILE_BYTES, num_bytes * SUBLANES // max(1, part.shape[dim]))
    rows = -(-num_bytes // row)
    pieces = -(-rows // max(1, ring_bytes // (parts + 4) // row))
    piece = -(-rows // pieces)
    if flat and pieces > 1:
        piece += piece % 2
    return (pieces * piece - rows) * (row // TILE_BYTES)
