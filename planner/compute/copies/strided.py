"""What a scan takes of arrays that lie another way: of each piece a row of every register.

Of a product by a matrix of rows in two dims, as of each token of each row, both of them and the features are free to
lie on lanes and rows. On the lanes comes what fills them, from the last dim of the product on, else the features; on
the rows the last of the rows' dims where these come first, but where the other pads less or fills lanes too, and the
longer one where they come last. Seen on v3, v4, v5e, v5p and v6e alike, of 97 such products before a scan.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...fusion.nature import ELEMENTWISE, VIEWS
from ...graph import Graph, Op, Value
from ...kernels import Kernel
from ...kinds import KINDS
from ..coefficients import Coefficients
from ..cycles import cycles_of
from ..manner import FIRST, LATER, PAIRED, SECOND, manner_of
from ..work import LANES, LOOP, SUBLANES, Work, padded_bytes, round_up

TILED_DIMS = 2
KEEPING = {*KINDS, *ELEMENTWISE, "transpose", "dynamic_slice", "slice", "reshape"}
SLICE, PRODUCT = "dynamic_slice", "dot_general"
FREE_DIMS = 3
PADDED_MORE = 1.1
"""How much more of a product must be padding for its rows' other dim to lie on registers' rows: 200 by 100 rows do not.
"""

ROW_CYCLES = {FIRST: 17.0, SECOND: 16.0, LATER: 14.0, PAIRED: 5.5}
WIDE_ROW_CYCLES, WIDE_EDGE = 5.5, 256
"""What taking one row out of a register takes, of each manner; and where squares are as wide as on v6e. It is done by a
kernel of its own, whatever reads the piece: f32[1,16,512] and bf16[1,64,512] take 1664 and 4879 cycles on v3, 1922 and
5008 on v4, 2910 and 5205 on v5e, 2520 and 3378 on v5p, 2468 and 3465 on v6e.
"""


def strided(graph: Graph, given: Collection[int]) -> frozenset[int]:
    """The values whose first dim lies in registers' rows or lanes: transposes of what is given or multiplied.

    A transpose before a loop moves no numbers, and the product before that writes what it makes as it would by itself.
    Pieces along a dim that lies outside of the two minor ones are whole registers (seen on v4 and v5e).
    """
    orders = {value: _as_it_comes(graph, value) for value in given}
    for op in graph.ops:
        if op.kind == PRODUCT:
            orders[op.results[0]] = _of_product(graph, op)
        elif op.kind in KEEPING and op.operands and op.operands[0] in orders and len(op.results) == 1:
            order = _order_after(graph, op, orders[op.operands[0]])
            if order is not None:
                orders[op.results[0]] = order
    return frozenset(value for value, order in orders.items() if order[:1] > (0,) and _is_tiled(graph, value, order))


def _as_it_comes(graph: Graph, value: int) -> tuple[int, ...]:
    return tuple(range(len(graph.shape(value))))


def _of_product(graph: Graph, op: Op) -> tuple[int, ...]:
    """The dims of what a product makes, from the major one on."""
    shape, said = graph.shape(op.results[0]), op.attributes
    if len(shape) != FREE_DIMS or said.get("lhs_batching_dimensions") or min(shape) <= 1:
        return _as_it_comes(graph, op.results[0])
    comes_first = len(graph.shape(op.operands[0])) - len(said.get("lhs_contracting_dimensions", ())) > 1
    first, last, features = (0, 1, 2) if comes_first else (1, 2, 0)
    filled = [dim for dim in (2, 1, 0) if shape[dim] % LANES == 0]
    lanes = filled[0] if filled else features
    if lanes != features:
        return (first + last - lanes, features, lanes)
    if comes_first:
        is_turned = _padding(shape[last]) > PADDED_MORE * _padding(shape[first]) or {first, last} & {*filled} == {first}
    else:
        is_turned = shape[first] > shape[last]
    return (last, first, lanes) if is_turned else (first, last, lanes)


def _padding(rows: int) -> float:
    """How many times its own numbers a dim takes on registers' rows."""
    return round_up(rows, SUBLANES) / rows


def _order_after(graph: Graph, op: Op, order: tuple[int, ...]) -> tuple[int, ...] | None:
    """A result's dims from the major one on, if they are known: its operand's lie in this ``order``.

    What is reshaped with its first dim inside of others keeps that inside.
    """
    before, after = graph.shape(op.operands[0]), graph.shape(op.results[0])
    if not before:
        return None  # one number for all of an array
    if op.kind == "transpose":
        places = tuple(op.attributes["permutation"])
        return tuple(places.index(dim) for dim in order)
    if before == after:
        return order
    if op.kind != "reshape" or before[:1] != after[:1]:
        return None
    rest = tuple(range(1, len(after)))
    return (0, *rest) if order[0] == 0 else (*rest, 0)


def _is_tiled(graph: Graph, value: int, order: Sequence[int]) -> bool:
    """Whether the first dim is one of the two minor ones."""
    shape = graph.shape(value)
    return 0 in [dim for dim in order if shape[dim] > 1][-TILED_DIMS:]


def turned_stacks(loop: Op, values: Collection[int]) -> frozenset[int]:
    """The arguments of a loop's body that are given these values."""
    places = zip(loop.operands, loop.bodies[0].arguments, strict=False)
    return frozenset(argument for operand, argument in places if operand in values)


def rows_cycles(graph: Graph, kernel: Kernel, stacks: frozenset[int], edge: int, of: Coefficients) -> float:
    """What taking pieces of these costs before a kernel on a chip whose squares have this edge."""
    if not stacks or stacks.isdisjoint(kernel.reads):
        return 0.0
    ops = [graph.ops[number] for number in kernel.ops]
    pieces = [graph.values[op.results[0]] for op in ops if op.kind == SLICE and op.operands[0] in stacks]
    each = WIDE_ROW_CYCLES if edge >= WIDE_EDGE else ROW_CYCLES[manner_of(of)]
    rows = sum(each * piece.num_elements / LANES for piece in pieces)
    is_alone = all(op.kind == SLICE or op.kind in VIEWS for op in ops)
    return rows if is_alone else rows + sum(_cutting_cycles(piece, edge, of) for piece in pieces)


def _cutting_cycles(piece: Value, edge: int, of: Coefficients) -> float:
    """What a kernel takes that leaves a piece, but for its rows."""
    near, num_bytes = (bool(of.near_total_bytes),), padded_bytes(piece)
    work = Work(kind=LOOP, reads=(num_bytes,), writes=(num_bytes,), space_bytes=num_bytes)
    return cycles_of(work, near, near, edge, of).total
