"""Which convolutions of few images are of parts of them: XLA's space-to-batch cuts images along their last dim.

The conditions are those of its pass: what a part reads of the next one must lie in that, and images with gaps, which
gradients of convolutions with strides have, must begin with as many of them as fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .graph import Graph, Op
from .images import CONVOLUTION, images_of, is_gradient_of_kernel

PARTS = 8
"""Into how many parts an image is cut."""

FEWEST, FEWEST_WITH_GAPS = 2 * PARTS, 3 * PARTS
"""The places, margins included, of the smallest image that is cut first, and that gaps are put into behind a margin."""

SMALLEST_BATCH, SMALLEST_WITHOUT_VMEM = 8, 2
Shape = tuple[int, ...]


def smallest_whole(*, keeps_near: bool) -> int:
    """The smallest batch whose images a chip leaves whole: v2 and v3, which keep no buffers near, cut single ones."""
    return SMALLEST_BATCH if keeps_near else SMALLEST_WITHOUT_VMEM


class Along(NamedTuple):
    """A convolution along the last of its images' dims: sizes and steps in places, ``gaps`` what one becomes of an
    image, ``low`` and ``high`` the margins.
    """

    size: int
    window: int
    step: int
    gaps: int
    low: int
    high: int

    @property
    def places(self) -> int:
        """The places of an image with its margins."""
        return self.size + self.high + (self.low if self.gaps == 1 else 0)

    def part(self, made: int) -> int:
        """The places of a part of what is made, so many in all: those of the margins are made too where none is
        passed over.
        """
        return -(-(made if self.step * self.gaps > 1 else max(made, self.places)) // PARTS)

    @property
    def can_be_cut(self) -> bool:
        """Whether the pass takes it."""
        if self.gaps == 1:
            return self.window - 1 <= -(-self.places // PARTS)
        if self.step > 1 or not (self.low in (self.gaps - 1, self.gaps) or self.low + self.window == 1):
            return False
        begins = self.low == self.gaps
        beyond = (self.window if begins else self.window - 1) // self.gaps
        return beyond <= -(-self.places // PARTS) and not (begins and self.places < FEWEST_WITH_GAPS)


def cut_convolutions(graph: Graph, smallest: int, *, begins: bool = False) -> dict[int, Op]:
    """The convolutions whose images are fewer than ``smallest`` and cut, by what they make; gradients of kernels and
    loops' bodies are left out.

    One ``begins``, here or elsewhere, of images that are large enough, and all that can be follow.
    """
    found = dict[int, Op]()
    for op in graph.ops if CONVOLUTION in graph.kinds else ():
        if op.kind == CONVOLUTION and not is_gradient_of_kernel(graph, op):
            (value, image), *_ = images_of(graph, op)
            along = _along(graph, op)
            if graph.shape(value)[image.batch] < smallest and along is not None and along.can_be_cut:
                found[op.results[0]] = op
                begins = begins or along.places >= FEWEST
    return found if begins else {}


def parts_of(graph: Graph, cut: Mapping[int, Op]) -> dict[Shape, int]:
    """How many places a part has of each shape that convolutions make which are cut; none is known of what they only
    read.
    """
    found: dict[Shape, int] = {}
    for made, op in cut.items():
        along, shape = _along(graph, op), graph.shape(made)
        if along is not None:
            found.setdefault(shape, along.part(shape[op.attributes["output_spatial_dimensions"][-1]]))
    return found


def with_margins(graph: Graph, cut: Mapping[int, Op]) -> dict[Shape, float]:
    """How many times as many places the parts have of each shape that convolutions make which are cut."""
    places = {
        graph.shape(made): graph.shape(made)[op.attributes["output_spatial_dimensions"][-1]] for made, op in cut.items()
    }
    return {shape: PARTS * part / places[shape] for shape, part in parts_of(graph, cut).items()}


def share_read(graph: Graph, op: Op) -> float:
    """How many times as many places the parts have that a convolution reads as their image, with what each reads of
    the next one.
    """
    along = _along(graph, op)
    if along is None:
        return 1.0
    made = graph.shape(op.results[0])[int(op.attributes["output_spatial_dimensions"][-1])]
    return PARTS * (along.part(made) * along.step + along.window - 1) / along.size


def places_made(graph: Graph, op: Op, read: int | None) -> int:
    """The places of a part that a convolution makes of parts of so many places, of which none are known of what is cut
    for it: between those of an image with gaps are as many as these say.
    """
    along, made = _along(graph, op), graph.shape(op.results[0])[int(op.attributes["output_spatial_dimensions"][-1])]
    if along is None:
        return -(-made // PARTS)
    if along.gaps > 1:
        return along.gaps * -(-along.places // PARTS)
    return along.part(made) if along.step > 1 or read is None else read


def cut_anew(graph: Graph, smallest: int) -> frozenset[int]:
    """The images of which convolutions read other parts than they lie in: those whose windows move on by several
    places, where the parts that they begin at are smaller than those that one before that moves on by one makes. Seen
    on v5p and v6e; not looked for where only single images are cut.
    """
    cut = cut_convolutions(graph, smallest) if smallest > SMALLEST_WITHOUT_VMEM else {}
    parts = parts_of(graph, cut) if cut else {}
    return frozenset(op.operands[0] for op in cut.values() if _begins_elsewhere(graph, op, parts))


def _begins_elsewhere(graph: Graph, op: Op, parts: Mapping[Shape, int]) -> bool:
    read, made = (parts.get(graph.shape(value), 0) for value in (op.operands[0], op.results[0]))
    step = along_last(op.attributes, "window_strides")
    return step > 1 and read > step * made


def is_gradient_cut(graph: Graph, op: Op, parts: Mapping[Shape, int]) -> bool:
    """Whether the gradient of a kernel is of parts: of what comes back to it, and of an image that has not more places
    in each than windows begin at. That of a kernel with gaps is of whole images.
    """
    if is_of_gaps(op):
        return False
    image, back = (parts.get(graph.shape(value)) for value in op.operands[:2])
    return back is not None and (image or 0) <= along_last(op.attributes, "rhs_dilation") * back


def is_of_gaps(gradient: Op) -> bool:
    """Whether the gradient of a kernel is that of one with gaps between its places."""
    return along_last(gradient.attributes, "window_strides") > 1


def has_whole_steps(graph: Graph, op: Op) -> bool:
    """Whether windows begin at whole steps in each part of an image, as those of a gradient do."""
    step = max(along_last(op.attributes, name) for name in ("window_strides", "rhs_dilation"))
    along = op.attributes["input_spatial_dimensions"][-1]
    return graph.shape(op.operands[0])[int(along)] % (PARTS * step) == 0


def _along(graph: Graph, op: Op) -> Along | None:
    said: Mapping[str, Any] = op.attributes
    inside = said.get("input_spatial_dimensions", ())
    if not inside or int(said.get("batch_group_count", 1)) > 1:
        return None
    window, reach = graph.shape(op.operands[1])[said["kernel_spatial_dimensions"][-1]], along_last(said, "rhs_dilation")
    low, high = said["padding"][-1] if said.get("padding") else (0, 0)
    return Along(
        size=graph.shape(op.operands[0])[inside[-1]],
        window=(window - 1) * reach + 1,
        step=along_last(said, "window_strides"),
        gaps=along_last(said, "lhs_dilation"),
        low=low,
        high=high,
    )


def along_last(said: Mapping[str, Any], name: str) -> int:
    """What a convolution says of the last of its images' dims; 1 where it says nothing."""
    return int((said.get(name) or (1,))[-1])
