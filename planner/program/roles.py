"""Products apart from what is computed after them where both read one value along other loops.

``p · (A p)``: what the product adds up over is, of the same value, what the sum after it goes along. As one kernel,
whose values have one layout each, neither could be split.
"""

from __future__ import annotations

from dataclasses import replace

from ..fusion.nature import PRODUCTS
from ..graph import Graph
from ..kernels import Kernel, Program
from .nest import Nest, nest_of
from .passing import own_ops, own_reads


def with_roles_apart(program: Program, within: dict[int, Kernel]) -> Program:
    """The program with each such product as a kernel of its own, which writes what it makes. ``within`` gets these, by
    their ids, where what they make stays inside of what is computed after them, unless it lies otherwise there.
    """
    kernels: list[Kernel] = []
    for kernel in program.kernels:
        bodies = tuple(with_roles_apart(body, within) for body in kernel.bodies)
        parts = () if bodies else _parts(program.graph, kernel)
        within.update({id(each): each for each in parts[:1] if not set(each.writes) & set(kernel.writes)})
        kernels += parts or (replace(kernel, bodies=bodies) if bodies else kernel,)
    return replace(program, kernels=tuple(kernels))


def _parts(graph: Graph, kernel: Kernel) -> tuple[Kernel, ...]:
    """The product and what comes after it; nothing where they may stay one."""
    products = [number for number in kernel.ops if graph.ops[number].kind in PRODUCTS]
    if len(products) != 1 or not _meets_itself(graph, kernel, products[0]):
        return ()
    (made,) = graph.ops[products[0]].results
    product = _kernel(graph, replace(kernel, writes=(made,)))
    after = tuple(value for value in kernel.writes if value != made)
    rest = _kernel(graph, replace(kernel, reads=tuple(dict.fromkeys((*kernel.reads, made))), writes=after))
    is_whole = {*product.ops, *rest.ops} == set(kernel.ops) and made in rest.reads
    return (product, rest) if is_whole else ()


def _kernel(graph: Graph, kernel: Kernel) -> Kernel:
    return Kernel(ops=own_ops(graph, kernel), reads=own_reads(graph, kernel), writes=kernel.writes)


def _meets_itself(graph: Graph, kernel: Kernel, number: int) -> bool:
    """Whether loops of a product are one for no other reason than what else in the kernel reads its operands."""
    given = set(graph.ops[number].operands)
    others = {value for other in kernel.ops if other != number for value in graph.ops[other].operands}
    if given.isdisjoint(others):
        return False
    alone, together = nest_of(graph, [number]), nest_of(graph, kernel.ops)
    return any(_repeats(together, value) and not _repeats(alone, value) for value in given)


def _repeats(nest: Nest, value: int) -> bool:
    """Whether two dims of a value go along one loop."""
    loops = [loop for dim in nest.dims[value] for loop in dim]
    return len(set(loops)) < len(loops)
