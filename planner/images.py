"""How the tensors around convolutions lie: features on the lanes and the batch on the rows, or the other way round.

The compiler's layout assignment takes for each tensor what pads less, and the features' way where neither does. What is
elementwise of such a tensor lies as it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .convolution_layout import reaches
from .graph import Graph, Op, Value

LANES, ROWS = 128, 8
CONVOLUTION = "convolution"


class Image(NamedTuple):
    """The dims of a tensor that a convolution reads or makes: its features, and its batch."""

    features: int
    batch: int


def images(graph: Graph) -> dict[tuple[int, ...], Image]:
    """The images of a graph by their shape, as what comes first has them; loops are not entered."""
    found: dict[tuple[int, ...], Image] = {}
    for op in graph.ops if CONVOLUTION in graph.kinds else ():
        if op.kind == CONVOLUTION:
            for value, image in images_of(graph, op):
                found.setdefault(graph.shape(value), image)
    return found


def convolves(graph: Graph) -> bool:
    """Whether a graph convolves, in its loops too."""
    return CONVOLUTION in graph.kinds or any(convolves(body) for op in graph.nesting for body in op.bodies)


def images_of(graph: Graph, op: Op) -> Iterator[tuple[int, Image]]:
    """What a convolution reads and makes, but for kernels: the gradient of a kernel has images for one, and sums the
    batch as others sum features.
    """
    said = op.attributes
    first, second, made = *op.operands[:2], op.results[0]
    if is_gradient_of_kernel(graph, op):
        yield first, Image(said["input_batch_dimension"], said["input_feature_dimension"])
        yield second, Image(said["kernel_output_feature_dimension"], said["kernel_input_feature_dimension"])
    else:
        yield first, Image(said["input_feature_dimension"], said["input_batch_dimension"])
        yield made, Image(said["output_feature_dimension"], said["output_batch_dimension"])


def own_rows(graph: Graph, op: Op, makers: Mapping[int, Op]) -> int:
    """What a convolution reads of an image; of one that is put beside neighbours' rows, along one dim after the other,
    what is a device's own.
    """
    value, along = op.operands[0], op.attributes.get("input_spatial_dimensions", ())
    while value in makers and makers[value].kind == "concatenate" and makers[value].attributes["dimension"] in along:
        value = max(makers[value].operands, key=lambda part: graph.values[part].num_elements)
    return value


def is_gradient_of_kernel(graph: Graph, op: Op) -> bool:
    """Whether a convolution goes over all of its images at each place of a kernel that it makes."""
    said, kernel, made = op.attributes, graph.shape(op.operands[1]), graph.shape(op.results[0])
    inside = [kernel[dim] for dim in said.get("kernel_spatial_dimensions", ())]
    places = [made[dim] for dim in said.get("output_spatial_dimensions", ())]
    read, written = reaches(inside, said.get("rhs_dilation", ()), places, said.get("window_strides", ()))
    return written < read


def shifts_of(graph: Graph, op: Op) -> int:
    """The places of a kernel along the dim that few images are cut along, the last, for its gradient; else none.

    Nor for that of one that moves on by more than a place.
    """
    along, steps = (op.attributes.get(name, ()) for name in ("output_spatial_dimensions", "rhs_dilation"))
    if not along or any(step > 1 for step in steps) or not is_gradient_of_kernel(graph, op):
        return 0
    return graph.shape(op.results[0])[int(along[-1])]


def batch_on_lanes(features: int, batch: int, bits: int = 32) -> bool:
    """Whether a tensor of so many features and images is padded less with its images on the lanes."""
    packed = 32 // max(bits, 1)
    usual = _up(features, LANES) * _up(batch, tile_rows(batch, packed))
    return _up(batch, LANES) * _up(features, tile_rows(features, packed)) < usual


def image_of(found: Mapping[tuple[int, ...], Image], shapes: Iterable[tuple[int, ...]]) -> Image | None:
    """What is known of the first of some shapes that is that of an image."""
    return next((found[shape] for shape in shapes if shape in found), None) if found else None


def lies_by_batch(shape: tuple[int, ...], image: Image) -> bool:
    """Whether an image of bfloat16 has its batch on the lanes."""
    return batch_on_lanes(shape[image.features], shape[image.batch], 16)


def outside(shape: tuple[int, ...], image: Image, dim: int) -> Sequence[int]:
    """The dims of an image that lie outside of one of them: its places do outside of its batch and its features."""
    inner = (image.features, image.batch) if lies_by_batch(shape, image) else (image.batch, image.features)
    order = (*(other for other in range(len(shape)) if other not in image), *inner)
    return order[: order.index(dim)]


def laid_elements(value: Value, image: Image, *, turned: bool = False) -> int:
    """Elements of an image with its lanes and rows filled up; ``turned`` if its batch is on the lanes anyway."""
    many, batch = value.shape[image.features], value.shape[image.batch]
    lanes, rows = (batch, many) if turned or batch_on_lanes(many, batch, value.bits) else (many, batch)
    others = value.num_elements // max(many * batch, 1)
    return others * _up(lanes, LANES) * _up(rows, tile_rows(rows, 32 // max(value.bits, 1)))


def tile_rows(size: int, packed: int) -> int:
    """The rows of a tile: 8, or the power of two that holds a smaller dim; packed dtypes pair or quadruple rows."""
    return min(ROWS, max(packed, 1 << max(size - 1, 0).bit_length()))


def _up(size: int, to: int) -> int:
    return -(-size // to) * to


def moves_on(op: Op) -> bool:
    """Whether a convolution's windows move on by several places, or those of its gradient."""
    steps = (*op.attributes.get("window_strides", ()), *op.attributes.get("rhs_dilation", ()))
    return op.kind == CONVOLUTION and any(step > 1 for step in steps)


def is_of_one_place(graph: Graph, op: Op) -> bool:
    """Whether a convolution's windows are one place each, or those whose gradient it is."""
    return longest_window(graph, op) == 1


def longest_window(graph: Graph, op: Op) -> int:
    """How many places a convolution's windows have along their longest dim, or those whose gradient it is; 0 if that is
    not said.
    """
    if is_gradient_of_kernel(graph, op):
        sizes, dims = graph.shape(op.results[0]), op.attributes.get("output_spatial_dimensions", ())
    else:
        sizes, dims = graph.shape(op.operands[1]), op.attributes.get("kernel_spatial_dimensions", ())
    return max((sizes[dim] for dim in dims), default=0)
