"""Which of a device's parts that are cut out of what others make are written before products read them."""

from __future__ import annotations

from collections.abc import Collection

from ..graph import Graph, Op
from ..images import CONVOLUTION, is_gradient_of_kernel
from .nature import CONVERT, ELEMENTWISE, PRODUCTS, SLICE, batch_dims, widens
from .operands import MANY_PRODUCTS, MATRIX_RANK
from .uses import Uses

PRODUCT, BATCH, CUT = "dot_general", "lhs_batching_dimensions", "slice"
FEWEST_WHOLE = 8
"""The smallest batch whose images no chip cuts into parts."""


def is_shared_part(graph: Graph, uses: Uses, op: Op, cuts_parts: bool) -> bool:
    """Whether it is a device's part of what another kernel makes, and more than one convolution or product of a batch
    reads it: of matrices each cuts it out for itself (seen on v3, v4 and v5e), and of a batch where it ``cuts_parts``
    (v6e). Products that see one group as matrices have it written where they join two of its dims into one, the last of
    which is no larger than the other (``bf16[32,1,32,1024]`` on v5e and v6e, but not 64 places for 32 experts). Of an
    argument convolutions have it written too, who put neighbours' rows beside it (seen on v3).
    """
    if op.kind != SLICE:
        return False
    value = op.results[0]
    if op.operands[0] not in uses.makers:
        return "axes" in op.attributes and _convolutions(graph, uses, value) >= MANY_PRODUCTS
    readers = [(graph.ops[number], position) for number, position in uses.readers[value]]
    found = [pair for pair in readers if pair[0].kind in PRODUCTS and _has_batch(pair[0])]
    if len(found) < MANY_PRODUCTS or any(reader.kind != PRODUCT for reader, _ in found):
        return len(found) >= MANY_PRODUCTS
    if all(batch_dims(graph, reader) == 0 for reader, _ in found):
        return any(_joins_last(graph, reader, position) for reader, position in found)
    return not cuts_parts


def is_convolved_part(graph: Graph, uses: Uses, op: Op) -> bool:
    """Whether convolutions read what is computed, number by number, of a device's part of what another kernel makes:
    they compute no such part themselves (seen on v3, v4 and v5e).
    """
    if op.kind not in ELEMENTWISE or all(graph.ops[each].kind != CONVOLUTION for each in uses.next_ops(op.results[0])):
        return False
    size, waiting, seen = graph.values[op.results[0]].num_elements, [op], set[int]()
    while waiting:
        for value in waiting.pop().operands:
            maker = uses.makers.get(value)
            if maker is None or maker in seen or graph.values[value].num_elements != size:
                continue
            seen.add(maker)
            if graph.ops[maker].kind == SLICE and graph.ops[maker].operands[0] in uses.makers:
                return True
            if graph.ops[maker].kind in ELEMENTWISE:
                waiting.append(graph.ops[maker])
    return False


def is_thin_matrix(graph: Graph, value: int) -> bool:
    """Whether a product's result has dims of one, as that of one sequence has.

    The compiler multiplies matrices without them, and takes no slice of what it then sees under another shape: the
    product leaves all of it (seen of logits on v3, v5e and v6e, of float32 and of bfloat16, but not of two sequences).
    """
    shape = graph.shape(value)
    return len(shape) > MATRIX_RANK and 1 in shape


def is_cut_of_product(graph: Graph, uses: Uses, written: Collection[int], op: Op) -> bool:
    """Whether it is a slice of what a product leaves whole, or what a product leaves made wider, a slice of it too.

    It is written for lookups alone, and whatever else takes it cuts it out, or widens it, for itself (as logits in
    bfloat16, in which labels are looked up as float32, on v5e and v5p). The product's result is ``written``.
    """
    wider = widens(graph, op)
    made = uses.makers.get(op.operands[0]) if op.operands else None
    if wider and made is not None and made not in written and graph.ops[made].kind == CUT:
        op = graph.ops[made]
        made = uses.makers.get(op.operands[0])
    if (
        op.results[0] in uses.results
        or made not in written
        or not (wider or (op.kind == CUT and is_thin_matrix(graph, op.operands[0])))
    ):
        return False
    while made is not None and graph.ops[made].kind in ELEMENTWISE | {CUT}:
        made = uses.makers.get(graph.ops[made].operands[0])
    return made is not None and graph.ops[made].kind in PRODUCTS


def _convolutions(graph: Graph, uses: Uses, value: int) -> int:
    """How many convolutions read a value, with neighbours' rows beside it or not."""
    found = 0
    for number in uses.next_ops(value):
        op = graph.ops[number]
        found += _convolutions(graph, uses, op.results[0]) if op.kind == "concatenate" else op.kind == CONVOLUTION
    return found


def _has_batch(product: Op) -> bool:
    return product.kind != PRODUCT or bool(product.attributes.get(BATCH))


def _joins_last(graph: Graph, product: Op, position: int) -> bool:
    """Whether a product sums or keeps two dims of an operand as one, of which the last is no larger than the other."""
    side, shape = ("lhs", "rhs")[position], graph.shape(product.operands[position])
    summed = [dim for dim in product.attributes.get(f"{side}_contracting_dimensions", ()) if shape[dim] > 1]
    kept = [dim for dim, size in enumerate(shape) if size > 1 and dim not in summed]
    joined = [dims for dims in (sorted(summed), kept) if len(dims) == MATRIX_RANK]
    return any(shape[last] <= shape[first] for first, last in joined)


def is_rounded_image(graph: Graph, uses: Uses, op: Op) -> bool:
    """Whether images that a step is given are only rounded, for convolutions alone: they are written narrow, as they
    lie, before these (v3, v4, v5e, v5p and v6e; of fewer images the parts are copied that are convolved).
    """
    if op.kind != CONVERT or not graph.result_names or op.operands[0] not in graph.arguments:
        return False
    if graph.values[op.results[0]].bits >= graph.values[op.operands[0]].bits:
        return False
    readers = [graph.ops[number] for number in uses.next_ops(op.results[0])]
    return bool(readers) and all(
        reader.kind == CONVOLUTION and _images_read(graph, reader, op.results[0]) >= FEWEST_WHOLE for reader in readers
    )


def _images_read(graph: Graph, convolution: Op, value: int) -> int:
    """How many images of a batch a convolution reads as its first operand; none if the value is another one."""
    first, said = convolution.operands[0], convolution.attributes
    if first != value or "input_batch_dimension" not in said:
        return 0
    dims = (said["input_batch_dimension"], said["input_feature_dimension"])
    return int(graph.shape(value)[dims[is_gradient_of_kernel(graph, convolution)]])
