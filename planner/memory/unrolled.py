"""How much longer the code of products is all of whose operands and results lie in a chip's vector memory.

A window of a product is unrolled: every row that a matrix unit takes is an instruction. What comes from the large
memory is cut into windows that pass vector memory beside each other; what lies there already is one window, or few, as
long as the compiler lets them grow (``whole_product`` of a chip).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..chip import Chip, WholeProduct
from ..compute.products import Product, product_of
from ..graph import Graph
from ..kernels import Kernel
from .code import product_code, usual_bytes
from .level import Level

ROW_BYTES = 14
"""The code for a row that a square of weights takes: 11 to 15 on v5e, 13 to 15 on v6e, 10 on TPU7x, of products alone;
with what is fused around them 15 on v5e.
"""

SEVERAL = 2 / 3
"""How long a window may be where there are several, of the longest that is alone: on v5e 116 of 180 thousand rows."""


def unrolled_bytes(level: Level, chip: Chip | None) -> int:
    """How much longer than usual the code of a program is for products of what lies near."""
    if chip is None or chip.whole_product is None or chip.matrix_unit is None:
        return 0
    found = 0
    for graph, kernel in _of_near(level):
        products = [product_of(graph, graph.ops[op]) for op in kernel.ops if graph.ops[op].kind == "dot_general"]
        is_one = len(products) == 1 and products[0].batch == 1
        if is_one and (chip.whole_product.rounded or _is_kept(graph, kernel, products[0])):
            rows = window_rows(products[0], chip.matrix_unit.edge, chip.whole_product)
            found += max(0, int(ROW_BYTES * rows) - usual_bytes(graph, kernel, product_code(chip)))
    return found


def window_rows(product: Product, edge: int, whole: WholeProduct) -> float:
    """How many rows squares of this edge take for a window of a product of what lies near, its result in float32."""
    rows = product.padded(edge) / edge**2
    result = 4 * product.rows * product.columns / whole.result_bytes
    if rows <= whole.rows and result < 1:
        return rows
    return rows / max(2, math.ceil(rows / (SEVERAL * whole.rows)), math.floor(2 * result) + 1)


def _is_kept(graph: Graph, kernel: Kernel, product: Product) -> bool:
    """Whether what a kernel writes is the whole of its product in float32, into which it may add up."""
    made = [graph.values[value] for value in kernel.writes]
    return all(each.dtype == "f32" and each.num_elements == product.rows * product.columns for each in made)


def _of_near(level: Level) -> Iterator[tuple[Graph, Kernel]]:
    """The kernels, of loops too, that read and write nothing in the large memory."""
    for point, kernel in enumerate(level.program.kernels):
        for body in level.bodies.get(point, ()):
            yield from _of_near(body)
        if not kernel.bodies and all(level.is_near(value, point) for value in (*kernel.reads, *kernel.writes)):
            yield level.program.graph, kernel
