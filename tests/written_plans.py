"""Plans that users write for a step: by hand as teams do, drawn at random, and the neighbours of a given plan."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from meshwright.dsl.plan import Assignment, Axis, Dim, Dims, Infer, Mesh, Plan, Rule, Topology
from meshwright.dsl.resolve import key_of, resolve
from meshwright.dsl.tensors import Tensor

Layout = tuple[tuple[str, ...], ...]


def edges(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor for tensor in tensors if tensor.role in ("argument", "result")]


def written(topology: Topology | None, sizes: Mapping[str, int], layouts: Mapping[str, Layout]) -> Plan:
    """The plan with a rule for each tensor."""
    mesh = Mesh(axes=tuple(Axis(name=name, size=size) for name, size in sizes.items()))
    rules = tuple(rule_of(path, layout, f"t{i}") for i, (path, layout) in enumerate(layouts.items()))
    return Plan(topology=topology, mesh=mesh, rules=rules)


def rule_of(path: str, layout: Layout, name: str) -> Rule:
    return Rule(
        pattern=path, assignment=Dims(dims=tuple(Dim(name=f"{name}d{d}", axes=a) for d, a in enumerate(layout)))
    )


def all_layouts(shape: Sequence[int], sizes: Mapping[str, int]) -> list[Layout]:
    """Every way to split dims evenly over axes, major axes first."""
    found = []
    for homes in itertools.product([None, *range(len(shape))], repeat=len(sizes)):
        layout = tuple(
            tuple(axis for axis, home in zip(sizes, homes, strict=True) if home == dim) for dim in range(len(shape))
        )
        if all(size % math.prod(sizes[a] for a in axes) == 0 for size, axes in zip(shape, layout, strict=True)):
            found.append(layout)
    return found


def as_state(tensors: Sequence[Tensor], layouts: Mapping[str, Layout]) -> dict[str, Layout]:
    """State comes back as it went in."""
    back = {tensor.path: tensor.returns for tensor in tensors if tensor.returns}
    return {path: layouts.get(back.get(path, ""), layout) for path, layout in layouts.items()}


def drawn(tensors: Sequence[Tensor], topology: Topology | None, sizes: Mapping[str, int], count: int) -> Iterator[Plan]:
    """Plans with a layout drawn for every argument and result."""
    for seed in range(count):
        rng = random.Random(seed)
        layouts = {tensor.path: rng.choice(all_layouts(tensor.shape, sizes)) for tensor in edges(tensors)}
        yield written(topology, sizes, as_state(tensors, layouts))


def split_over(shape: Sequence[int], dims: Sequence[int], axes: tuple[str, ...], sizes: Mapping[str, int]) -> Layout:
    """The first of ``dims`` that the axes divide split over them; whole where none is."""
    ways = math.prod(sizes[axis] for axis in axes)
    for dim in dims:
        if 0 <= dim < len(shape) and shape[dim] % ways == 0:
            return tuple(axes if d == dim else () for d in range(len(shape)))
    return ((),) * len(shape)


def by_hand(tensors: Sequence[Tensor], topology: Topology | None, sizes: Mapping[str, int]) -> dict[str, Plan]:
    """Data parallel, FSDP, tensor parallel over all axes and over the last, experts: as far as each is possible.

    The last argument is the batch; of a weight named ``wi`` or so the last dim is split, of ``wo`` the one before.
    """
    every, data, model = tuple(sizes), tuple(sizes)[:1], tuple(sizes)[-1:]
    batch = [t.path for t in tensors if t.role == "argument"][-1].split("/")[0]

    def plan(weights: str, over: tuple[str, ...], batch_over: tuple[str, ...]) -> Plan:
        layouts = {}
        for tensor in edges(tensors):
            rank, name = len(tensor.shape), tensor.path.split("/")[-1]
            inner = [rank - 1] if name not in ("wo", "o") else [rank - 2 if name == "wo" else 0]
            inner = [1] if name in "qkv" and rank == 3 else inner
            largest = sorted(range(rank), key=lambda d: -tensor.shape[d])
            dims = {"whole": [], "fully": largest, "inner": inner, "experts": [0] if rank == 3 else []}[weights]
            is_batch = tensor.path.split("/")[0] == batch
            layouts[tensor.path] = split_over(
                tensor.shape, [0] if is_batch else dims, batch_over if is_batch else over, sizes
            )
        return written(topology, sizes, as_state(tensors, layouts))

    return {
        "data parallel": plan("whole", (), every),
        "fully sharded": plan("fully", every, every),
        "tensor parallel": plan("inner", every, ()),
        "data and tensor parallel": plan("inner", model, data),
        "fully sharded over one axis": plan("fully", data, data),
        "expert parallel": plan("experts", every, every),
        "expert and data parallel": plan("experts", model, every),
    }


def neighbours(plan: Plan, tensors: Sequence[Tensor], count: int, seed: int = 0) -> Iterator[Plan]:
    """Plans that differ from a given one in the layout of one argument, and in that of its next value."""
    sizes = {name: size or 1 for name, size in plan.mesh.sizes.items()}
    found = resolve(plan, tensors).layouts
    given = {t.path: found[key_of(t)].axes for t in edges(tensors) if found[key_of(t)].how == "split"}
    left = tuple(rule_for(t.path, Infer()) for t in edges(tensors) if t.path not in given)
    inner = tuple(rule for rule in plan.rules if rule.pattern.startswith(("ops/", "acts/")))
    moves = [
        (tensor.path, layout)
        for tensor in edges(tensors)
        if tensor.path in given and not tensor.returns
        for layout in all_layouts(tensor.shape, sizes)
        if layout != given[tensor.path]
    ]
    random.Random(seed).shuffle(moves)
    for path, layout in moves[:count]:
        other = written(plan.topology, sizes, as_state(tensors, given | {path: layout}))
        yield replace(plan, rules=(*other.rules, *left, *inner), result=None)


def rule_for(path: str, assignment: Assignment) -> Rule:
    return Rule(pattern=path, assignment=assignment)
