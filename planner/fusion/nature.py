"""The nature of an operation: what may be computed in passing, and what stands as a kernel of its own."""

from __future__ import annotations

import math
from itertools import accumulate

from ..graph import Graph, Op

ELEMENTWISE_KINDS = """
abs acos acosh add and asin asinh atan atan2 atanh bessel_i1e bitcast_convert cbrt ceil clamp compare complex conj
convert copy cos cosh count_leading_zeros digamma divide erf erf_inv erfc exponential exponential_minus_one floor
imag is_finite is_inf lgamma log log_plus_one logistic map maximum minimum multiply negate next_after not or
polygamma popcnt power real reduce_precision remainder round_nearest_afz round_nearest_even rsqrt select shift_left
shift_right_arithmetic shift_right_logical sign sine cosine sinh sqrt square subtract tan tanh xor zeta
"""
CONSTANT = "constant"
CONVERT = "convert"
JOIN = "concatenate"
ROWS = 8
LANES = 128
REDUCE = "reduce"
UPDATE = "dynamic_update_slice"
BROADCAST = "broadcast_in_dim"
PRODUCTS = frozenset({"dot_general", "convolution"})
GROUPED = "ragged_dot"
"""Products of groups of rows, each with a matrix of its own: kernels by themselves, of which nothing is counted."""
MULTIPLYING = PRODUCTS | {GROUPED}
BARRIER = "optimization_barrier"
AFTER = "after"
APART = "apart"
BEHIND = "behind"
NORMED = "normed"
"""What an operation says that makes an image of a norm for convolutions of its parts: whether sums over all images
(``NORMED_BY_ALL``) or of each alone are known of it.
"""
NORMED_BY_ALL, NORMED_BY_EACH = "all", "each"
SENT = "sent"
"""What a conversion says that rounds for a collective: the compiler adds it when kernels stand."""
SLICE = "dynamic_slice"
ALLOCATE = "allocate"
VIEWS = frozenset({"reshape", "transpose"})
MOVES = frozenset({"slice", "pad", "reverse", "dynamic_slice", JOIN, BROADCAST})
ELEMENTWISE = frozenset(ELEMENTWISE_KINDS.split())
STEPWISE = ELEMENTWISE | VIEWS
"""What makes each number of the one at its place."""
SPREAD = frozenset({BROADCAST, CONSTANT, "iota"})
"""What makes an array of a smaller one, or of none."""
IN_PASSING = STEPWISE | MOVES | {"iota"}
_JOINED = IN_PASSING | PRODUCTS | {REDUCE, UPDATE, CONSTANT}
_CUT = VIEWS | SPREAD | {"pad", "dynamic_slice"}
"""What a device's part is cut out of as it is computed."""
_SHARED = tuple((f"{side}_contracting_dimensions", f"{side}_batching_dimensions") for side in ("lhs", "rhs"))


def is_scalar(graph: Graph, op: Op) -> bool:
    """Whether it makes one number."""
    return len(op.results) == 1 and graph.values[op.results[0]].num_elements == 1


def is_of_vector(graph: Graph, op: Op) -> bool:
    """Whether one operand of a product is a vector but for the dims that both have.

    The compiler then multiplies and adds up numbers where they are, in their own dtype.
    """
    if op.kind != "dot_general" or "lhs_contracting_dimensions" not in op.attributes:
        return False
    attributes = op.attributes
    for (summed, batch), number in zip(_SHARED, op.operands, strict=True):
        shared = *attributes.get(summed, ()), *attributes.get(batch, ())
        shape = graph.values[number].shape
        if math.prod([size for dim, size in enumerate(shape) if size != 1 and dim not in shared]) == 1:
            return True
    return False


def is_constant(op: Op) -> bool:
    """Whether it is part of the program's code, and no work."""
    return op.kind == CONSTANT


def stands_alone(op: Op) -> bool:
    """Whether nothing is fused to it: collectives, loops, sorts, gathers, scatters, running sums, calls.

    Nor to a pad between numbers, with which an associative scan puts odd and even ones together.
    """
    return op.kind not in _JOINED or (op.kind == "pad" and any(op.attributes.get("interior_padding", ())))


def takes(graph: Graph, consumer: Op, position: int, producer: Op) -> bool:
    """Whether ``consumer`` computes ``producer`` in passing as its operand at ``position``.

    What a broadcast spreads is computed before, and so is what a pad or an update in place moves and what a product
    takes with two dims joined into one, but for making it wider; all else takes what comes before it. Arrays are put
    together by products, by sums and number by number (``is_padded``). What a scatter adds is computed before, and a
    device's part is cut out of what lies in memory, under whatever shape (seen on v3, v4, v5e, v5p and v6e).
    """
    kind = consumer.kind
    if kind not in _JOINED:
        return False
    if producer.kind == JOIN:
        is_read = kind == "dot_general" and not _joins_rows(graph, consumer, position)
        return is_read or kind in (*ELEMENTWISE, "convolution", "reduce")
    if kind in ELEMENTWISE:
        return True
    if kind == UPDATE:
        return position > 0
    if kind == SLICE:
        return producer.kind in _CUT or is_scalar(graph, producer)
    if kind == "dot_general":
        return producer.kind in VIEWS or widens(graph, producer) or not joins_lanes(graph, consumer, position)
    if kind == BROADCAST:
        return producer.kind in (BROADCAST, "iota") or is_scalar(graph, producer) or not _spreads(graph, consumer)
    if kind == "pad":
        return not stands_alone(consumer) and (producer.kind in VIEWS or keeps_shape(graph, consumer))
    return True


def is_padded(graph: Graph, joined: Op, readers: int) -> bool:
    """Whether those that read what is put together pad its parts and take the larger of them.

    One reader does, and several do where parts lie beside each other on the lanes or begin within a tile's rows: else
    each part is written to its place (seen on v3, v4, v5e, v5p and v6e).
    """
    if readers == 1:
        return True
    dim, rank = joined.attributes["dimension"], len(graph.shape(joined.results[0]))
    if dim == rank - 1:
        return True
    begins = accumulate(graph.shape(part)[dim] for part in joined.operands[:-1])
    return dim == rank - 2 and any(begin % ROWS for begin in begins)


def joins_windows(reader: Op, position: int, joined: Op) -> bool:
    """Whether a convolution reads what is put together along its windows: rows of its own beside neighbours'."""
    side = ("input", "kernel")[min(position, 1)]
    along = reader.attributes.get(f"{side}_spatial_dimensions", ())
    return reader.kind == "convolution" and joined.attributes["dimension"] in along


def _joins_rows(graph: Graph, product: Op, position: int) -> bool:
    """Whether a batch of products over two dims or more sees several dims of an operand as its rows."""
    return batch_dims(graph, product) > 1 and free_dims(graph, product, position) > 1


def batch_dims(graph: Graph, product: Op) -> int:
    """The dims larger than one over which a product is a batch of products."""
    dims = product.attributes.get("lhs_batching_dimensions", ())
    return sum(graph.shape(product.operands[0])[dim] > 1 for dim in dims)


def free_dims(graph: Graph, product: Op, position: int) -> int:
    """The dims larger than one of an operand that a product neither sums nor is a batch over."""
    side = ("lhs", "rhs")[position]
    kept = {d for part in ("contracting", "batching") for d in product.attributes.get(f"{side}_{part}_dimensions", ())}
    return sum(size > 1 and dim not in kept for dim, size in enumerate(graph.shape(product.operands[position])))


def keeps_shape(graph: Graph, op: Op) -> bool:
    """Whether a result is as large as the first operand: a pad across devices then only selects what it keeps."""
    return graph.shape(op.operands[0]) == graph.shape(op.results[0])


def widens(graph: Graph, op: Op) -> bool:
    """Whether it only makes numbers wider: that is done where they are read."""
    if op.kind != CONVERT:
        return False
    before, after = graph.values[op.operands[0]], graph.values[op.results[0]]
    return after.bits > before.bits


def joins_lanes(graph: Graph, product: Op, position: int) -> bool:
    """Whether a product sees the two minor dims of an operand, of less than a register's lanes, as one.

    It does where the last one is no smaller than the other: a larger one comes into the lanes by itself (seen of 17
    dispatches of tokens to experts on v3, v4, v5e and v5p).
    """
    side = ("lhs", "rhs")[position]
    summed = {*product.attributes.get(f"{side}_contracting_dimensions", ())}
    summed |= {*product.attributes.get(f"{side}_batching_dimensions", ())}
    shape = graph.values[product.operands[position]].shape
    free = [(size, dim not in summed) for dim, size in enumerate(shape) if size > 1]
    if len(free) < 3 or shape[-1] >= LANES:
        return False
    (one, keeps_one), (last, keeps_last) = free[-2:]
    return keeps_one and keeps_last and one <= last


def _spreads(graph: Graph, op: Op) -> bool:
    return graph.values[op.results[0]].num_elements > graph.values[op.operands[0]].num_elements
