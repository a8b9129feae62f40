"""Draws legal plans for a step: a random mesh over 8 devices, random axes for each tensor that they divide."""

import random

from meshwright.dsl.plan import Axis, Dim, Dims, Infer, Mesh, Plan, Replicate, Rule, Topology

MESHES = [{"a": 8}, {"a": 2, "b": 4}, {"a": 4, "b": 2}, {"a": 2, "b": 2, "c": 2}]


def random_plan(tensors, seed):
    """A legal, complete plan over ``cpu:8``: every tensor has a rule of its own, most of them split."""
    rng = random.Random(seed)
    sizes = rng.choice(MESHES)
    mesh = Mesh(axes=tuple(Axis(name=n, size=s) for n, s in sizes.items()))
    by_path: dict[str, list] = {}
    for tensor in tensors:
        by_path.setdefault(tensor.path, []).append(tensor)
    rules = [
        Rule(pattern=path, assignment=_assignment(rng, group, sizes, i))
        for i, (path, group) in enumerate(by_path.items())
    ]
    return Plan(topology=Topology(kind="cpu", dims=(8,)), mesh=mesh, rules=tuple(rules))


def _assignment(rng, tensors, sizes, index):
    tensor = tensors[0]
    if len(tensors) > 1 or not tensor.shape:
        return Infer() if tensor.role == "tagged" else Replicate()
    free, dims = list(sizes), []
    rng.shuffle(free)
    for i, dim_size in enumerate(tensor.shape):
        axes, left = [], dim_size
        while free and rng.random() < 0.6 and left % sizes[free[-1]] == 0:
            left //= sizes[free[-1]]
            axes.append(free.pop())
        dims.append(Dim(name=f"t{index}d{i}", axes=tuple(axes)))
    return Dims(dims=tuple(dims))
