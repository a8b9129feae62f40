"""What TPU7x's compiler makes of reshards before it partitions: Shardy's own collectives, which it leaves as reshards.

It runs the whole of Shardy's export pipeline: each reshard becomes slices, permutes, all-to-alls and gathers one after
the other, each of which the partitioner is told by the layout that it leaves. Sums that are sliced are scattered. Where
a permute only turns the axes of a dim round for all-to-alls of one axis each, the dim is cut into one for each of its
axes, and these move alone, those that stay into the place that they have afterwards (``sdy-optimize-collectives`` of
libtpu 0.0.51, which jaxlib's Shardy has not). What products gather, or scatter without gathering, is left to the
partitioner, which makes loops of permutes of it (``sdy-remove-all-gather-reduce-scatter-for-cmv1``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from .cut_dims import Layout, Move, cut_layouts
from .rewrites.convolutions import CONVOLUTION
from .rewrites.simplify import nested
from .shardings import RESHARD, sharding_of
from .windows import RULE, shardys_own

PRODUCTS = ("stablehlo.dot_general", "stablehlo.dot")
GATHER, SCATTER, SUM = "sdy.all_gather", "sdy.reduce_scatter", "sdy.all_reduce"
EXCHANGE, PERMUTE, RESHAPE = "sdy.all_to_all", "sdy.collective_permute", "stablehlo.reshape"
LEAVING = frozenset((GATHER, SCATTER, EXCHANGE, PERMUTE, "sdy.all_slice"))
"""The collectives that leave a layout."""
FOUND = frozenset((*PRODUCTS, *LEAVING, SUM))

_CLEANED = "canonicalize{{region-simplify=aggressive top-down=false enable-patterns={}}}"
TO_COLLECTIVES = (
    "func.func(sdy-insert-explicit-reshards{enable-full-version=true})",
    _CLEANED.format("sdy-reshard"),
    "func.func(sdy-reshard-to-collectives)",
)
FUSED = _CLEANED.format("sdy-collective")

AXIS = re.compile(r'"[^"]+"(?::\(\d+\)\d+)?')
"""An axis, or a part of one, as attributes show it."""
MOVED = re.compile(r"\{([^{}]*)\}: (\d+)->(\d+)")
"""What an all-to-all moves from dim to dim."""


def make_collectives(module: Any, run: Callable[[str], None], *, convolves: bool = True) -> None:
    """Reshards what operations of a propagated module need otherwise than it lies, in place, makes collectives of all
    reshards, and reshards of what these leave. ``run`` runs passes; unless it ``convolves`` there are no convolutions.
    """
    for operation, name in nested(module) if convolves else ():
        if name == CONVOLUTION:
            operation.attributes[RULE] = shardys_own(operation.attributes[RULE])
    run(",".join(TO_COLLECTIVES))
    known = dict[Any, Any]()
    exchanges = [operation for operation, name in nested(module) if name == EXCHANGE]
    sizes = _sizes(module) if exchanges else {}
    for exchange in exchanges:
        if not any(use.owner.operation.name == EXCHANGE for use in exchange.results[0].uses):
            _cut(exchange, sizes, known)
    run(FUSED)
    _leave_as_reshards([each for each in nested(module) if each[1] in FOUND])


def _leave_as_reshards(found: Sequence[tuple[Any, str]]) -> None:
    """Makes reshards of collectives, but for those that the partitioner makes by itself; in place, in their order."""
    left = {each for operation, name in found if name in PRODUCTS for each in _left_to_partitioner(operation)}
    known = dict[Any, Any]()
    for operation, name in found:
        if name == SUM or operation in left:
            _replace(operation, operation.operands[0])
        elif name in LEAVING:
            _replace(operation, _reshard(operation.operands[0], operation.attributes["out_sharding"], operation, known))


def _left_to_partitioner(product: Any) -> list[Any]:
    """The gathers for a product alone; without any, the scatter of what it makes, which then lies as that leaves it."""
    makers = [maker for maker in map(_maker, product.operands) if maker is not None and maker.name == GATHER]
    gathers = [each for each in makers if _has_one_use(each)]
    if gathers or not _has_one_use(product):
        return gathers
    (use,) = product.results[0].uses
    scatter = use.owner.operation
    if scatter.name != SCATTER:
        return []
    laid = sdy.TensorShardingAttr(scatter.attributes["out_sharding"])
    product.attributes["sdy.sharding"] = sdy.TensorShardingPerValueAttr.get([laid])
    return [scatter]


def _cut(last: Any, sizes: Mapping[str, int], known: dict[Any, Any]) -> None:
    """Cuts the dim whose axes a permute turns round for the all-to-alls that end with this one, if that suffices."""
    chain = [last]
    while (maker := _maker(chain[0].operands[0])) is not None and maker.name == EXCHANGE:
        chain.insert(0, maker)
    if maker is None or maker.name != PERMUTE or not all(map(_has_one_use, (maker, *chain[:-1]))):
        return
    moves = [move for move in map(_move, chain) if move is not None]
    if len(moves) < len(chain):
        return
    value, left = maker.operands[0], last.attributes["out_sharding"]
    shape = list(ir.RankedTensorType(value.type).shape)
    found = cut_layouts(_axes(_lies(value), len(shape)), _axes(left, len(shape)), shape, moves, sizes)
    if found is None:
        return
    cut_shape, layouts = found
    mesh = str(sdy.TensorShardingAttr(left).mesh_or_ref)
    first, *after = [_sharding(mesh, layout) for layout in layouts]
    now = _reshaped(value, cut_shape, first, last, known)
    for layout in after:
        now = _reshard(now, layout, last, known)
    _replace(last, _reshaped(now, shape, left, last, known))
    for operation in (*reversed(chain[:-1]), maker):
        operation.erase()


def _move(exchange: Any) -> Move | None:
    """What an all-to-all moves; None for several axes, or between several dims."""
    found = MOVED.findall(str(exchange.attributes["params"]))
    axes = AXIS.findall(found[0][0])
    return Move(axes[0], int(found[0][1]), int(found[0][2])) if len(found) == len(axes) == 1 else None


def _maker(value: Any) -> Any:
    """The operation that makes a value; None for an argument of a block."""
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def _has_one_use(operation: Any) -> bool:
    return sum(1 for _ in operation.results[0].uses) == 1


def _lies(value: Any) -> Any:
    """How a value lies, also one that a collective makes."""
    maker = _maker(value)
    return maker.attributes["out_sharding"] if maker is not None and maker.name in LEAVING else sharding_of(value)


def _axes(sharding: Any, rank: int) -> Layout:
    """The axes of each dim; without a layout none."""
    if sharding is None:
        return [[] for _ in range(rank)]
    return [AXIS.findall(str(dim)) for dim in sdy.TensorShardingAttr(sharding).dimension_shardings]


def _sharding(mesh: str, layout: Layout) -> Any:
    dims = ", ".join("{" + ", ".join(axes) + "}" for axes in layout)
    return ir.Attribute.parse(f"#sdy.sharding<{mesh}, [{dims}]>")


def _sizes(module: Any) -> dict[str, int]:
    """The size of each axis, as attributes show it."""
    meshes = (op.operation for op in module.regions[0].blocks[0].operations if op.operation.name == "sdy.mesh")
    axes = (sdy.MeshAxisAttr(axis) for mesh in meshes for axis in sdy.MeshAttr(mesh.attributes["mesh"]).axes)
    return {f'"{axis.name}"': axis.size for axis in axes}


def _reshard(value: Any, sharding: Any, before: Any, known: dict[Any, Any]) -> Any:
    """The value laid out so, before an operation and in its name."""
    return _made(RESHARD, value, value.type, {"sharding": sharding}, before, known)


def _reshaped(value: Any, shape: list[int], sharding: Any, before: Any, known: dict[Any, Any]) -> Any:
    element = ir.RankedTensorType(value.type).element_type
    kind = ir.RankedTensorType.get(shape, element, loc=before.location)
    laid = sdy.TensorShardingPerValueAttr.get([sdy.TensorShardingAttr(sharding)])
    return _made(RESHAPE, value, kind, {"sdy.sharding": laid}, before, known)


def _made(name: str, value: Any, kind: Any, attributes: Mapping[str, Any], before: Any, known: dict[Any, Any]) -> Any:
    """What an operation makes of a value, once in a block: XLA finds what is the same."""
    key = (name, value, kind, *attributes.values(), before.block)
    if key not in known:
        place = ir.InsertionPoint(before)
        operation = ir.Operation.create(
            name, results=[kind], operands=[value], attributes=dict(attributes), loc=before.location, ip=place
        )
        known[key] = operation.results[0]
    return known[key]


def _replace(operation: Any, value: Any) -> None:
    operation.results[0].replace_all_uses_with(value)
    operation.erase()
