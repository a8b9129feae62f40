"""Few images in parts (``cut_images``) that norms of single images put together, and part again.

XLA's space-to-batch carries parts on through what is computed number by number and through sums over all images, as
batch norm has them. Where parts have margins, what adds up the places of each image for itself, as group and instance
norm do, reads a copy that is put together again; what is known of each image is spread over whole ones, of which a copy
is parted where it meets parts (v4, v5e, v5p and v6e; on v3 alone single images). Images that convolutions read which
move on by several places, for which they are parted anew, are put together for all that is computed of them, and parted
where they are convolved (v4, v5e and v6e). All of these have their features in one dim, though a norm sees them in
groups.
What gradients of strided convolutions leave lies in parts of other sizes: where it meets normed images these are
copied, put together and parted anew (v5e and v5p).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..cut_images import PARTS, places_made
from ..graph import Graph, Op, Value
from ..images import CONVOLUTION, images_of, moves_on
from ..kinds import BETWEEN_PARTS, TURNED_COPY
from .nature import APART, BROADCAST, ELEMENTWISE, NORMED, REDUCE

Shape = tuple[int, ...]


class Lying(NamedTuple):
    """How an image lies whose parts stand beside its batch: the dims of both, of its features, and its own shape.

    ``together`` if what is computed of it is put together; ``places`` are those of a part, ``since`` says by which
    operation they are, ``is_of_gaps`` whether one made them of images with gaps, or of parts that are.
    """

    batch: int
    along: int
    features: int
    shape: Shape
    together: bool
    places: int
    since: int
    is_of_gaps: bool

    @property
    def has_margins(self) -> bool:
        """Whether the parts have more places than the image."""
        return PARTS * self.places > self.shape[self.along]

    @property
    def turned(self) -> Shape:
        """The shape of an image put together: the places that were cut are last, on the lanes."""
        return _turned(self.shape, self.along)

    @property
    def computed(self) -> Shape:
        """The shape in which it is computed with."""
        return self.turned if self.together else self.shape

    def dim(self, dim: int, rank: int) -> int:
        """A dim of an image as it is called in one of so many dims, in which the features may be in groups."""
        return dim if dim <= self.features else dim + rank - len(self.shape)

    def is_grouped_as(self, shape: Shape) -> bool:
        """Whether a shape is an image's own, or has its features in groups."""
        end = len(shape) - (len(self.shape) - self.features - 1)
        return (
            len(shape) >= len(self.shape)
            and shape[: self.features] == self.shape[: self.features]
            and shape[end:] == self.shape[self.features + 1 :]
        )


def with_images_put_together(graph: Graph, cut: Mapping[int, Op], *, singles: bool = False) -> Graph:
    """The graph with the copies of images that are put together and parted again for norms; ``cut`` are the
    convolutions whose images lie in parts, by what they make. Those of one image are left where not ``singles`` are cut
    alone: what is added up over its places is over all.
    """
    if not any(NORMED in op.attributes for op in graph.ops):
        return graph
    least = 0 if singles else 1
    first = _Rewriting(graph, cut, least)
    first.run()
    anew = first.reduced & {graph.shape(op.operands[0]) for op in graph.of_kind(CONVOLUTION) if moves_on(op)}
    return (_Rewriting(graph, cut, least, anew) if anew else first).made() if first.copied else graph


class _Rewriting:
    """The operations of a graph as they are gone through; ``lying`` has what lies in parts, images of the shapes that
    are parted ``anew`` put together; more than ``least`` are for norms.
    """

    def __init__(self, graph: Graph, cut: Mapping[int, Op], least: int, anew: Iterable[Shape] = ()) -> None:
        self.graph, self.cut, self.least, self.anew = graph, cut, least, frozenset(anew)
        self.makers = {value: op for op in graph.ops for value in op.results}
        self.reads = graph.reads()
        self.values, self.ops = list(graph.values), list[Op]()
        self.lying = dict[int, Lying]()
        self.same = dict[int, int]()
        self.beside = dict[int, int]()
        self.again = dict[tuple[int, int], int]()
        self.copied = set[int]()
        self.reduced = set[Shape]()

    def run(self) -> None:
        """Goes through all operations."""
        for op in self.graph.ops:
            self._take(op)

    def made(self) -> Graph:
        """The graph that they are now."""
        if not self.ops:
            self.run()
        results = tuple([self._as_it_was(value, self.graph.ops[-1]) for value in self.graph.results])
        return replace(self.graph, values=tuple(self.values), ops=tuple(self.ops), results=results)

    def _take(self, op: Op) -> None:
        lying = max(
            (self.lying[v] for v in op.operands if v in self.lying), key=lambda found: found.since, default=None
        )
        if op.results and op.results[0] in self.cut:
            self._begin(op)
        elif lying is None:
            self.ops.append(op)
        elif op.kind in ELEMENTWISE:
            self._compute(op, lying)
        elif op.kind == "reshape" and lying.is_grouped_as(self.graph.shape(op.results[0])):
            self.same[op.results[0]] = self._now(op.operands[0])
            self.lying[op.results[0]] = lying
        elif op.kind == REDUCE and self._is_put_together(op, lying):
            self._reduce(op, lying)
        else:
            self._leave(op)

    def _begin(self, op: Op) -> None:
        """A convolution whose images are cut."""
        self._leave(op)
        _, (value, image) = images_of(self.graph, op)
        along, shape = int(op.attributes["output_spatial_dimensions"][-1]), self.graph.shape(value)
        read = self.lying.get(op.operands[0])
        places = places_made(self.graph, op, None if read is None else read.places)
        is_of_gaps = max(op.attributes.get("lhs_dilation", ()), default=1) > 1
        is_of_gaps = is_of_gaps or (read is not None and read.is_of_gaps and not moves_on(op))
        together, since = shape in self.anew and not is_of_gaps, len(self.ops)
        self.lying[value] = Lying(image.batch, along, image.features, shape, together, places, since, is_of_gaps)

    def _compute(self, op: Op, lying: Lying) -> None:
        """What is computed number by number of parts is of parts; with a copy it is written, where several read it."""
        made = op.results[0]
        operands = tuple([self._beside(value, lying, op) for value in op.operands])
        is_written = self.reads[made] > 1 and not lying.together and not self.copied.isdisjoint(operands)
        said = {**op.attributes, APART: True} if is_written else op.attributes
        self.ops.append(replace(op, operands=operands, attributes=said))
        self.values[made] = replace(self.values[made], shape=lying.computed)
        self.lying[made] = lying

    def _beside(self, value: int, lying: Lying, reader: Op) -> int:
        """What is computed with images as these lie."""
        if value in self.lying:
            lies = self.lying[value]
            is_same = lies.together == lying.together and (lying.together or lies.places == lying.places)
            return self._now(value) if is_same else self._parted_again(value, lying, reader)
        if not lying.is_grouped_as(self.graph.shape(value)):
            return value
        if value not in self.beside:
            maker = self.makers.get(value)
            if maker is not None and maker.kind == BROADCAST and (lying.together or self._is_of_images(maker, lying)):
                whole = self._spread(maker, lying)
                self.beside[value] = whole if lying.together else self._copied(whole, lying.shape, reader)
            else:
                shaped = self._shaped(value, lying.shape, reader)
                self.beside[value] = self._copied(shaped, lying.turned, reader) if lying.together else shaped
        return self.beside[value]

    def _parted_again(self, value: int, lying: Lying, reader: Op) -> int:
        """A copy in parts of other sizes, or put together."""
        key = value, lying.places
        if key not in self.again:
            now = self._now(value)
            now = now if self.lying[value].together else self._copied(now, lying.turned, reader)
            self.again[key] = now if lying.together else self._copied(now, lying.shape, reader)
        return self.again[key]

    def _is_of_images(self, spread: Op, lying: Lying) -> bool:
        """Whether what is spread over images is another of each of them."""
        shape, dims = self.graph.shape(spread.operands[0]), spread.attributes.get("broadcast_dimensions", ())
        return lying.has_margins and any(dim == lying.batch and size > 1 for dim, size in zip(dims, shape, strict=True))

    def _spread(self, op: Op, lying: Lying) -> int:
        """What is spread over images, put together."""
        shape = self.graph.shape(op.results[0])
        along = lying.dim(lying.along, len(shape))
        dims = [_last(along, dim, len(shape)) for dim in op.attributes.get("broadcast_dimensions", ())]
        said = {**op.attributes, "broadcast_dimensions": tuple(dims), BETWEEN_PARTS: True}
        whole = self._make(_turned(shape, along), op.results[0])
        self.ops.append(replace(op, results=(whole,), attributes=said))
        return self._shaped(whole, lying.turned, op)

    def _is_put_together(self, op: Op, lying: Lying) -> bool:
        """Whether it adds up the places of each image for itself, or images that are put together."""
        rank, dims = len(self.graph.shape(op.operands[0])), op.attributes["dimensions"]
        if len(op.results) > 1 or lying.dim(lying.along, rank) not in dims:
            return False
        is_alone = lying.shape[lying.batch] > self.least and lying.dim(lying.batch, rank) not in dims
        return lying.together or (lying.has_margins and is_alone)

    def _reduce(self, op: Op, lying: Lying) -> None:
        """A sum over the places of images put together; groups of features are added up then."""
        shape, dims = self.graph.shape(op.operands[0]), op.attributes["dimensions"]
        self.reduced.add(lying.shape)
        copy = self._now(op.operands[0])
        copy = copy if lying.together else self._copied(copy, lying.turned, op)
        rank, grouped = len(lying.shape), len(shape)
        own = [dim for dim in range(rank) if dim != lying.features and lying.dim(dim, grouped) in dims]
        groups = [dim for dim in dims if lying.features <= dim <= lying.features + grouped - rank]
        if len(groups) == 1 + grouped - rank:
            own, groups = sorted([*own, lying.features]), []
        turned = tuple(sorted(_last(lying.along, dim, rank) for dim in own))
        left = [size for dim, size in enumerate(lying.turned) if dim not in turned]
        if not groups and self.graph.values[op.results[0]].shape == tuple(left):
            self.ops.append(_summed(op, copy, turned, op.results, between=True))
            return
        summed = self._make(left, copy)
        self.ops.append(_summed(op, copy, turned, (summed,), between=True))
        kept = [dim for dim in range(grouped) if dim not in dims or dim in groups]
        parted = self._shaped(summed, [shape[dim] for dim in kept], op)
        self.ops.append(_summed(op, parted, tuple(map(kept.index, groups)), op.results))

    def _leave(self, op: Op) -> None:
        """An operation that reads all as it was."""
        operands = tuple([self._as_it_was(value, op) for value in op.operands])
        self.ops.append(op if operands == op.operands else op.moved(operands))

    def _as_it_was(self, value: int, reader: Op) -> int:
        if value not in self.lying or value in self.cut:
            return value
        now, lying = self._now(value), self.lying[value]
        now = self._copied(now, lying.shape, reader) if lying.together else now
        return self._shaped(now, self.graph.shape(value), reader)

    def _now(self, value: int) -> int:
        """An image as it is computed with."""
        if value not in self.same and value in self.cut and self.lying[value].together:
            self.same[value] = self._copied(value, self.lying[value].turned, self.cut[value])
        return self.same.get(value, value)

    def _copied(self, value: int, shape: Shape, reader: Op) -> int:
        made = self._make(shape, value)
        said = {BETWEEN_PARTS: True}
        self.ops.append(Op(kind=TURNED_COPY, operands=(value,), results=(made,), attributes=said, origin=reader.origin))
        self.copied.add(made)
        return made

    def _shaped(self, value: int, shape: Sequence[int], reader: Op) -> int:
        if self.values[value].shape == tuple(shape):
            return value
        made = self._make(shape, value)
        self.ops.append(Op(kind="reshape", operands=(value,), results=(made,), origin=reader.origin))
        return made

    def _make(self, shape: Sequence[int], like: int) -> int:
        self.values.append(Value(tuple(shape), self.values[like].dtype))
        return len(self.values) - 1


def _summed(op: Op, value: int, dims: tuple[int, ...], results: tuple[int, ...], *, between: bool = False) -> Op:
    said = {**op.attributes, "dimensions": dims} | ({BETWEEN_PARTS: True} if between else {})
    return replace(op, operands=(value, *op.operands[1:]), results=results, attributes=said)


def _turned(shape: Sequence[int], along: int) -> Shape:
    return (*shape[:along], *shape[along + 1 :], shape[along])


def _last(along: int, dim: int, rank: int) -> int:
    """Where a dim stands once another has become the last."""
    return rank - 1 if dim == along else dim - (dim > along)
