"""Products apart from what is computed after them where both read one value along other loops.

``p · (A p)``: what the product adds up over is, of the same value, what the sum after it goes along. As one kernel,
whose values have one layout each, neither could be split.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ...fusion.nature import PRODUCTS
from ...graph import Graph
from ...kernels import Kernel, Program
from .nest import Nest, nest_of
from .passing import own_ops, own_reads

Seen = dict[int, tuple[Kernel, frozenset[int]]]


def with_roles_apart(program: Program, within: dict[int, Kernel], seen: Seen) -> Program:
    """The program with each such product as a kernel of its own, which writes what it makes. ``within`` gets these, by
    their ids, where what they make stays inside of what is computed after them, unless it lies otherwise there.
    What is ``seen`` inside of kernels (``cuts``) is in their parts.
    """
    kernels: list[Kernel] = []
    for kernel in program.kernels:
        bodies = tuple(with_roles_apart(body, within, seen) for body in kernel.bodies)
        parts = () if bodies else _apart(program.graph, kernel)
        within.update({id(each): each for each in parts[:1] if not set(each.writes) & set(kernel.writes)})
        _, values = seen.get(id(kernel), (kernel, frozenset[int]()))
        seen.update({id(each): (each, own) for each in parts if (own := values & _values(program.graph, each))})
        kernels += parts or (replace(kernel, bodies=bodies) if bodies else kernel,)
    return replace(program, kernels=tuple(kernels))


def _apart(graph: Graph, kernel: Kernel) -> tuple[Kernel, ...]:
    """The product and what comes after it; nothing where they may stay one."""
    parts = product_and_rest(graph, kernel)
    return parts if parts and meet(graph, kernel, *parts) else ()


def product_and_rest(graph: Graph, kernel: Kernel) -> tuple[Kernel, Kernel] | tuple[()]:
    """The product of a kernel and what comes after it, if that is all there is. What the kernel is handed that its
    operations make, those of its parts make that have them.
    """
    products = [number for number in kernel.ops if graph.ops[number].kind in PRODUCTS]
    if len(products) != 1:
        return ()
    (made,) = graph.ops[products[0]].results
    inside = {value for number in kernel.ops for value in graph.ops[number].results}
    alone = replace(kernel, reads=tuple(value for value in kernel.reads if value not in inside))
    product = _kernel(graph, replace(alone, writes=(made,)))
    after = tuple(value for value in kernel.writes if value != made)
    rest = _kernel(graph, replace(alone, reads=(*alone.reads, made), writes=after))
    is_whole = {*product.ops, *rest.ops} == set(kernel.ops) and made in rest.reads
    if not is_whole:
        return ()
    handed = (set(kernel.reads) & inside) - {made}
    return _handed(graph, product, handed), _handed(graph, rest, handed)


def _kernel(graph: Graph, kernel: Kernel) -> Kernel:
    return Kernel(ops=own_ops(graph, kernel), reads=own_reads(graph, kernel), writes=kernel.writes)


def _handed(graph: Graph, part: Kernel, handed: Collection[int]) -> Kernel:
    """A part that is handed what of these values it would else compute in passing."""
    made = (value for number in part.ops for value in graph.ops[number].results)
    return replace(part, reads=(*part.reads, *(value for value in made if value in handed)))


def _values(graph: Graph, kernel: Kernel) -> set[int]:
    ops = [graph.ops[number] for number in kernel.ops]
    return {value for op in ops for value in (*op.operands, *op.results)}


def meet(graph: Graph, kernel: Kernel, product: Kernel, rest: Kernel) -> bool:
    """Whether dims of a value go along one loop for no other reason than what both parts of a kernel read."""
    if set(product.reads).isdisjoint(rest.reads):
        return False
    bound = _bound(nest_of(graph, kernel.ops))
    return bool(bound) and not any(bound & _bound(nest_of(graph, part.ops)) for part in (product, rest))


def _bound(nest: Nest) -> set[int]:
    """The values of which two dims go along one loop."""
    loops = {value: [loop for dim in dims for loop in dim] for value, dims in nest.dims.items()}
    return {value for value, each in loops.items() if len(set(each)) < len(each)}
